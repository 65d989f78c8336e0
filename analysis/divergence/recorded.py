"""Decides which rows two runs must both have recorded to be called equal.

Complete runs of one problem, one method and one recording have the same rows: a row that one of them lacks was lost.
Options declare the rows that depend on them, and the layout decides which rank records a row:

| the runs differ in | rows that one may have alone | rows that are not compared |
|---|---|---|
| `--record` | messages and sums | none |
| another option that rows depend on | rows with the names that it declares | messages and sums |
| the variants | those of one run | messages and sums |
| their last step | those of later steps | none |
| the hash of fingerprints | none | fingerprints |
| their checkpoint | none | steps before both have begun, rows that count from the start |
| rank count, ownership | contributions of whole ranks | these, and other rows that depend on a rank's blocks |
| the same, and ranks added arrays of their own | none | messages and sums, except those of all ranks |
| the same, and an array has another length | none | its records, one by one |
| method, by factors in SAME_STATES only | messages and sums | none |
| another factor of the method | all | none |
| a run ended early | all | none |
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import pandas as pd

from analysis.groups import CHOSEN, FREE, LAYOUT, differing_factors, effects, factors, of_effect
from analysis.load.frames import Frames
from analysis.runs import Id
from miniapps.trace import layouts
from miniapps.trace.layouts import Layout, any_matches, of_passing
from miniapps.trace.records import INPUT, NODE, PASSING
from miniapps.trace.schema import FINGERPRINTS

TELLING = ("run", "repeat", "complete", "size", "method", "config", "promises", "options", "reductions")
# Effects of options of the method that may change bits but not which states are recorded.
SAME_STATES = (*CHOSEN, *FREE, "device", "fault")

LAST = 2**31 - 1  # later than any step

Row = Callable[[str, str], bool]  # takes the table ("fingerprints", "values") and a name


@dataclass(frozen=True)
class Common:
    """The rule by which two runs are compared.

    restarted   True if the runs continue from different steps; then they are compared from the later of both on
    dropped     True for rows, by table and name, that are not compared
    may_lack    True for rows, by table and name, that one run may lack
    differ      the differences of methods and recordings, in words
    until       one run may lack all rows after this step
    hashed      True if the runs hash their fingerprints by different functions
    moved       True if the layouts differ. Then messages and sums with `partial` names cannot be compared; with
                `resized` names only if their recorded sizes are equal
    unaligned   True if steps count calls, so that one step may be different places of the program in the two runs
    """

    restarted: bool
    dropped: Row
    may_lack: Row
    differ: tuple[str, ...]
    until: int = LAST
    hashed: bool = False
    moved: bool = False
    unaligned: bool = False
    partial: Callable[[str], bool] = lambda name: False
    resized: Callable[[str], bool] = lambda name: False


def recording(run: Mapping[str, Any]) -> str:
    """The options and conditions that decide which rows a run records, as text.

    `run` is a row of `Frames.runs` with the columns TELLING. Complete runs of one problem with equal texts have the
    same rows: `common` leaves out none."""
    stated, config = json.loads(run["options"]), json.loads(run["config"])
    own = {
        key: _of(config, key)
        for key, option in stated.items()
        if option.get("records") or option.get("effect")
    }
    variants = sorted(json.loads(run["promises"]))
    return json.dumps(
        [run["size"], bool(run["complete"]), run["method"], stated, own, variants],
        sort_keys=True,
        default=str,
    )


def common(a: Mapping[str, Any], b: Mapping[str, Any]) -> Common:
    """The rule by which two runs of one problem are compared; rows of `Frames.runs` with the columns TELLING."""
    if a["run"] == b["run"] and a["complete"] and b["complete"]:
        return Common(False, _nothing, _nothing, ())
    configs = [json.loads(run["config"]) for run in (a, b)]
    variants = [set(json.loads(run["promises"])) for run in (a, b)]
    methods = [factors(run["method"], run["options"], FREE) for run in (a, b)]
    owners = [of_effect(run["method"], run["options"], *LAYOUT) for run in (a, b)]
    stated = json.loads(a["options"]) | json.loads(b["options"])
    differing = [key for key in stated if _of(configs[0], key) != _of(configs[1], key)]
    restarts = [key for key in differing if stated[key].get("effect") == "restart"]
    stops = [key for key in differing if stated[key].get("effect") == "until"]
    hashed = any(
        len({_of(config, key) or FINGERPRINTS[0] for config in configs}) > 1
        for key in differing
        if stated[key].get("effect") == "fingerprint"
    )
    until = min(
        (step for c in configs for key in stops if isinstance(step := _of(c, key), int)), default=LAST
    )
    changed = [key for key in differing if stated[key].get("records") and key not in restarts]
    passing = [key for key in changed if all(of_passing(rows) for rows in stated[key]["records"])]
    only = tuple(f"{name}:" for name in sorted(variants[0] ^ variants[1]))
    moved = a["size"] != b["size"] or owners[0] != owners[1]
    others = differing_factors(methods)
    known = {key.rpartition(".")[2]: e for run in (a, b) for key, e in effects(run["options"]).items()}
    renumbered = bool(only) or len(changed) > len(passing)
    early = not (a["complete"] and b["complete"])
    anything = early or any(known.get(key) not in SAME_STATES for key in others)
    own = [Layout(run["size"], json.loads(run["options"]), json.loads(run["reductions"])) for run in (a, b)]
    calls = all(layout.counts_calls for layout in own)
    counted = [rows for key in restarts for rows in stated[key].get("records", ())]

    def dropped(table: str, name: str) -> bool:
        if hashed and table == "fingerprints":
            return True
        if moved and layouts.of_a_rank(table, name, *own):
            return True
        if restarts and (name.startswith(INPUT) or any_matches(counted, table, name)):
            return True
        return renumbered and name.startswith(PASSING)

    def may_lack(table: str, name: str) -> bool:
        if anything or dropped(table, name) or name.startswith(only):
            return True
        if name.startswith((*PASSING, NODE)):
            return bool(passing) or bool(others)
        return any(any_matches(stated[key]["records"], table, name) for key in changed)

    words = [
        f"{key}: {value_text(_of(configs[0], key))}, {value_text(_of(configs[1], key))}" for key in changed
    ]
    words += ["the layout"] if moved else []
    words += ["the variants"] if only else []
    words += ["how fingerprints are computed"] if hashed else []
    words += ["where they continue from"] if restarts else []
    words += [f"over steps 0..{until}"] if stops else []
    words += [
        f"{key}: {value_text(methods[0].get(key))}, {value_text(methods[1].get(key))}" for key in others
    ]
    return Common(
        bool(restarts),
        dropped,
        may_lack,
        tuple(words),
        until,
        hashed,
        moved,
        moved and calls,
        lambda name: layouts.partial(name, *own),
        lambda name: layouts.resized(name, *own),
    )


def _nothing(table: str, name: str) -> bool:
    return False


def _of(options: dict[str, Any], key: str) -> Any:
    section, _, name = key.partition(".")
    values = options.get(section)
    return values.get(name) if isinstance(values, dict) else None


def value_text(value: Any) -> str:
    """An option's value as a sentence shows it."""
    return "not set" if value is None or value == "" else str(value)


def common_of(frames: Frames, a: Id, b: Id) -> Common:
    """The rule by which two (run, repeat) are compared."""
    return common(*(row_of(frames, run) for run in (a, b)))


def row_of(frames: Frames, run: Id) -> pd.Series:
    """The row of `Frames.runs` of a (run, repeat)."""
    return frames.runs.iloc[frames.places[run]]
