"""Machines that were not measured: a file describes them, and its values replace the calibration's.

The file is TOML with keys of KEYS, each a positive number except `name`:

    name = "the next one"
    cores = 8
    memory = 2e10
    latency = 2e-6
    bandwidth = 1.2e10

For plans (`analysis.predict.plans`) it may describe devices instead, each number with its source:

    [device]             # DEVICE
    product = 312e12
    ...
    [tiles]              # TILES, may be left out: how the device divides a product
    [node]               # NODE: devices of a node, and the links inside; latency and bandwidth above are between nodes
    [sources]
    product = "the maker's data sheet"
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
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
DEVICE: Mapping[str, str] = {
    "product": "operations/s of products, at most",
    "achieved": "share of it that large products reach, at most 1",
    "memory": "bytes/s",
    "capacity": "bytes of its memory",
    "launch": "s of a call with no work",
    "width": "bytes of a number",
}
TILES: Mapping[str, str] = {
    "processors": "of a device, each of which computes one tile at a time",
    "rows": "of a tile of a product's result",
    "columns": "of a tile",
}
NODE: Mapping[str, str] = {"devices": "of a node", "latency": "s", "bandwidth": "bytes/s of a device"}
DEVICES = {"device": DEVICE, "tiles": TILES, "node": NODE}  # tables of a machine of devices
OPTIONAL, SOURCES = "tiles", "sources"
TOGETHER = (("latency", "bandwidth"),)  # keys that a file has together or not at all
WHOLE = ("cores", "node.devices", *(f"tiles.{key}" for key in TILES))
LARGEST = 1e18
LONGEST_NAME = 80
MOST = 2**20  # bytes of a file


@dataclass(frozen=True)
class Tiles:
    """How a device divides a product: its result in tiles of `rows` x `columns`, or the other way round, of which each
    of its `processors` computes one at a time."""

    processors: int
    rows: int
    columns: int


@dataclass(frozen=True)
class Device:
    """A device, by the units of DEVICE; `node`: devices on a node, and `inside`, the link between two of them. `tiles`:
    None if the file does not say."""

    product: float
    achieved: float
    memory: float
    capacity: float
    launch: float
    width: float
    node: int
    inside: Link
    tiles: Tiles | None = None


@dataclass(frozen=True)
class Machine:
    """A machine that was not measured. A value of None is the calibration's.

    `speed`: of a core, a multiple of the calibration's. `memory`: bytes/s that a core reads and writes while all other
    cores do the same. `link`: between all ranks, with a `device` between nodes. `sources`: {number: where it
    is from}."""

    name: str = ""
    cores: int | None = None
    speed: float | None = None
    memory: float | None = None
    link: Link | None = None
    device: Device | None = None
    sources: Mapping[str, str] = field(default_factory=dict)


def read_machine(path: str | os.PathLike) -> Machine:
    """The machine that the TOML file `path` describes, named by its key `name`, or else by the file.

    Raises Refused for a file of another form, a key outside KEYS, or a value that is not a positive finite number;
    OSError if the file cannot be read.
    """
    try:
        given = parse_toml(read_text(path, MOST))
    except ValueError as error:
        raise Refused(f"{error}; write it as TOML: KEY = NUMBER") from None
    return machine_of(given, Path(path).stem)


def machine_of(given: Mapping[str, Any], stem: str = "") -> Machine:
    """The machine of the keys `given`; raises Refused as `read_machine` does."""
    given, sources = dict(given), _sources(given.get(SOURCES, {}))
    device = _device(given) if DEVICES.keys() & given.keys() else None
    given = {key: value for key, value in given.items() if key not in (*DEVICES, SOURCES)}
    _require_known(given, KEYS)
    name = given.get("name", stem)
    if not isinstance(name, str) or not 0 < len(name) <= LONGEST_NAME:
        raise Refused(f"name = {printable(repr(name))}; give a text of 1 to {LONGEST_NAME} characters")
    numbers = {key: _number(key, value) for key, value in given.items() if key != "name"}
    for keys in TOGETHER:
        if 0 < len(numbers.keys() & set(keys)) < len(keys):
            raise Refused(f"give {' and '.join(keys)} together")
    link = Link(numbers["latency"], numbers["bandwidth"]) if "latency" in numbers else None
    cores = int(numbers["cores"]) if "cores" in numbers else None
    if device is not None and (link is None or len(numbers) > len(TOGETHER[0])):
        raise Refused(
            "a machine of devices has latency and bandwidth between its nodes, and no cores, speed or memory"
        )
    return Machine(printable(name), cores, numbers.get("speed"), numbers.get("memory"), link, device, sources)


def _device(given: Mapping[str, Any]) -> Device:
    numbers = {}
    for table, keys in DEVICES.items():
        if table == OPTIONAL and table not in given:
            continue
        own = given.get(table)
        if not isinstance(own, dict):
            raise Refused(f"[{table}] is missing; it has: {_listed(keys)}")
        _require_known(own, keys)
        if missing := [key for key in keys if key not in own]:
            raise Refused(f"[{table}] has no {missing[0]} ({keys[missing[0]]})")
        numbers[table] = {key: _number(f"{table}.{key}", value) for key, value in own.items()}
    device, node, tiles = numbers["device"], numbers["node"], numbers.get(OPTIONAL)
    if device["achieved"] > 1:
        raise Refused(f"device.achieved = {device['achieved']:g}; give a share of at most 1")
    return Device(
        **device, node=int(node["devices"]), inside=Link(node["latency"], node["bandwidth"]),
        tiles=None if tiles is None else Tiles(**{key: int(n) for key, n in tiles.items()}),
    )  # fmt: skip


def _sources(given: Any) -> dict[str, str]:
    if not isinstance(given, dict) or not all(isinstance(value, str) for value in given.values()):
        raise Refused(f"[{SOURCES}]: give a text for each number: KEY = 'where it is from'")
    return {printable(key): printable(value) for key, value in given.items()}


def _require_known(given: Mapping[str, Any], keys: Mapping[str, str]) -> None:
    if unknown := sorted(given.keys() - keys.keys()):
        raise Refused(f"unknown {printable(unknown[0])}; there are: {_listed(keys)}")


def _listed(keys: Mapping[str, str]) -> str:
    return ", ".join(f"{key} ({unit})" if unit else key for key, unit in keys.items())


def _number(key: str, value: Any) -> float:
    number = isinstance(value, int | float) and not isinstance(value, bool)
    if not number or not 0 < value < LARGEST:
        raise Refused(f"{key} = {printable(repr(value))}; give a positive number")
    if key in WHOLE and value != int(value):
        raise Refused(f"{key} = {value!r}; give a whole number")
    return float(value)
