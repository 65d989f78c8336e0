"""The heads in the trace of rank 0; `checked` computes them again from the records of all ranks."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from miniapps.trace.chain import BEGIN, CHECKPOINT, HEAD, STATE, VERSION, Mark, problem_of
from miniapps.trace.reader import RankTrace
from miniapps.trace.schema import TraceError

FIRST = "fpna-chain-1"  # version of the heads in a trace that names none
FOLDER = "checkpoints"  # of a run
STATED = (
    "app",
    "config",
    "guarantee",
    "options",
    "problem_options",
    "repeats",
    "run_id",
)  # attributes that a chain needs


@dataclass(frozen=True)
class Chain:
    """The recorded heads of one repeat. `begin`: (step, head) of the checkpoint from which it continues, or (-1, hash
    of its problem) for a new chain."""

    repeat: int
    begin: tuple[int, str]
    marks: tuple[Mark, ...]


def problem_of_trace(attributes: Mapping[str, Any]) -> bytes:
    """`problem_of` the run with these attributes."""
    return problem_of(attributes["app"], attributes["problem_options"], fingerprint_of(attributes))


def fingerprint_of(attributes: Mapping[str, Any]) -> str:
    """The kind of fingerprints in a trace, one of `schema.FINGERPRINTS`."""
    return attributes.get("config", {}).get("run", {}).get("fingerprint", "xxh3")


def chains(trace: RankTrace) -> list[Chain]:
    """The chains in the trace of rank 0, by repeat. Raises TraceError if rows of heads are missing or not in order."""
    if missing := [key for key in STATED if key not in trace.attributes]:
        raise TraceError(f"{trace.path}: the attribute {missing[0]} is missing; leave this run out")
    heads, checkpoints, states, begins = (_words(trace, name) for name in (HEAD, CHECKPOINT, STATE, BEGIN))
    if heads and (version := trace.attributes.get("chain", FIRST)) != VERSION:
        raise TraceError(
            f"{trace.path}: its heads have version {version!r}, and this program knows only {VERSION!r}; check it with "
            "the release that wrote it, or run it again"
        )
    genesis = problem_of_trace(trace.attributes).hex()
    begun = _begun(trace)
    found: dict[int, list[Mark]] = {}
    if heads.keys() != checkpoints.keys() ^ states.keys():
        raise TraceError(
            f"{trace.path}: a head without the hash of its checkpoint or state; copy the run again, or leave it out"
        )
    for place, head in heads.items():
        mark = Mark(*place, head, checkpoints.get(place, ""), states.get(place, ""))
        found.setdefault(mark.repeat, []).append(mark)
    result = []
    attributes = trace.attributes
    restarted = any(
        stated.get("effect") == "restart" and attributes["config"].get(section, {}).get(name)
        for key, stated in attributes["options"].items()
        for section, _, name in [key.partition(".")]
    )
    ended = {repeat for repeat, marks in found.items() if any(mark.state for mark in marks)}
    if trace.complete and found and (not are_all(ended, attributes["repeats"]) or restarted != bool(begun)):
        raise TraceError(f"{trace.path}: heads are missing; copy the run again, or leave it out")
    for repeat, marks in sorted(found.items()):
        marks.sort(key=lambda mark: mark.step)
        begin = (-1, genesis)
        if repeat in begun:
            begin = (begun[repeat], next((h for (r, _), h in begins.items() if r == repeat), ""))
        steps = [begin[0], *(mark.step for mark in marks)]
        open_ends = [mark for mark in marks[:-1] if mark.state]
        if open_ends or any(a >= b for a, b in itertools.pairwise(steps)):
            raise TraceError(f"{trace.path}: its heads are not in order; copy the run again, or leave it out")
        result.append(Chain(repeat, begin, tuple(marks)))
    return result


def are_all(numbers: set[int], count: int) -> bool:
    """Whether `numbers` are 0 to `count` - 1; cheap even for a huge stated count."""
    return len(numbers) == count and max(numbers, default=-1) == count - 1


def checkpoint_file(repeat: int, step: int) -> str:
    """The name of a checkpoint in the directory of its run."""
    return f"{FOLDER}/repeat-{repeat}-step-{step:06d}.h5"


def _words(trace: RankTrace, name: str) -> dict[tuple[int, int], str]:
    """{(repeat, step): 64 hex digits} of the rows `name`, two per head. Raises TraceError where one is missing."""
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
    """{repeat: step of the checkpoint from which it continues}."""
    rows = trace.tables["values"]
    if BEGIN not in trace.names:
        return {}
    here = rows["name"] == trace.names.index(BEGIN)
    return {
        repeat: int(step)
        for repeat, step in zip(rows["repeat"][here].tolist(), rows["value"][here].tolist(), strict=True)
        if step == step and abs(step) < 2**31
    }
