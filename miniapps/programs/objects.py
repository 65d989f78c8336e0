"""Agree between ranks on one type and one shape for the objects of a lower-case reduction."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from mpi4py import MPI

from kernels.allreduce.errors import by_rank
from kernels.environment import guarded
from kernels.guarantees import ChoiceError
from miniapps.programs.operations import operation_of, rounding

PYTHON = (bool, int, float, complex)


@dataclass(frozen=True)
class Agreed:
    """The common type of all ranks' objects: numbers or arrays of `dtype`; `python`: whether all are Python numbers."""

    dtype: np.dtype
    python: bool

    @guarded
    def array(self, sendobj: Any) -> np.ndarray:
        """An object as an array of the common type."""
        return np.asarray(sendobj, self.dtype)

    def like_given(self, total: np.ndarray) -> Any:
        """The total in the type that mpi4py would return."""
        if total.ndim:
            return total
        return total.item() if self.python else total[()]


def agreed(comm: MPI.Intracomm, name: str, sendobj: Any, op: MPI.Op) -> Agreed | None:
    """The common type of the objects of all ranks; None if nothing rounds, so that the MPI library reduces. Collective.

    Raises ChoiceError on all ranks for objects that are not numbers, different shapes, or an operation of the program.
    """
    given: list[tuple[str, tuple[int, ...], bool]] = comm.allgather(_described(sendobj))
    others = [kind for kind, _, _ in given if kind.startswith("a ")]
    if others:
        raise ChoiceError(
            f"{name}: ranks pass {by_rank([kind for kind, _, _ in given])}; a guarantee needs numbers or arrays of "
            f"numbers. Without a guarantee: comm.plain.{name}"
        )
    dtype = np.result_type(*(np.dtype(kind) for kind, _, _ in given))
    if not rounding(dtype):
        return None
    if operation_of(op) is None:
        raise ChoiceError(
            f"{name}: the program defines the operation, so only the MPI library can order it. If it rounds nothing: "
            f"wrap(comm, exact_ops=[op]); otherwise call comm.plain.{name}"
        )
    if len({shape for _, shape, _ in given}) > 1:
        raise ChoiceError(
            f"{name}: arrays of different shapes: {by_rank([str(shape) for _, shape, _ in given])}"
        )
    return Agreed(dtype, all(python for *_, python in given))


def agreed_pairs(comm: MPI.Intracomm, name: str, sendobj: Any) -> list[tuple[Any, Any]]:
    """The arguments of all ranks for MAXLOC or MINLOC, (number, index) each. Collective; raises ChoiceError on all
    ranks if one passes something else."""
    given: list[Any] = comm.allgather(sendobj)
    said = ["a pair" if _is_pair(each) else f"a {type(each).__name__}" for each in given]
    if set(said) != {"a pair"}:
        raise ChoiceError(f"{name}: MAXLOC and MINLOC take pairs (value, index); ranks pass {by_rank(said)}")
    return [(each[0], each[1]) for each in given]


def _is_pair(given: Any) -> bool:
    return isinstance(given, tuple | list) and len(given) == 2 and np.ndim(given[0]) == 0


def _described(sendobj: Any) -> tuple[str, tuple[int, ...], bool]:
    """(type, shape, whether it is a Python number) of an object; the type of other objects begins with `a `."""
    if type(sendobj) in PYTHON:
        big = type(sendobj) is int and not -(2**63) <= sendobj < 2**63
        return ("a large integer" if big else np.dtype(type(sendobj)).name), (), True
    if isinstance(sendobj, np.ndarray | np.generic) and (sendobj.dtype.kind in "biufc"):
        return sendobj.dtype.name, sendobj.shape, False
    return f"a {type(sendobj).__name__}", (), False
