"""A limit of the conclusions from runs, as a rule of lint finds it."""

from __future__ import annotations

from dataclasses import dataclass

# Severities: the numbers are wrong; a claim does not follow from them; worth knowing.
ERROR, WARNING, NOTE = "error", "warning", "note"
SEVERITIES = (ERROR, WARNING, NOTE)


@dataclass(frozen=True)
class Limit:
    """A limit: `fact` states it and `remedy` advises; `where` names the runs, `section` is the id of a section of the
    report."""

    severity: str
    section: str
    where: str
    fact: str
    remedy: str
