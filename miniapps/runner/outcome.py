"""The outcome of a repeat, and the printed lines and result.json made from it."""

from __future__ import annotations

import statistics
from dataclasses import dataclass, field
from typing import Any

from miniapps.system.place import Place
from miniapps.untrusted.result import RESULT, written


@dataclass(frozen=True)
class Check:
    """One verified property of a finished repeat."""

    name: str
    passed: bool
    detail: str = ""


@dataclass(frozen=True)
class Outcome:
    """The outcome of one repeat: figures of merit {name: (value, unit)}, checks, the fingerprint of the final state in
    hex, and sentences that state further results. The run uses the outcome of rank 0."""

    fom: dict[str, tuple[float, str]] = field(default_factory=dict)
    checks: list[Check] = field(default_factory=list)
    fingerprint: str = ""
    sentences: list[str] = field(default_factory=list)


def all_checks(outcomes: list[Outcome], guarantee: str) -> list[dict[str, Any]]:
    """The checks of all repeats and, where the guarantee promises equal repeats, the check `repeats`."""
    checks = [
        {"name": check.name, "passed": bool(check.passed), "detail": check.detail, "repeat": repeat}
        for repeat, outcome in enumerate(outcomes)
        for check in outcome.checks
    ]
    prints = [outcome.fingerprint for outcome in outcomes]
    if guarantee != "none" and len(prints) > 1:
        same = len(set(prints)) == 1
        detail = f"{len(set(prints))} different states in {len(prints)} repeats under --guarantee {guarantee}"
        checks.append({"name": "repeats", "passed": same, "detail": "" if same else detail, "repeat": -1})
    return checks


def figures(outcomes: list[Outcome]) -> dict[str, dict[str, Any]]:
    """{name: value (median over repeats), unit, values (one per repeat)}."""
    merged = {}
    for name, (_, unit) in outcomes[0].fom.items():
        values = [float(outcome.fom[name][0]) for outcome in outcomes]
        merged[name] = {"value": statistics.median(values), "unit": unit, "values": values}
    return merged


def sentences(outcomes: list[Outcome]) -> list[str]:
    """The sentences of all repeats, each with the number of its repeat if there are several."""
    several = len(outcomes) > 1
    return [
        f"{sentence} (repeat {repeat})" if several else sentence
        for repeat, outcome in enumerate(outcomes)
        for sentence in outcome.sentences
    ]


def lines(result: dict[str, Any]) -> list[str]:
    """The stable lines of a finished run, with a note if repeats differ under guarantee none; without a verdict if its
    traces were lost."""
    several = len(result["fingerprints"]) > 1
    shown = list(result["sentences"])
    shown += [f"FOM {name}={fom['value']:.6g} {fom['unit']}".rstrip() for name, fom in result["fom"].items()]
    for repeat, print_ in enumerate(result["fingerprints"]):
        if print_:
            shown.append(f"FINGERPRINT state={print_}" + (f" repeat={repeat}" if several else ""))
    failed = [check for check in result["checks"] if not check["passed"]]
    for check in failed:
        where = f" (repeat {check['repeat']})" if several and check["repeat"] >= 0 else ""
        shown.append(f"CHECK FAIL {check['name']}{where}: {check['detail']}")
    if (states := len(set(result["fingerprints"]))) > 1 and result["guarantee"] == "none":
        shown.append(
            f"NOTE {len(result['fingerprints'])} repeats have {states} different states: --guarantee none promises "
            "nothing; --guarantee run promises equal repeats"
        )
    if over := result["holds_over"]:
        shown.append(f"HOLDS over {over}")
    if result["status"] == "done":
        shown.append(_checked(result["checks"]))
        shown.append(f"VERIFICATION: {'FAIL' if failed else 'PASS'}{_unpromised(result)}")
        shown.append(f"RUN {result['run']}")
    return shown


def _unpromised(result: dict[str, Any]) -> str:
    """The end of the verdict if ranks were of several kinds, for which no guarantee promises anything; else empty."""
    count, guarantee = len(result.get("kinds", ())), result["guarantee"]
    if count < 2 or guarantee == "none":
        return ""
    return f" (ranks of {count} kinds, for which {guarantee} promises nothing)"


def _checked(checks: list[dict[str, Any]]) -> str:
    """The line CHECKS: the names of the checks, and how to compare runs, which no check does."""
    names = list(dict.fromkeys(check["name"] for check in checks))
    passed = sum(check["passed"] for check in checks)
    of = f"{passed} of {len(checks)} passed: {', '.join(names)}" if checks else "none for this run"
    return f"CHECKS {of}; to know whether another run has the same bits, compare the two (fpna divergence)"


def write(place: Place, result: dict[str, Any]) -> None:
    """Write RUN/result.json in one piece. Raises OSError, and FileExistsError if the file exists: the first rank to
    write it reports for the run."""
    place.write(RESULT, written(result))
