"""Names of MPI's operations in this suite, and which of them round."""

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
    """This suite's name of an operation, such as "sum"; None if the suite does not have it."""
    return next((name for known, name in OPERATIONS if op is known or op == known), None)


def rounds_nothing(op: Any, exact_ops: tuple[Any, ...]) -> bool:
    """Whether `op` gives the same bits in any order: MPI's logical and bitwise operations, and the user's
    `exact_ops`."""
    if op is MPI.SUM:
        return False
    return any(op is each or op == each for each in (*ROUNDING_NOTHING, *exact_ops))


def rounding(dtype: np.dtype) -> bool:
    """Whether arithmetic with `dtype` rounds: floating-point and complex numbers, including those of ml_dtypes."""
    return dtype.kind in "fc" or (dtype.kind == "V" and not dtype.names and "float" in dtype.name)
