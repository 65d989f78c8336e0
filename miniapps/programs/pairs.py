"""MPI.MAXLOC and MPI.MINLOC with the same result in every order.

The result of the MPI library depends on the order if a value is NaN, and in the sign of a zero. Here the value is the
result of MAX or MIN: always the same NaN if any value is NaN; a zero is +0.0. The index is the least index of an equal
value.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from mpi4py import MPI

from kernels.guarantees import ChoiceError
from miniapps.programs.calls import Asked, whole
from miniapps.programs.operations import PAIRWISE, rounding

LAST = np.iinfo(np.int64).max


def pairwise(op: Any) -> str | None:
    """ "max" or "min" for an operation on pairs, None for others."""
    if op is MPI.SUM:
        return None
    return next((name for known, name in PAIRWISE if op is known or op == known), None)


def pairs_of(asked: Asked) -> tuple[np.ndarray, np.ndarray | None] | None:
    """(send buffer, receive buffer) as arrays of structures `value` and `index`; None for integer values, which the MPI
    library combines. Raises as `call_of`."""
    if asked.axis is not None or asked.blocks is not None:
        raise ChoiceError(f"{asked.name}: axis and blocks are for sums, not for values with their indices")
    send, out, _ = whole(asked)
    if send.dtype.names is None:
        if rounding(send.dtype):
            raise ChoiceError(
                f"{asked.name}: MAXLOC and MINLOC take pairs of a value and its index: pass [array, MPI.DOUBLE_INT]"
            )
        return None
    return (send.array, out) if rounding(send.dtype["value"]) else None


def combined(values: np.ndarray, indices: np.ndarray, operation: str) -> tuple[np.ndarray, np.ndarray]:
    """Combines values and indices (ranks, n) over the first axis."""
    best = (np.max if operation == "max" else np.min)(values, axis=0) + values.dtype.type(0)
    best[best != best] = np.nan
    wins = (values == best) | ((values != values) & (best != best))
    return best, np.where(wins, indices, LAST).min(axis=0)


def reduce_pairs(comm: MPI.Intracomm, sent: np.ndarray, out: np.ndarray | None, operation: str) -> None:
    """Combine pairs of all ranks of `comm` into `out`, by an all-gather. Collective."""
    everyone = np.concatenate(comm.allgather(np.array(sent)[None]))
    if out is not None:
        best, index = combined(everyone["value"], everyone["index"].astype(np.int64), operation)
        out["value"], out["index"] = best, index


def of_objects(given: list[tuple[float, Any]], operation: str) -> tuple[Any, Any]:
    """Combines pairs of Python numbers, one from each rank."""
    numbers = [value for value, _ in given]
    if any(value != value for value in numbers):
        best: Any = float("nan")
        return best, min(index for value, index in given if value != value)
    best = (max if operation == "max" else min)(numbers)
    index = min(index for value, index in given if value == best)
    return (0.0 if isinstance(best, float) and best == 0 else best), index
