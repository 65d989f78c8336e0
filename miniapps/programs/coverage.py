"""Report the calls that `fpna run` did not record, and the sums that its guarantee did not reach."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import numpy as np

from miniapps.programs.functions import ACCUMULATES, PYTHON
from miniapps.programs.rawlog import (
    INTER,
    KINDS,
    NONBLOCKING,
    PERSISTENT,
    PROMISED_BITS,
    PROMISES,
    REPLACED,
    USER,
    RawLog,
)

REDUCTIONS = frozenset(
    KINDS.index(f"MPI_{name}")
    for name in ("Allreduce", "Reduce", "Reduce_scatter", "Reduce_scatter_block", "Scan", "Exscan")
)
ACCUMULATING = frozenset(
    KINDS.index(f"MPI_{name}") for name in ("Accumulate", "Get_accumulate", "Fetch_and_op")
)
# Names of types whose sums are rounded.
ROUNDED = re.compile(r"FLOAT|DOUBLE|REAL|COMPLEX")
REACHED = ("MPI_DOUBLE", "MPI_FLOAT")
SHOWN = 3  # places in a line
Unreached = list[dict[str, Any]]  # for each call: "call", "why", "calls"


def promised(row: np.void) -> str:
    """The guarantee of fpna's own sum to which this call belongs; else empty."""
    return PROMISES[int(row["flags"]) >> PROMISED_BITS & 3]


def reason(log: RawLog, row: np.void) -> str:
    """The reason why this reduction kept the library's order although the order affects its bits; else empty."""
    if int(row["kind"]) not in REDUCTIONS | ACCUMULATING or row["flags"] & REPLACED or row["comm_size"] == 1:
        return ""
    if promised(row):
        return ""
    operation, name = log.operations.get(int(row["op"]), ""), log.types.get(int(row["type"]), "")
    if operation.startswith(USER):
        return operation
    if log.guarantee == "none":
        return ""
    if operation not in ("sum", "prod") or (name and not ROUNDED.search(name)):
        return ""
    if operation == "prod":
        return "product"
    if int(row["kind"]) in ACCUMULATING:
        return "one-sided"
    if row["flags"] & PERSISTENT:
        return "persistent"
    if row["flags"] & NONBLOCKING:
        return "nonblocking"
    if row["flags"] & INTER:
        return "intercommunicator"
    if not name:
        return "a type without a name"
    return f"type {name}" if not name.startswith(REACHED) else "too many elements"


def unreached(log: RawLog, rows: np.ndarray, counts: np.ndarray, calls: Sequence[str]) -> Unreached:
    """The reductions that the guarantee of this run did not reach, and those by operations of the program.

    `rows`: one record of each group of `counts` calls of one place, operation and type, with the names `calls`."""
    found: dict[tuple[str, str], int] = {}
    for row, count, call in zip(rows, counts.tolist(), calls, strict=True):
        if why := reason(log, row):
            found[call, why] = found.get((call, why), 0) + count
    return [{"call": call, "why": why, "calls": count} for (call, why), count in found.items()]


def _listed(calls: dict[str, int]) -> str:
    """Calls by name, the most frequent first."""
    return ", ".join(f"{n:,} {name}" for name, n in sorted(calls.items(), key=lambda of: (-of[1], of[0])))


def sentences(log: RawLog, lacking: Unreached) -> list[str]:
    """The sentences to print at the end of a run, on the rank that prints for all."""
    seen = dict(log.unseen_of_all or log.unseen)
    python, accumulates, said = seen.pop(PYTHON, 0), seen.pop(ACCUMULATES, 0), []
    if seen:
        said.append(f"not recorded: {_listed(seen)}")
    if lacking:
        most_calls = sorted(lacking, key=lambda of: (-of["calls"], of["call"]))
        where = "; ".join(f"{of['why']}: {of['calls']:,} {of['call']}" for of in most_calls[:SHOWN])
        where += f"; and {len(lacking) - SHOWN} more calls (fpna show)" if len(lacking) > SHOWN else ""
        kept = sum(of["calls"] for of in lacking)
        answered = int(np.count_nonzero(log.records["flags"] & REPLACED))
        said.append(
            f"{kept:,} reductions on rank {log.rank} by operations of the program, in an order that the MPI library "
            f"chooses and that may matter: {where}"
            if log.guarantee == "none"
            else f"{kept:,} of {kept + answered:,} sums on rank {log.rank} kept the library's order: {where}"
        )
    if accumulates:
        said.append(
            f"{accumulates:,} {ACCUMULATES} on all ranks kept the library's order: no guarantee reaches one-sided "
            "calls, whose order no rank knows"
        )
    if python:
        lines = ", ".join(log.python_sums()[:SHOWN])
        at = f" at {lines}" if lines else ""
        said.append(
            f"mpi4py added Python objects itself{at} (lower-case reduce, allreduce, scan, exscan): "
            + (
                "no guarantee reaches these sums; pass arrays to Reduce, Allreduce, Scan, Exscan"
                if log.guarantee != "none"
                else "these sums are not recorded; to record them, pass arrays to Reduce, Allreduce, Scan, Exscan"
            )
        )
    return said
