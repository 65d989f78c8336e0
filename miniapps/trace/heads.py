"""The heads of a run that is over, as its trace has them, and whether they follow from what it recorded."""

from __future__ import annotations

import itertools
import os
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from miniapps.received import Refused, contents
from miniapps.received.regular import MOST
from miniapps.received.result import read_result
from miniapps.received.sealed import read_sealed
from miniapps.received.text import printable
from miniapps.trace.chain import (
    BEGIN,
    CHECKPOINT,
    HEAD,
    NO_CHECKPOINT,
    TABLES,
    VERSION,
    Mark,
    Rows,
    ends_in,
    hash_of_checkpoint,
    next_head,
    problem_of,
)
from miniapps.trace.reader import RankTrace, read_run
from miniapps.trace.schema import TraceError

FIRST = "fpna-chain-1"  # the version of heads of traces that name none
FOLDER = "checkpoints"  # of a run
STATED = (
    "app",
    "config",
    "guarantee",
    "options",
    "problem_options",
    "repeats",
)  # attributes that a chain needs


@dataclass(frozen=True)
class Chain:
    """The heads of one repeat as its run recorded them. `begin`: the step and the head of the checkpoint that it
    continues from, -1 and the genesis of its problem where it starts anew."""

    repeat: int
    begin: tuple[int, str]
    marks: tuple[Mark, ...]


@dataclass(frozen=True)
class Broken:
    """The first head of a repeat that does not follow from what was recorded: of the steps `after` < step <= `step`."""

    mark: Mark
    after: int
    why: str


def problem_of_trace(attributes: Mapping[str, Any]) -> bytes:
    """`problem_of` of a run by the attributes of its trace."""
    return problem_of(attributes["app"], attributes["problem_options"], fingerprint_of(attributes))


def fingerprint_of(attributes: Mapping[str, Any]) -> str:
    """How the fingerprints of a trace were computed, one of `schema.FINGERPRINTS`."""
    return attributes.get("config", {}).get("run", {}).get("fingerprint", "xxh3")


def chains(trace: RankTrace) -> list[Chain]:
    """The chains in the trace of rank 0, by repeat. Raises TraceError where its rows of them are not whole."""
    if missing := [key for key in STATED if key not in trace.attributes]:
        raise TraceError(f"{trace.path}: the attribute {missing[0]} is missing; leave this run out")
    heads, checkpoints, begins = (_words(trace, name) for name in (HEAD, CHECKPOINT, BEGIN))
    if heads and (version := trace.attributes.get("chain", FIRST)) != VERSION:
        raise TraceError(
            f"{trace.path}: its heads are of version {version!r}, and this program makes those of {VERSION!r} alone; "
            "check it with the release that made it, or run it again"
        )
    genesis = problem_of_trace(trace.attributes).hex()
    begun = _begun(trace)
    found: dict[int, list[Mark]] = {}
    for (repeat, step), head in heads.items():
        found.setdefault(repeat, []).append(Mark(repeat, step, head, checkpoints.get((repeat, step), "")))
    result = []
    attributes = trace.attributes
    restarted = any(
        stated.get("effect") == "restart" and attributes["config"].get(section, {}).get(name)
        for key, stated in attributes["options"].items()
        for section, _, name in [key.partition(".")]
    )
    ended = {repeat for repeat, marks in found.items() if any(not mark.checkpoint for mark in marks)}
    if trace.complete and found and (ended != set(range(attributes["repeats"])) or restarted != bool(begun)):
        raise TraceError(f"{trace.path}: heads are missing; copy the run again, or leave it out")
    for repeat, marks in sorted(found.items()):
        marks.sort(key=lambda mark: mark.step)
        begin = (-1, genesis)
        if repeat in begun:
            begin = (begun[repeat], next((h for (r, _), h in begins.items() if r == repeat), ""))
        steps = [begin[0], *(mark.step for mark in marks)]
        open_ends = [mark for mark in marks[:-1] if not mark.checkpoint]
        if open_ends or any(a >= b for a, b in itertools.pairwise(steps)):
            raise TraceError(f"{trace.path}: its heads are not in order; copy the run again, or leave it out")
        result.append(Chain(repeat, begin, tuple(marks)))
    return result


def check(run: str | os.PathLike) -> tuple[list[Chain], list[Broken]]:
    """The chains of the directory `run`, by repeat, and where one does not follow from what was recorded, the first
    such head: from the rows of all ranks, result.json, and the checkpoints that are still there.

    Of a run that was cut off, heads are left out that are over rows of which some rank may have lost a part. Raises
    TraceError where the run cannot be read or recorded no heads.
    """
    known: list[Chain] = []
    reached: list[tuple[int, int]] = []
    digests: dict[tuple[int, int], list[bytes]] = {}  # of all ranks, by repeat and number of the head
    problem = b""
    for trace in read_run(run, tables=(*TABLES, "usage")):
        reached += [_reached(trace)] if not trace.complete else []
        if trace.attributes["rank"] == 0:
            known, problem = chains(trace), problem_of_trace(trace.attributes)
        _require_known(trace, {chain.repeat for chain in known})
        for chain in known:
            for number, own in enumerate(_taken(trace, chain)):
                digests.setdefault((chain.repeat, number), []).append(own)
    if reached:
        known = _over_whole_rows(known, min(reached))
    if not known:
        raise TraceError(
            f"{run}: no heads in its trace: it ended before the first, or is of an older version"
        )
    stated = _stated(Path(run))
    broken = []
    for chain in known:
        wrong = _follow(chain, digests, problem), _other(chain, stated), _written(Path(run), chain)
        if there := [each for each in wrong if each]:
            broken.append(min(there, key=lambda each: each.mark.step))
    return known, broken


def _reached(trace: RankTrace) -> tuple[int, int]:
    """(repeat, step) of the last row of one rank: of all steps before it nothing is missing."""
    last = (-1, -1)
    for table in (*TABLES, "usage"):
        repeat, step = trace.tables[table]["repeat"], trace.tables[table]["step"]
        if len(repeat):
            newest = int(repeat.max())
            last = max(last, (newest, int(step[repeat == newest].max())))
    return last


def _over_whole_rows(known: list[Chain], reached: tuple[int, int]) -> list[Chain]:
    """The chains with the heads before (repeat, step) `reached` alone."""
    kept = [
        replace(chain, marks=tuple(mark for mark in chain.marks if (mark.repeat, mark.step) < reached))
        for chain in known
    ]
    return [chain for chain in kept if chain.marks]


def checkpoint_file(repeat: int, step: int) -> str:
    """The name of a checkpoint in the directory of its run."""
    return f"{FOLDER}/repeat-{repeat}-step-{step:06d}.h5"


def _of_file(path: Path) -> tuple[str, str]:
    """`hash_of_checkpoint` of a file, and the head in it, in hex. Raises TraceError where it is not whole."""
    where = printable(str(path))
    try:
        image, _ = read_sealed(path, MOST, links=True)
        with contents.opened(image, where) as root:
            attributes = contents.attributes(root, where, heap=False)
            most = contents.most_bytes(image)
            arrays = {name: contents.array(root, name, where, most) for name in contents.names(root, where)}
    except (Refused, OSError) as error:
        raise TraceError(str(error)) from error
    return hash_of_checkpoint(attributes, arrays).hex(), attributes.get("chain", "")


def _follow(
    chain: Chain, digests: Mapping[tuple[int, int], Iterable[bytes]], problem: bytes
) -> Broken | None:
    after, head = chain.begin[0], bytes.fromhex(chain.begin[1])
    for number, mark in enumerate(chain.marks):
        hashed = bytes.fromhex(mark.checkpoint) or NO_CHECKPOINT
        head = next_head(head, mark.step, b"".join(digests[chain.repeat, number]), hashed, problem)
        if head.hex() != mark.head:
            return Broken(mark, after, f"the head is {mark.head}, and its rows give {head.hex()}")
        after = mark.step
    return None


def _require_known(trace: RankTrace, repeats: set[int]) -> None:
    """Raise TraceError where a finished run has rows of a repeat without heads."""
    for table in TABLES if trace.complete and repeats else ():
        if strange := set(np.unique(trace.tables[table]["repeat"]).tolist()) - repeats:
            raise TraceError(
                f"{trace.path}: rows of repeat {min(strange)}, which has no head; leave this run out"
            )


def _stated(run: Path) -> dict[tuple[int, int], Mark] | None:
    """The heads in result.json; None where there is none, as of a run that was killed."""
    try:
        result = read_result(run)
    except FileNotFoundError:
        return None
    except (Refused, OSError) as error:
        raise TraceError(str(error)) from error
    if result.status != "done":  # a failure is written by any rank, which may not know the heads
        return None
    return {(e.repeat, e.step): Mark(e.repeat, e.step, e.head, e.checkpoint) for e in result.chain}


def _other(chain: Chain, stated: Mapping[tuple[int, int], Mark] | None) -> Broken | None:
    """The first head that result.json does not have, or of which it has another."""
    after = chain.begin[0]
    for mark in chain.marks:
        if stated is not None and stated.get((mark.repeat, mark.step)) != mark:
            return Broken(mark, after, f"the head is {mark.head}, and result.json does not say so")
        after = mark.step
    return None


def _written(run: Path, chain: Chain) -> Broken | None:
    """The first checkpoint that is there and is not the one of its head."""
    after = chain.begin[0]
    for mark in chain.marks:
        path = run / checkpoint_file(mark.repeat, mark.step)
        if mark.checkpoint and path.exists() and _of_file(path) != (mark.checkpoint, mark.head):
            return Broken(mark, after, f"{path.relative_to(run)} is not the checkpoint that was written")
        after = mark.step
    return None


def _taken(trace: RankTrace, chain: Chain) -> Iterator[bytes]:
    """The digests of the rows of one rank below each head of a chain; the last takes all that follow."""
    rows = [Rows() for _ in chain.marks]
    bounds = np.array([chain.begin[0], *(mark.step for mark in chain.marks[:-1])])
    for table in TABLES:
        columns = trace.tables[table]
        own, step = columns["repeat"] == chain.repeat, ends_in(table, columns["step"])
        interval = np.searchsorted(bounds, step, side="left") - 1
        if chain.marks[-1].checkpoint:  # a run that was cut off recorded more than its last head is over
            interval[step > chain.marks[-1].step] = -1
        for number in np.unique(interval[own]).tolist():
            if number >= 0:
                here = own & (interval == number)
                rows[number].add(table, {key: column[here] for key, column in columns.items()}, trace.names)
    return (each.take() for each in rows)


def _words(trace: RankTrace, name: str) -> dict[tuple[int, int], str]:
    """{(repeat, step): 64 hex digits} of rows in two halves. Raises TraceError where one is missing."""
    halves: dict[tuple[int, int], dict[int, str]] = {}
    rows = trace.tables["fingerprints"]
    if name not in trace.names:
        return {}
    here = np.flatnonzero(rows["name"] == trace.names.index(name))
    columns: Iterable[list[int]] = (
        rows[key][here].tolist() for key in ("repeat", "step", "block", "hi", "lo")
    )
    for repeat, step, block, hi, lo in zip(*columns, strict=True):
        half = halves.setdefault((repeat, step), {})
        if block in half:
            raise TraceError(
                f"{trace.path}: {name} twice in step {step}; copy the run again, or leave it out"
            )
        half[block] = f"{hi:016x}{lo:016x}"
    if any(set(half) != {0, 1} for half in halves.values()):
        raise TraceError(f"{trace.path}: half of a {name} is missing; copy the run again, or leave it out")
    return {key: half[0] + half[1] for key, half in halves.items()}


def _begun(trace: RankTrace) -> dict[int, int]:
    """{repeat: step of the checkpoint that it continues from}."""
    rows = trace.tables["values"]
    if BEGIN not in trace.names:
        return {}
    here = rows["name"] == trace.names.index(BEGIN)
    return {
        repeat: int(step)
        for repeat, step in zip(rows["repeat"][here].tolist(), rows["value"][here].tolist(), strict=True)
        if step == step and abs(step) < 2**31
    }
