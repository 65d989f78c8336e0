"""Compares two certificates: machine, software, statements and cases."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pandas as pd

from analysis.studies.audits.certificates import Audits
from analysis.studies.contract import frame
from kernels.as_json import Column
from kernels.torchops.verdicts import WHAT
from miniapps.untrusted.certificate import Case, Certificate

COMPARED = {name: Column("str") for name in ("run", "against", "what", "first", "other")}


def compared(known: Audits) -> pd.DataFrame:
    """Each certificate against the first, a row per difference; columns COMPARED: versions, machine, new or removed
    statements of the documentation, then cases that differ in their bits by one thread, in their sensitivity to a
    change, or in their outcome."""
    runs = list(known.certificates)
    rows = []
    for run in runs[1:]:
        for what, a, b in differences(known.certificates[runs[0]], known.certificates[run]):
            rows.append({"run": run, "against": runs[0], "what": what, "first": a, "other": b})
    return frame(rows, COMPARED)


def differences(a: Certificate, b: Certificate) -> Iterator[tuple[str, str, str]]:
    """(name, first value, other value) of each difference."""
    for key in sorted({*a.software, *b.software}):
        if a.software.get(key) != b.software.get(key) and key != "configuration":
            yield key, a.software.get(key, ""), b.software.get(key, "")
    for key in ("cpu", "cores", "accelerator"):
        if a.machine.get(key) != b.machine.get(key):
            first, other = (
                "" if each.machine.get(key) is None else str(each.machine[key]) for each in (a, b)
            )
            yield key, first, other
    for key in ("device", "seed", "runs"):
        if getattr(a, key) != getattr(b, key):
            yield key, str(getattr(a, key)), str(getattr(b, key))
    texts = {s.text for s in a.statements}, {s.text for s in b.statements}
    yield from (("statement", text, "gone") for text in sorted(texts[0] - texts[1]))
    yield from (("statement", "not there", text) for text in sorted(texts[1] - texts[0]))
    ours, theirs = ({case.name: case for case in each.cases} for each in (a, b))
    for name in ours:
        if name not in theirs:
            yield f"case {name}", "audited", "not there"
        else:
            yield from _of_case(ours[name], theirs[name])
    yield from ((f"case {name}", "not there", "audited") for name in theirs if name not in ours)


def _of_case(a: Case, b: Case):
    if a.audit is None or b.audit is None:
        if a.outcome != b.outcome:
            yield f"{a.name}: outcome", a.outcome, b.outcome
        return
    if a.audit.digest != b.audit.digest:
        yield f"{a.name}: bits by one thread", a.audit.digest[:8], b.audit.digest[:8]
    for change, what in WHAT.items():
        first, other = _seen(getattr(a.audit, change)), _seen(getattr(b.audit, change))
        if first[0] != other[0]:
            yield f"{a.name}: {what}", first[1], other[1]


def _seen(change: Any) -> tuple[bool | None, str]:
    if change is None:
        return None, "not tried"
    return change.distinct > 1, f"{change.distinct} of {change.trials}"
