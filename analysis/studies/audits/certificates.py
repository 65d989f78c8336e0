"""Reads certificates of audits as frames."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import msgspec
import pandas as pd

from analysis.certificates import certificates
from analysis.load.frames import Frames
from analysis.studies.contract import frame
from kernels.as_json import Column
from kernels.torchops.verdicts import WHAT, differs, helped, throws, verdicts
from miniapps.untrusted.certificate import Certificate

CHANGES = (
    *WHAT,
    "algorithm",
)  # "algorithm": torch's deterministic mode against none, one call of one thread each
CASES = {
    "run": Column("str"), "case": Column("str"), "operation": Column("str"), "direction": Column("str"),
    "factors": Column("str"), "outcome": Column("str", "`done`, `refused`, `crashed`, `hung`"), "error": Column("str"),
    "digest": Column("str", "of the bits by one thread"), "differs": Column("bool", "from run to run"),
    "mode": Column("str", "effect of torch's deterministic mode: `helps`, `does not help`, `throws`, or empty"),
    "seconds": Column("float64", "median of a call", "s"),
    "seconds_in_mode": Column("float64", "the same in the deterministic mode", "s"),
}  # fmt: skip
SEEN = {
    "run": Column("str"), "case": Column("str"), "operation": Column("str"), "direction": Column("str"),
    "change": Column("str"), "trials": Column("int64", "calls"), "distinct": Column("int64", "results with other bits"),
    "bound": Column("float64", "if nothing differed: upper bound of the probability of a difference, at 95 %"),
    "v_c": Column("float64", "the largest against the first result"), "v_ermv": Column("float64", "the same"),
    "ulp": Column("float64", "the same", "ULP"), "values": Column("bool", "a difference is beyond rounding"),
}  # fmt: skip
LAYERS = {
    "run": Column("str"), "case": Column("str"), "operation": Column("str"), "direction": Column("str"),
    "held": Column("str", "layer, and the level that it was held to"), "differs": Column("bool", "from its own code"),
}  # fmt: skip
STATED = {
    "run": Column("str"), "operation": Column("str"),
    "does": Column("str", "`acts`, `throws`, or empty without a statement"), "backward": Column("bool"),
    "verdict": Column("str"), "cases": Column("int64"), "seen": Column("int64", "cases that differ between runs"),
    "trials": Column("int64", "calls"), "mode": Column("str"), "why": Column("str"), "text": Column("str"),
}  # fmt: skip


@dataclass(frozen=True)
class Audits:
    """`certificates` {label of a run: certificate}; `cases`: a row per case; `seen`: a row per case and change;
    `layers`: a row per case and library that was held to code for another processor; `stated`: a row with the verdict
    on each statement of the documentation, and on each operation that differs without a statement (`does` is empty).
    `problems`: a sentence on each unusable certificate."""

    certificates: dict[str, Certificate]
    cases: pd.DataFrame
    seen: pd.DataFrame
    layers: pd.DataFrame
    stated: pd.DataFrame
    problems: list[str]


def audits(frames: Frames) -> Audits:
    """The certificates of the runs of `frames`, one per launch."""
    found, problems = certificates(frames)
    rows = [(run, msgspec.to_builtins(each)) for run, each in found.items()]
    return Audits(
        found,
        frame([_case(run, case) for run, each in rows for case in each["cases"]], CASES),
        frame([row for run, each in rows for case in each["cases"] for row in _seen(run, case)], SEEN),
        frame([row for run, each in rows for case in each["cases"] for row in _layers(run, case)], LAYERS),
        frame([
            {"run": run, **verdict.as_dict(), "does": verdict.does or "", "mode": verdict.mode or ""}
            for run, each in rows
            for verdict in verdicts(each["statements"], each["cases"], each["device"])
        ], STATED),
        problems,
    )  # fmt: skip


def named(row: Any) -> str:
    """`backward of take`, or `take`, from the operation and direction of a row."""
    return f"backward of {row.operation}" if row.direction == "backward" else str(row.operation)


def _case(run: str, case: dict[str, Any]) -> dict[str, Any]:
    audit = case["audit"]
    mode = audit["mode"] if audit else {"seconds": [None, None]}
    does = "" if not audit else "throws" if throws(case) else helped(case) if differs(case) else ""
    return {
        "run": run, "case": case["name"], "operation": case["operation"], "direction": case["direction"],
        "factors": " ".join(f"{key}={value}" for key, value in case["factors"].items()),
        "outcome": case["outcome"], "error": case["error"] or "", "digest": audit["digest"] if audit else "",
        "differs": differs(case), "mode": does, "seconds": mode["seconds"][0], "seconds_in_mode": mode["seconds"][1],
    }  # fmt: skip


def _head(run: str, case: dict[str, Any]) -> dict[str, Any]:
    return {"run": run, "case": case["name"], "operation": case["operation"], "direction": case["direction"]}


def _layers(run: str, case: dict[str, Any]) -> list[dict[str, Any]]:
    seen = (case["audit"] or {}).get("cpu") or {}
    return [
        _head(run, case) | {"held": held, "differs": distinct > 1}
        for held, distinct in (seen.get("by") or {}).items()
    ]


def _seen(run: str, case: dict[str, Any]) -> list[dict[str, Any]]:
    if case["audit"] is None:
        return []
    changes = {change: case["audit"][change] for change in WHAT} | {
        "algorithm": case["audit"]["mode"]["algorithm"]
    }
    keys = ("trials", "distinct", "bound", "v_c", "v_ermv", "ulp", "values")
    return [
        {**_head(run, case), "change": change, **{key: seen[key] for key in keys}}
        for change, seen in changes.items()
        if seen is not None
    ]
