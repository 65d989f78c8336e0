"""One limit of what runs support, as a rule of lint finds it."""

from __future__ import annotations

from dataclasses import dataclass

# How much a limit weighs: the numbers are wrong; a claim does not follow from them; worth knowing.
ERROR, WARNING, NOTE = "error", "warning", "note"
SEVERITIES = (ERROR, WARNING, NOTE)


@dataclass(frozen=True)
class Limit:
    """`fact` says what is so and `remedy` what to do; `where` names the runs, `section` the id of a part of the
    report."""

    severity: str
    section: str
    where: str
    fact: str
    remedy: str
