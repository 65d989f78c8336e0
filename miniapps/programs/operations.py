"""Operations of MPI by the names that they have here, and which of them round."""

from __future__ import annotations

from typing import Any

import numpy as np
from mpi4py import MPI

OPERATIONS = ((MPI.SUM, "sum"), (MPI.PROD, "prod"), (MPI.MIN, "min"), (MPI.MAX, "max"))
PAIRWISE = ((MPI.MAXLOC, "max"), (MPI.MINLOC, "min"))  # of a value and its index
ROUNDING_NOTHING = (
    MPI.LAND, MPI.LOR, MPI.LXOR, MPI.BAND, MPI.BOR, MPI.BXOR, MPI.REPLACE, MPI.NO_OP,
)  # fmt: skip


def operation_of(op: Any) -> str | None:
    """Our name of an operation of MPI; None where it is none of ours."""
    return next((name for known, name in OPERATIONS if op is known or op == known), None)


def rounds_nothing(op: Any, exact_ops: tuple[Any, ...]) -> bool:
    """Whether any order of `op` gives the same bits: MPI's logical and bitwise operations, and those of the user's that
    are said to (`exact_ops`)."""
    if op is MPI.SUM:
        return False
    return any(op is each or op == each for each in (*ROUNDING_NOTHING, *exact_ops))


def rounding(dtype: np.dtype) -> bool:
    """Whether numbers of `dtype` round: floating-point and complex ones, those of ml_dtypes among them."""
    return dtype.kind in "fc" or (dtype.kind == "V" and not dtype.names and "float" in dtype.name)
