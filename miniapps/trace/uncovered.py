"""Lists the parts of a run that no head covers, so that nothing would reveal a change of them."""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from miniapps.trace.chain import HASHED
from miniapps.trace.checked import Checked
from miniapps.trace.heads import checkpoint_file
from miniapps.trace.reader import FILES
from miniapps.trace.records import NODE, PASSING, WRONG
from miniapps.trace.schema import TABLES
from miniapps.untrusted.result import RESULT, UNSTATED, WORDS
from miniapps.untrusted.text import printable

KEY = ("repeat", "step", "name", "block")  # columns that identify every row
# Attributes that a head covers, or whose change a reader refuses: problem is the hash of problem_options.
ATTRIBUTES = ("format", "schema", "app", "problem", "problem_options", "chain")
# Keys of result.json that are compared with parts under a head.
RESULTS = ("app", "problem", "chain", "fingerprints", *UNSTATED)
MEANING = {
    "sizes": "sizes of arrays",
    "events": "times", "usage": "CPU time", "choices": "choices by a clock", "after": "the order in which a rank "
    "recorded them",
}  # fmt: skip
FILES_MOST = 1000  # named files


@dataclass(frozen=True)
class Uncovered:
    """A part that no head covers. `kind`: table, column, rows, attribute, result, file, steps, interval or heads;
    `name`: which one; `what`: its description, empty if the name says it."""

    kind: str
    name: str
    what: str = ""


def uncovered(checked: Checked) -> list[Uncovered]:
    """The parts of the files of a run that no head covers."""
    found = [Uncovered("table", table, MEANING.get(table, "")) for table in TABLES if table not in HASHED]
    for table, hashed in HASHED.items():
        known = {*KEY, *(column for column, _ in hashed)}
        found += [
            Uncovered("column", f"{table}.{column}", MEANING.get(column, ""))
            for column in TABLES[table]
            if column not in known
        ]
    found += [Uncovered("rows", f"{prefix}*", "what passes between states") for prefix in PASSING]
    found += [
        Uncovered("rows", f"{NODE}*", "nodes of a plan"),
        Uncovered("rows", WRONG, "ranks found wrong"),
        Uncovered("attribute", "tracer", "the cost of tracing"),
    ]
    found += [Uncovered("attribute", key) for key in sorted(checked.stated) if key not in ATTRIBUTES]
    if checked.result is not None:
        keys = sorted(key for key in checked.result.parts if key not in RESULTS)
        found += [Uncovered("result", key, WORDS.get(key, "")) for key in keys]
    found += [Uncovered("file", name) for name in _files(checked)]
    begins = {chain.begin[0] for chain in checked.chains if chain.begin[0] >= 0}
    found += [
        Uncovered("steps", f"up to {step}", "steps before the checkpoint from which the run continues")
        for step in begins
    ]
    if checked.cut:
        found.append(Uncovered("steps", f"after {checked.marks[-1].step}", "after the last compared head"))
    return found


def sentences(found: Iterable[Uncovered]) -> list[str]:
    """`found` in a few lines of text."""
    of: dict[str, list[Uncovered]] = {}
    for each in found:
        of.setdefault(each.kind, []).append(each)
    tables = [f"{each.name} ({each.what})" if each.what else each.name for each in of.get("table", ())]
    lines = [
        f"Not covered: tables {', '.join(tables)}; rows {', '.join(each.name for each in of.get('rows', ()))}; "
        f"attributes other than {', '.join(ATTRIBUTES)}, and so ranks, method and environment"
    ]
    if "result" in of:
        words = dict.fromkeys(each.what or each.name for each in of["result"])
        most = [word for word in ("figures of merit", "checks", "times") if word in words]
        lines.append(f"of {RESULT} all but heads and final states, and so {', '.join(most)}")
    if files := [printable(each.name) for each in of.get("file", ())]:
        more = f" and {len(files) - 4} more" if len(files) > 4 else ""
        lines.append(f"files {', '.join(files[:4])}{more}")
    lines += [f"steps {each.name}: {each.what}" for each in of.get("steps", ())]
    if intervals := of.get("interval"):
        lines.append(f"{len(intervals)} intervals that were not executed again")
    return ["; ".join(lines) + "."] + [each.what for each in of.get("heads", ())]


def _files(checked: Checked) -> list[str]:
    """Files of the run that are neither traces nor result.json nor checkpoints of its heads, sorted."""
    known = {RESULT, *(checkpoint_file(mark.repeat, mark.step) for mark in checked.marks if mark.checkpoint)}
    names = []
    for folder, inner, files in os.walk(checked.run):
        inner[:] = sorted(
            name for name in inner if name != ".analysis"
        )  # the analysis alone trusts its cache
        for name in sorted(files):
            path = Path(folder, name).relative_to(checked.run).as_posix()
            if path not in known and not ("/" not in path and FILES.fullmatch(name)):
                names.append(path)
        if len(names) > FILES_MOST:
            break
    return names[:FILES_MOST]
