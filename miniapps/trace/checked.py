"""Checks the heads of a run: computes them again from the rows of all ranks."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from miniapps.trace.chain import TABLES, Mark, Rows, ends_in, hash_of_checkpoint, hash_of_state, next_head
from miniapps.trace.contradictions import apart, contradictions, mixed
from miniapps.trace.head import problem_hash
from miniapps.trace.heads import Chain, chains, checkpoint_file, problem_of_trace
from miniapps.trace.reader import RankTrace, in_this_process, read_run
from miniapps.trace.schema import TraceError
from miniapps.untrusted import Refused, contents
from miniapps.untrusted.regular import MOST, require_no_links
from miniapps.untrusted.result import RESULT, Result, read_result
from miniapps.untrusted.sealed import read_sealed
from miniapps.untrusted.text import printable


class Mixed(TraceError):
    """One directory holds files of several runs, or of several moments of one run; this is no sign of a forgery."""


@dataclass(frozen=True)
class Broken:
    """The first head of a repeat that does not follow from the rows of the steps `after` < step <= mark.step."""

    mark: Mark
    after: int
    why: str


@dataclass(frozen=True)
class Checked:
    """The result of checking the directory `run`.

    `attributes`: of rank 0; `stated`: names of all attributes; `chains`: the compared heads by repeat; `broken`: the
    first wrong head of each repeat; `contradictions`: between files, a sentence each; `cut`: the reason why later heads
    were not compared, empty where all were; `result`: result.json, None if the run wrote none."""

    run: Path
    attributes: dict[str, Any]
    stated: frozenset[str]
    chains: list[Chain]
    broken: list[Broken]
    contradictions: list[str]
    cut: str
    result: Result | None

    @property
    def marks(self) -> list[Mark]:
        """All heads, in their order."""
        return [mark for chain in self.chains for mark in chain.marks]


def check(run: str | os.PathLike, call: Callable[..., Any] = in_this_process) -> Checked:
    """Compute the heads of the directory `run` from the rows of all ranks, and compare them with the heads in its
    trace, in result.json, and in the remaining checkpoints. `call(function, path, *arguments)` runs every function that
    opens files.

    A run under way, or cut off, is compared up to the last head whose rows are complete in every table of every rank.
    Raises TraceError where the run cannot be read or has no head to compare, Mixed where its files are of several runs.
    """
    run = Path(run)
    result = _result(run)  # before the traces: a run under way may write it between the two reads
    ranks: list[RankTrace] = []
    known: list[Chain] = []
    digests: dict[tuple[int, int], list[bytes]] = {}  # of all ranks, by repeat and number of the head
    problem = b""
    for trace in read_run(run, tables=TABLES, call=call):
        ranks.append(replace(trace, names=[], tables={}))
        if sentence := mixed(ranks[0], trace, result):
            raise Mixed(f"mixed: {run}: {sentence}")
        if len(ranks) == 1:
            known, problem = chains(trace), problem_of_trace(trace.attributes)
        _require_known(trace, {chain.repeat for chain in known})
        for chain in known:
            for number, own in enumerate(taken(trace, chain)):
                digests.setdefault((chain.repeat, number), []).append(own)
    whole, cut = _over_whole_rows(run, known, ranks)
    done = result if result is not None and result.status == "done" else None
    broken = []
    for chain in whole:
        wrong = _follow(chain, digests, problem), _other(chain, done)
        if there := [each for each in wrong if each]:
            broken.append(min(there, key=lambda each: each.mark.step))
    if not broken:
        broken = [each for each in (_written(run, chain, call) for chain in whole) if each]
    attributes = ranks[0].attributes
    against = [sentence for trace in ranks for sentence in apart(ranks[0], trace)]
    if attributes.get("problem") != problem_hash(attributes["app"], attributes["problem_options"]):
        against.append(f"{ranks[0].path.name}: its problem is not the hash of its problem_options")
    if done is not None:
        against += contradictions(done, ranks) + _of_heads(done, whole)
    stated = frozenset().union(*(trace.attributes for trace in ranks))
    return Checked(run, attributes, stated, whole, broken, against, cut, result)


def of_checkpoint(path: Path, run: Path | None = None) -> tuple[str, str]:
    """Returns `hash_of_checkpoint` of a file, and the head in it, both in hex. Raises TraceError for a damaged file.

    `run`: the directory of the run that contains the file; links below it are refused.
    """
    where = printable(str(path))
    try:
        if run is not None:
            require_no_links(run, path.relative_to(run))
        image, _ = read_sealed(path, MOST, links=run is None)
        with contents.opened(image, where) as root:
            attributes = contents.attributes(root, where, heap=False)
            room = contents.Room(image)
            arrays = {name: contents.array(root, name, where, room) for name in contents.names(root, where)}
        if not isinstance(head := attributes.get("chain", ""), str):
            raise Refused(f"{where}: its head is a number, not text; leave it out")
    except (Refused, OSError) as error:
        raise TraceError(str(error)) from error
    return hash_of_checkpoint(attributes, arrays).hex(), head


def _result(run: Path) -> Result | None:
    try:
        return read_result(run)
    except FileNotFoundError:
        return None
    except (Refused, OSError) as error:
        raise TraceError(str(error)) from error


def _over_whole_rows(run: Path, known: list[Chain], ranks: list[RankTrace]) -> tuple[list[Chain], str]:
    """Returns the chains up to the last head with complete rows on every rank, and the reason for the limit."""
    made = sum(len(chain.marks) for chain in known)
    if not made:
        raise TraceError(f"{run}: no head in its trace: it ended before the first, or has not reached it yet")
    open_ones = [(trace.at, trace.attributes["rank"]) for trace in ranks if trace.at is not None]
    if open_ones:
        at, rank = min(open_ones)
        parts = [
            replace(chain, marks=tuple(mark for mark in chain.marks if (mark.repeat, mark.step) < at))
            for chain in known
        ]
        known = [chain for chain in parts if chain.marks]
        why = f"the run goes on or was cut off, and rank {rank} had written only the rows up to step {at[1]}"
        why += f" of repeat {at[0]}" if ranks[0].attributes["repeats"] > 1 else ""
        if not known:
            raise TraceError(
                f"{run}: no head can be compared: {why}, before the first of {made}; check again when it has written "
                "more"
            )
    elif all(trace.complete for trace in ranks):
        return known, ""
    else:
        why = "the run ended early"
    last = known[-1].marks[-1]
    left = made - sum(len(chain.marks) for chain in known)
    none = f"; {left} later heads are not compared" if left else ""
    return known, f"Compared up to step {last.step}: {why}{none}."


def _follow(
    chain: Chain, digests: Mapping[tuple[int, int], Iterable[bytes]], problem: bytes
) -> Broken | None:
    after, head = chain.begin[0], bytes.fromhex(chain.begin[1])
    for number, mark in enumerate(chain.marks):
        kept = bytes.fromhex(mark.checkpoint or mark.state)
        head = next_head(head, mark.step, b"".join(digests[chain.repeat, number]), kept, problem)
        if head.hex() != mark.head:
            return Broken(mark, after, f"the head is {mark.head}, and its rows give {head.hex()}")
        after = mark.step
    return None


def _require_known(trace: RankTrace, repeats: set[int]) -> None:
    """Raise TraceError if a finished run has rows of a repeat without heads."""
    for table in TABLES if trace.complete and repeats else ():
        if strange := set(np.unique(trace.tables[table]["repeat"]).tolist()) - repeats:
            raise TraceError(
                f"{trace.path}: rows of repeat {min(strange)}, which has no head; leave this run out"
            )


def _other(chain: Chain, result: Result | None) -> Broken | None:
    """The first head that result.json lacks or contradicts."""
    stated = {} if result is None else {(each.repeat, each.step): each.head for each in result.chain}
    after = chain.begin[0]
    for mark in chain.marks:
        if result is not None and stated.get((mark.repeat, mark.step)) != mark.head:
            return Broken(mark, after, f"the head is {mark.head}, and {RESULT} does not list it")
        after = mark.step
    return None


def _of_heads(result: Result, known: list[Chain]) -> list[str]:
    """Contradictions between the heads and final states in `result` and the heads in the trace, a sentence each."""
    marks = [mark for chain in known for mark in chain.marks]
    stated = [(each.repeat, each.step, each.head, each.checkpoint, each.state) for each in result.chain]
    sentences = []
    if sorted(stated) != sorted((m.repeat, m.step, m.head, m.checkpoint, m.state) for m in marks):
        sentences.append(f"{RESULT} lists other heads than the trace of rank 0")
    for mark in marks:
        state = result.fingerprints[mark.repeat] if mark.repeat < len(result.fingerprints) else ""
        if mark.state and hash_of_state(state).hex() != mark.state:
            sentences.append(
                f"{RESULT} says that the final state of repeat {mark.repeat} is {state or 'none'}, and the head of "
                f"step {mark.step} covers another"
            )
    return sentences


def _written(run: Path, chain: Chain, call: Callable[..., Any]) -> Broken | None:
    """The first existing checkpoint whose hash is not the one in its head. Raises Mixed where it holds another head."""
    after = chain.begin[0]
    for mark in chain.marks:
        path = run / checkpoint_file(mark.repeat, mark.step)
        if mark.checkpoint and os.path.lexists(path):
            kept, head = call(of_checkpoint, path, run)
            name = path.relative_to(run)
            if head != mark.head:
                has = f"has the head {printable(head)}" if head else "has no head"
                raise Mixed(
                    f"mixed: {run}: {name} {has}, and this run's is {mark.head}: the file is of another run, or of "
                    "another step; copy the checkpoints of this run again, or remove the file"
                )
            if kept != mark.checkpoint:
                return Broken(mark, after, f"{name} is not the checkpoint that was written")
        after = mark.step
    return None


def taken(trace: RankTrace, chain: Chain) -> Iterator[bytes]:
    """The digests of the rows of one rank under each head of a chain; the last head covers all rows that follow."""
    rows = [Rows() for _ in chain.marks]
    bounds = np.array([chain.begin[0], *(mark.step for mark in chain.marks[:-1])])
    for table in TABLES:
        columns = trace.tables[table]
        own, step = columns["repeat"] == chain.repeat, ends_in(table, columns["step"])
        interval = np.searchsorted(bounds, step, side="left") - 1
        if not chain.marks[-1].state:  # a run that was cut off recorded rows after its last head
            interval[step > chain.marks[-1].step] = -1
        for number in np.unique(interval[own]).tolist():
            if number >= 0:
                here = own & (interval == number)
                rows[number].add(table, {key: column[here] for key, column in columns.items()}, trace.names)
    return (each.take() for each in rows)
