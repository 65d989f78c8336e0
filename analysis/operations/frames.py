"""Certificates of audits as frames."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
import pandas as pd

from analysis.load.frames import Frames
from kernels.torchops.verdicts import WHAT, differs, helped, throws, verdicts
from miniapps.received.certificate import CERTIFICATE, Certificate, read_certificate
from miniapps.received.regular import Refused

CHANGES = (*WHAT, "algorithm")  # the last: torch's deterministic mode, compared by one call of one thread
CASES = {"run": "str", "case": "str", "operation": "str", "direction": "str", "factors": "str", "outcome": "str",
         "error": "str", "digest": "str", "differs": "bool", "mode": "str", "seconds": "float64",
         "seconds_in_mode": "float64"}  # fmt: skip
SEEN = {"run": "str", "case": "str", "operation": "str", "direction": "str", "change": "str", "trials": "int64",
        "distinct": "int64", "bound": "float64", "v_c": "float64", "v_ermv": "float64", "ulp": "float64",
        "values": "bool"}  # fmt: skip
STATED = {"run": "str", "operation": "str", "does": "str", "backward": "bool", "verdict": "str", "cases": "int64",
          "seen": "int64", "trials": "int64", "mode": "str", "why": "str", "text": "str"}  # fmt: skip


@dataclass(frozen=True)
class Audits:
    """`certificates` by the label of their run; `cases`: one row per case; `seen`: per case and change; `stated`: what
    became of every statement of the documentation, and of what differs without one (`does` empty). `problems`: (path,
    why) of certificates that cannot be used."""

    certificates: dict[str, Certificate]
    cases: pd.DataFrame
    seen: pd.DataFrame
    stated: pd.DataFrame
    problems: list[str]


def audits(frames: Frames) -> Audits:
    """The certificates of the runs of `frames`; of a run with several repeats that of the first."""
    certificates: dict[str, Certificate] = {}
    problems = []
    for run, path in frames.runs[["run", "path"]].drop_duplicates().itertuples(index=False):
        try:
            certificates[run] = read_certificate(Path(path) / CERTIFICATE)
        except FileNotFoundError:
            continue
        except (Refused, OSError) as error:
            problems.append(str(error))
    rows = [(run, msgspec.to_builtins(each)) for run, each in certificates.items()]
    return Audits(
        certificates,
        frame(CASES, [_case(run, case) for run, each in rows for case in each["cases"]]),
        frame(SEEN, [row for run, each in rows for case in each["cases"] for row in _seen(run, case)]),
        frame(STATED, [
            {"run": run, **verdict.as_dict(), "does": verdict.does or "", "mode": verdict.mode or ""}
            for run, each in rows
            for verdict in verdicts(each["statements"], each["cases"], each["device"])
        ]),
        problems,
    )  # fmt: skip


def named(row: Any) -> str:
    """`backward of take`, or `take`, of a row that has an operation and a direction."""
    return f"backward of {row.operation}" if row.direction == "backward" else str(row.operation)


def frame(columns: dict[str, str], rows: list[dict[str, Any]]) -> pd.DataFrame:
    """Rows as a frame with these columns and types."""
    return pd.DataFrame(rows, columns=list(columns)).astype(columns)


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


def _seen(run: str, case: dict[str, Any]) -> list[dict[str, Any]]:
    if case["audit"] is None:
        return []
    changes = {change: case["audit"][change] for change in WHAT} | {
        "algorithm": case["audit"]["mode"]["algorithm"]
    }
    head = {"run": run, "case": case["name"], "operation": case["operation"], "direction": case["direction"]}
    keys = ("trials", "distinct", "bound", "v_c", "v_ermv", "ulp", "values")
    return [
        {**head, "change": change, **{key: seen[key] for key in keys}}
        for change, seen in changes.items()
        if seen is not None
    ]
