"""The scope of a guarantee: the entries of an environment that it requires, and the differences of two environments."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from kernels.guarantees import PROCESSORS, conditions
from miniapps.system.environment import SETTINGS, THREADS

AMONG = " | "  # between the different values of ranks
OF_RANKS = " values over the ranks"  # replaces a list of too many values
HANDLES = "handles"  # packages that took the handle of a wrapped communicator
NOT_SET, NOT_RECORDED = "not set", "not recorded"

OVER = "holds_over"  # the entry of a run whose bits are those of `any` processor; others lack it

# Entries of the environment by the aspects of a guarantee's scope (`kernels.guarantees.SCOPE`); one that ends in a dot
# stands for all that begin with it. Entries of a library (`arithmetic.`) exist only if the run loaded it.
LOADED = "arithmetic."
SETS = "processor."  # maker, family and instruction sets, by which libraries choose kernels
WATCHED = "torch."  # settings of torch, which runs with a watched model have
ENTRIES = {
    "processor": ("cpu", "instructions", "accelerator", SETS),
    "libraries": ("python", "sources", "packages.numpy", "packages.scipy", "packages.torch", "packages.cupy-cuda12x",
                  "packages.cupy-cuda13x", LOADED),
    "settings": (*(f"variables.{name}" for name in SETTINGS), WATCHED + "deterministic"),
    "threads": (*(f"variables.{name}" for name in THREADS), WATCHED + "threads"),
}  # fmt: skip


def stated(processor: str, guarantee: str) -> dict[str, str]:
    """The entry of the environment by which a run states that its guarantee holds over any processor."""
    return {OVER: processor} if processor == "any" and guarantee != "none" else {}


def over(environment: Mapping[str, str]) -> str:
    """Over which of PROCESSORS the guarantee of a run with this environment holds."""
    return "any" if environment.get(OVER) == "any" else "this"


def holds_over(environment: Mapping[str, str], guarantee: str) -> str:
    """The processors over which the bits of a run hold, as text; empty where nothing is promised."""
    if guarantee == "none":
        return ""
    processor = over(environment)
    own = [environment.get(entry, "") for entry in ENTRIES["processor"]]
    kind = "" if processor == "any" else f": {', '.join(filter(None, own))}"
    return f"{PROCESSORS[processor]}{kind}"


def scoped(environment: Mapping[str, str], guarantee: str, processor: str | None = None) -> dict[str, str]:
    """The entries of a flat `environment` in the scope of `guarantee`, over `processor` (None: what the environment
    states). Over any processor the entries LOADED are none of them, since they tell which kernels were chosen."""
    processor = over(environment) if processor is None else processor
    known = tuple(
        entry
        for aspect in conditions(guarantee, processor)
        for entry in ENTRIES[aspect]
        if processor != "any" or entry != LOADED
    )
    families = tuple(entry for entry in known if entry.endswith((".", "_")))
    return {key: value for key, value in environment.items() if key in known or key.startswith(families)}


def mixed(environment: Mapping[str, str], guarantee: str) -> list[tuple[str, str]]:
    """(entry, values) for each entry in the scope of `guarantee` in which the ranks of one run differ. Names of
    processors do not count if the run recorded their instruction sets."""
    entries = []
    by_sets = NOT_SET not in environment.get(SETS + "flags", NOT_SET)
    for key, value in scoped(environment, guarantee).items():
        values = set(value.split(AMONG))
        if key == "cpu" and by_sets:
            continue
        if key.startswith(LOADED):  # not every rank needs every library
            values.discard(NOT_SET)
        if len(values) > 1 or value.endswith(OF_RANKS):
            entries.append((key, value))
    return entries


def apart(one: Mapping[str, str], other: Mapping[str, str], guarantee: str) -> list[tuple[str, str, str]]:
    """(entry, value of one, value of the other) for each entry in the scope of `guarantee` in which two runs differ."""
    processor = over(one) if over(one) == over(other) else "this"
    a, b = scoped(one, guarantee, processor), scoped(other, guarantee, processor)
    entries = []
    for key in sorted({*a, *b}):
        if a.get(key) != b.get(key) and not (
            key.startswith((LOADED, WATCHED, SETS)) and not (key in a and key in b)
        ):
            missing = NOT_SET if key.startswith("variables.") else NOT_RECORDED
            entries.append((key, a.get(key, missing), b.get(key, missing)))
    return entries


def flatten(tree: Any, prefix: str = "") -> dict[str, str]:
    """Leaves of nested dicts by dotted key, as text."""
    if not isinstance(tree, dict):
        return {prefix: tree if isinstance(tree, str) else json.dumps(tree)}
    flat: dict[str, str] = {}
    for key, value in tree.items():
        flat |= flatten(value, f"{prefix}.{key}" if prefix else str(key))
    return flat
