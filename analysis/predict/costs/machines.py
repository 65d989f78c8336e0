"""Machines that were not measured: a file describes them, and its values replace the calibration's.

The file is TOML with keys of KEYS, each a positive number except `name`:

    name = "the next one"
    cores = 8
    memory = 2e10
    latency = 2e-6
    bandwidth = 1.2e10
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from analysis.predict.costs.collectives import Link
from miniapps.untrusted import Refused
from miniapps.untrusted.records import parse_toml
from miniapps.untrusted.regular import read_text
from miniapps.untrusted.text import printable

KEYS: Mapping[str, str] = {
    "name": "",
    "cores": "",
    "speed": "of a core, a multiple of the calibration's",
    "memory": "bytes/s of a core",
    "latency": "s",
    "bandwidth": "bytes/s",
}  # keys of a file, and their units
TOGETHER = (("latency", "bandwidth"),)  # keys that a file has together or not at all
WHOLE = ("cores",)
LARGEST = 1e18
LONGEST_NAME = 80
MOST = 2**20  # bytes of a file


@dataclass(frozen=True)
class Machine:
    """A machine that was not measured. A value of None is the calibration's.

    `speed`: of a core, a multiple of the calibration's. `memory`: bytes/s that a core reads and writes while all other
    cores do the same. `link`: between all ranks."""

    name: str = ""
    cores: int | None = None
    speed: float | None = None
    memory: float | None = None
    link: Link | None = None


def read_machine(path: str | os.PathLike) -> Machine:
    """The machine that the TOML file `path` describes, named by its key `name`, or else by the file.

    Raises Refused for a file of another form, a key outside KEYS, or a value that is not a positive finite number;
    OSError if the file cannot be read.
    """
    given = parse_toml(read_text(path, MOST))
    return machine_of(given, Path(path).stem)


def machine_of(given: Mapping[str, Any], stem: str = "") -> Machine:
    """The machine of the keys `given`; raises Refused as `read_machine` does."""
    if unknown := sorted(given.keys() - KEYS.keys()):
        known = ", ".join(f"{key} ({unit})" if unit else key for key, unit in KEYS.items())
        raise Refused(f"unknown {printable(unknown[0])}; there are: {known}")
    name = given.get("name", stem)
    if not isinstance(name, str) or not 0 < len(name) <= LONGEST_NAME:
        raise Refused(f"name = {printable(repr(name))}; give a text of 1 to {LONGEST_NAME} characters")
    numbers = {key: _number(key, value) for key, value in given.items() if key != "name"}
    for keys in TOGETHER:
        if 0 < len(numbers.keys() & set(keys)) < len(keys):
            raise Refused(f"give {' and '.join(keys)} together")
    link = Link(numbers["latency"], numbers["bandwidth"]) if "latency" in numbers else None
    cores = int(numbers["cores"]) if "cores" in numbers else None
    return Machine(printable(name), cores, numbers.get("speed"), numbers.get("memory"), link)


def _number(key: str, value: Any) -> float:
    number = isinstance(value, int | float) and not isinstance(value, bool)
    if not number or not 0 < value < LARGEST:
        raise Refused(f"{key} = {printable(repr(value))}; give a positive number")
    if key in WHOLE and value != int(value):
        raise Refused(f"{key} = {value!r}; give a whole number")
    return float(value)
