"""Finds contradictions between files of a run: the files come from several runs, or one was changed.

result.json holds the seals of the traces, and the trace of rank 0 the hash of each part of result.json. The values that
both state are compared too, so that a message can name them.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Any, Protocol

from miniapps.trace.heads import are_all
from miniapps.untrusted.result import RESULT, Result, differing_parts
from miniapps.untrusted.text import printable

SAME = (
    "run_id",
    "app",
    "problem",
    "size",
    "guarantee",
    "seed",
    "repeats",
)  # values in result.json and in traces
OF_ALL = (
    "app",
    "problem",
    "problem_options",
    "size",
    "guarantee",
    "seed",
    "repeats",
)  # equal in the traces of all ranks
ENDED = (0, 3)  # exit codes of a finished run: all checks passed, or one failed
WHOLE = "copy the whole directory of one run again"


class OfRank(Protocol):
    """The trace of one rank, or a part of it; `digest`: the seal of its file, empty if the file was never closed."""

    @property
    def path(self) -> Path: ...
    @property
    def attributes(self) -> dict[str, Any]: ...
    @property
    def digest(self) -> str: ...


def mixed(first: OfRank, trace: OfRank, result: Result | None) -> str:
    """The reason why the `trace` of a rank is from another run or another moment than the trace of rank 0, `first`, or
    than result.json; empty if nothing shows that."""
    ours, here = first.attributes.get("run_id"), printable(trace.path.name)
    if (theirs := trace.attributes.get("run_id")) != ours:
        return f"{here} is of the run {_id(theirs)}, {printable(first.path.name)} of {_id(ours)}; {WHOLE}"
    if result is not None and result.run_id != ours:
        return f"{RESULT} is of the run {_id(result.run_id)}, {here} of {_id(ours)}; {WHOLE}"
    if result is not None and result.status == "done" and not trace.digest:
        return f"{here} is from before the end of the run, {RESULT} from its end; {WHOLE}"
    return ""


def contradictions(result: Result, heads: Sequence[OfRank], recorded: Collection[int] = ()) -> list[str]:
    """The statements of `result` that the traces of its run contradict, a sentence each. `heads`: traces of all usable
    ranks, lowest first; `recorded`: the repeats with rows, empty if unknown."""
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
    if "result" in stated and (parts := differing_parts(result, stated["result"])):
        sentences.append(f"{RESULT} has other {parts} than the trace of rank {stated['rank']} states")
    failed = sum(not check.passed for check in result.checks)
    if (result.exit_code == 0) == bool(failed):
        sentences.append(f"{RESULT} says exit code {result.exit_code} and names {failed} checks that failed")
    early = next((head for head in heads if not head.attributes["complete"]), None)
    if early is not None:
        rank = early.attributes["rank"]
        sentences.append(f"{RESULT} says that the run is done, the trace of rank {rank} that it ended early")
    repeats = stated.get("repeats")
    if repeats and result.fingerprints and len(result.fingerprints) != repeats:
        sentences.append(
            f"{RESULT} has {len(result.fingerprints)} final states, the traces have {repeats} repeats"
        )
    if repeats and recorded and early is None and not are_all(set(recorded), repeats):
        sentences.append(
            f"{RESULT} says that the run is done, the traces hold {len(recorded)} of {repeats} repeats"
        )
    return sentences


def apart(first: OfRank, trace: OfRank) -> list[str]:
    """The values of the whole run that differ between the `trace` of a rank and rank 0's, `first`, a sentence each."""
    return [
        f"{printable(trace.path.name)} has another {key} than {printable(first.path.name)}"
        for key in OF_ALL
        if trace.attributes.get(key) != first.attributes.get(key)
    ]


def _id(run_id: Any) -> str:
    return printable(str(run_id)) if run_id else "(no name)"
