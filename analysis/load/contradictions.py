"""Where result.json says something else than the traces beside it: one of them is of another run, or was changed.

The seals of the traces in result.json bind the two; what is compared here is what both say in words.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from analysis.load.rankfile import Head
from miniapps.received.result import RESULT, Result
from miniapps.received.text import printable

SAME = ("run_id", "app", "problem", "size", "guarantee", "seed", "repeats")  # what both name
ENDED = (0, 3)  # exit codes of a run that came to its end: all checks passed, or one failed


def contradictions(result: Result, heads: Sequence[Head], recorded: Collection[int]) -> list[str]:
    """What `result` says that the traces of its run contradict, a sentence each. `heads`: of all usable ranks;
    `recorded`: the repeats of which there are rows."""
    stated = heads[0].attributes
    known = {key: getattr(result, key) for key in SAME}
    sentences = [
        f"{RESULT} says {key} {printable(str(value))}, the traces {printable(str(stated[key]))}"
        for key, value in known.items()
        if value not in (None, "", 0) and key in stated and value != stated[key]
    ]
    if (result.exit_code in ENDED) != (result.status == "done"):
        sentences.append(f"{RESULT} says both {printable(result.status)} and exit code {result.exit_code}")
    if result.status != "done":
        return sentences
    changed = sorted({head.path.name for head in heads if result.traces.get(head.path.name) != head.digest})
    if changed:
        sentences.append(f"{RESULT} was written for another {changed[0]}")
    failed = sum(not check.passed for check in result.checks)
    if (result.exit_code == 0) == bool(failed):
        sentences.append(f"{RESULT} says exit code {result.exit_code} and names {failed} checks that failed")
    early = next((head.rank for head in heads if not head.attributes["complete"]), None)
    if early is not None:
        sentences.append(f"{RESULT} says that the run is done, the trace of rank {early} that it ended early")
    repeats = stated.get("repeats")
    if repeats and result.fingerprints and len(result.fingerprints) != repeats:
        sentences.append(
            f"{RESULT} has {len(result.fingerprints)} final states, the traces are of {repeats} repeats"
        )
    if repeats and recorded and early is None and set(recorded) != set(range(repeats)):
        sentences.append(
            f"{RESULT} says that the run is done, the traces hold {len(recorded)} of {repeats} repeats"
        )
    return sentences
