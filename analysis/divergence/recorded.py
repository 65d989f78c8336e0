"""What two runs must both have recorded, so that the bits that they have in common stand for all of them.

Complete runs of one problem, one method and one recording record the same rows: a row that one of them lacks was lost.
Options say what a run records, and the layout says who records it:

| what differs | rows that one may have alone | rows that are not compared |
|---|---|---|
| `--record` | what passes between records | none |
| another option of RECORDING | the names that it decides on | what passes between records: its calls are other ones |
| the variants of `reductions` | those of one run | what passes between records |
| `--restart` | none | steps before both have begun, what is counted from the start |
| rank count, ownership | contributions of whole ranks | these, and drawn orders of a rank's blocks (`--drift`) |
| the same, ranks with arrays of their own | none | what passes between records |
| method, by SAME_STATES alone | what passes between records | none |
| another factor of the method | all | none |
| a run ended early | all | none |
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from analysis.groups import CHOSEN, COUNTS, OWNERSHIP, factors, told_apart
from miniapps.trace.records import INPUT, PASSING

# Contributions of a whole rank, which depend on the blocks that it owns (miniapps.runner.watch), and the numbers of
# `solver --drift`.
OF_A_RANK = re.compile(r"added:.* by rank \d+ of \d+")
DRIFT = re.compile(r"difference|drift_residual|drift_iterations")
COUNTED = ("cg_iterations",)  # since the launch began
MESSAGES, RESTART = "run.record", "output.restart"
# Options that decide which rows there are: the table and the names that they decide on.
RECORDING = {
    MESSAGES: ("fingerprints", re.compile(f"({'|'.join(PASSING)}).*")),
    "record.every": ("fingerprints", re.compile(r"[^:]*")),
    "record.true_every": ("values", re.compile(r"true_residual")),
    "record.error": ("values", re.compile(r"error")),
    "record.orthogonality": ("values", re.compile(r"orthogonality")),
    "drift.samples": ("values", DRIFT),
    "method.samples": ("values", re.compile(r".*:.*")),
    "method.worst": ("values", re.compile(r"worst-(low|high):.*")),
}
TELLING = ("run", "repeat", "complete", "size", "method", "config", "promises")
LAYOUT = ("size", "shuffle_blocks", "ownership")
# Factors of the method, by their last name, that may change bits but not which states are recorded.
SAME_STATES = (*CHOSEN, *COUNTS, *OWNERSHIP, "device", "fault")

Row = Callable[[str, str], bool]  # of the table ("fingerprints", "values") and a name


@dataclass(frozen=True)
class Common:
    """What two runs are compared in: all rows but those that are `dropped`, where they were `restarted` at different
    places from the step on in which both have begun; and which rows one of them `may_lack`. `differ` says in words
    what is not the same in their methods and recordings."""

    restarted: bool
    dropped: Row
    may_lack: Row
    differ: tuple[str, ...]


def common(a: Mapping[str, Any], b: Mapping[str, Any]) -> Common:
    """What two runs, rows of `Frames.runs` of one problem with the columns TELLING, must both have recorded."""
    if a["run"] == b["run"] and a["complete"] and b["complete"]:
        return Common(False, _nothing, _nothing, ())
    options = [json.loads(run["config"]) for run in (a, b)]
    variants = [set(json.loads(run["promises"])) for run in (a, b)]
    methods = [factors(run["method"], (*COUNTS, *OWNERSHIP)) for run in (a, b)]
    layouts = [{"size": run["size"], **factors(run["method"], ())} for run in (a, b)]
    changed = [key for key in RECORDING if _of(options[0], key) != _of(options[1], key)]
    only = tuple(f"{name}:" for name in sorted(variants[0] ^ variants[1]))
    moved = any(layouts[0].get(key) != layouts[1].get(key) for key in LAYOUT)
    others = told_apart(methods)
    restarted = _of(options[0], RESTART) != _of(options[1], RESTART)
    renumbered = bool(only) or any(key != MESSAGES for key in changed)
    early = not (a["complete"] and b["complete"])
    anything = early or any(key not in SAME_STATES for key in others)

    def dropped(table: str, name: str) -> bool:
        if moved and (OF_A_RANK.fullmatch(name) or DRIFT.fullmatch(name)):
            return True
        if moved and name.startswith(PASSING) and "arrays" in (method.get("split") for method in methods):
            return True
        if restarted and (name.startswith(INPUT) or name in COUNTED):
            return True
        return renumbered and name.startswith(PASSING)

    def may_lack(table: str, name: str) -> bool:
        if anything or dropped(table, name) or name.startswith(only):
            return True
        if name.startswith(PASSING):
            return MESSAGES in changed or bool(others)
        return any(_decides(key, table, name) for key in changed)

    words = [f"{key}: {_told(_of(options[0], key))}, {_told(_of(options[1], key))}" for key in changed]
    words += ["the layout"] if moved else []
    words += ["the variants"] if only else []
    words += ["where they continue from"] if restarted else []
    words += [f"{key}: {_told(methods[0].get(key))}, {_told(methods[1].get(key))}" for key in others]
    return Common(restarted, dropped, may_lack, tuple(words))


def _nothing(table: str, name: str) -> bool:
    return False


def _decides(option: str, table: str, name: str) -> bool:
    """Whether another value of `option` may add rows of this name or leave them out."""
    of_table, names = RECORDING[option]
    return table == of_table and names.fullmatch(name) is not None


def _of(options: dict[str, Any], key: str) -> Any:
    section, _, name = key.partition(".")
    options = options.get(section)
    return options.get(name) if isinstance(options, dict) else None


def _told(value: Any) -> str:
    return "not set" if value is None or value == "" else str(value)
