"""Making a reducer: what is asked for is checked on each rank, then across the ranks, then planned."""

from __future__ import annotations

import operator
from collections.abc import Iterable

import numpy as np
from mpi4py import MPI

from kernels.allreduce import catalog
from kernels.allreduce.arrival import SIZE_LIMIT, ArrivalReducer, read_log
from kernels.allreduce.errors import PlanMismatch, ReplayError, ranks_text
from kernels.allreduce.executor import ScheduleReducer
from kernels.allreduce.native import NativeReducer
from kernels.allreduce.order_free import ExactReducer, FixedPointReducer
from kernels.allreduce.reducer import Reducer, agree, digest_of

FLOATS = ("float64", "float32")
NUMBERS = (*FLOATS, "int64")
# Orderings without a schedule have a reducer of their own.
REDUCERS = {"native": NativeReducer, "fixed-point": FixedPointReducer, "exact": ExactReducer}


def plan(
    comm: MPI.Comm,
    ordering: str = "direct",
    shape: int | tuple[int, ...] = (),
    dtype="float64",
    check: bool = False,
    replay: Iterable | None = None,
    name: str = "",
) -> Reducer:
    """See `kernels.allreduce.plan`."""
    try:
        found, shape, dtype = _understand(comm, ordering, shape, dtype, replay)
        asked = f"ordering {ordering!r}, {dtype}, shape {shape}" + (", check" if check else "")
        failure = None
    except (ValueError, TypeError) as error:  # ChoiceError and ReplayError are ValueErrors
        asked, failure = f"{type(error).__name__}: {error}", error
    _agree_on(comm, asked, failure, name)
    if ordering == "arrival":
        reducer = ArrivalReducer(comm, found, shape, dtype, name, read_log(comm, replay))
    else:
        reducer = REDUCERS.get(ordering, ScheduleReducer)(comm, found, shape, dtype, name)
    reducer.checked = bool(check)
    return reducer


def _understand(comm, ordering, shape, dtype, replay):
    """The ordering, the shape as a tuple and the dtype; raises for what cannot be planned."""
    found = catalog.get(ordering)
    shape = tuple(operator.index(n) for n in np.atleast_1d(np.asarray(shape, dtype=object)))
    if any(n < 0 for n in shape):
        raise ValueError(f"shape {shape} has a negative length")
    dtype = np.dtype(dtype)
    supported = FLOATS if ordering in ("fixed-point", "exact") else NUMBERS
    if dtype.name not in supported or not dtype.isnative:
        raise TypeError(
            f"ordering {ordering!r} reduces {', '.join(supported)} in native byte order, not {dtype}"
        )
    if replay is not None and ordering != "arrival":
        raise ReplayError(f"ordering {ordering!r} has no order of arrival to replay; only 'arrival' has")
    if ordering == "arrival" and comm.size > SIZE_LIMIT:
        raise ValueError(
            f"ordering 'arrival' logs ranks in 16 bits: at most {SIZE_LIMIT} ranks, not {comm.size}"
        )
    return found, shape, np.dtype(dtype.name)


def _agree_on(comm: MPI.Comm, asked: str, failure: Exception | None, name: str) -> None:
    """Return if every rank can plan, and plans the same; else raise on every rank, so that none waits."""
    if not agree(comm, digest_of(asked.encode())):
        holders: dict[str, list[int]] = {}
        for rank, text in enumerate(comm.allgather(asked)):
            holders.setdefault(text, []).append(rank)
        if failure is None:
            listed = "; ".join(f"{ranks_text(ranks)}: {text}" for text, ranks in holders.items())
            label = f"reducer {name!r}" if name else "one reducer"
            raise PlanMismatch(f"ranks do not ask for the same {label}: {listed}")
    if failure is not None:
        raise failure
