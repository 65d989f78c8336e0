"""What ranks pass to a lower-case reduction, agreed between them: one type and one shape, or the library's business."""

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
    """What all ranks' objects are reduced as: numbers or arrays of `dtype`; `python`: all are Python's own numbers."""

    dtype: np.dtype
    python: bool

    @guarded
    def array(self, sendobj: Any) -> np.ndarray:
        """An object as an array of the type that all ranks agreed on."""
        return np.asarray(sendobj, self.dtype)

    def like_given(self, total: np.ndarray) -> Any:
        """The total as mpi4py would return it."""
        if total.ndim:
            return total
        return total.item() if self.python else total[()]


def agreed(comm: MPI.Intracomm, name: str, sendobj: Any, op: MPI.Op) -> Agreed | None:
    """What the objects of all ranks are reduced as; None where the library does it, because nothing rounds. Collective.

    Raises ChoiceError on all ranks for objects that are no numbers, and where shapes differ or the operation is the
    program's.
    """
    given: list[tuple[str, tuple[int, ...], bool]] = comm.allgather(_described(sendobj))
    others = [kind for kind, _, _ in given if kind.startswith("a ")]
    if others:
        raise ChoiceError(
            f"{name}: ranks pass {by_rank([kind for kind, _, _ in given])}; numbers and arrays of numbers keep a "
            f"promise, other objects do not. Without one: comm.plain.{name}"
        )
    dtype = np.result_type(*(np.dtype(kind) for kind, _, _ in given))
    if not rounding(dtype):
        return None
    if operation_of(op) is None:
        raise ChoiceError(
            f"{name}: the operation is the program's own, and its order the MPI library's. Where it rounds nothing, "
            f"say so: wrap(comm, exact_ops=[op]); otherwise call comm.plain.{name}"
        )
    if len({shape for _, shape, _ in given}) > 1:
        raise ChoiceError(
            f"{name}: arrays of different shapes: {by_rank([str(shape) for _, shape, _ in given])}"
        )
    return Agreed(dtype, all(python for *_, python in given))


def agreed_pairs(comm: MPI.Intracomm, name: str, sendobj: Any) -> list[tuple[Any, Any]]:
    """What all ranks pass to MAXLOC or MINLOC: pairs of a number and an index. Collective; ChoiceError on all ranks
    where one passes something else."""
    given: list[Any] = comm.allgather(sendobj)
    said = ["a pair" if _is_pair(each) else f"a {type(each).__name__}" for each in given]
    if set(said) != {"a pair"}:
        raise ChoiceError(f"{name}: MAXLOC and MINLOC take pairs (value, index); ranks pass {by_rank(said)}")
    return [(each[0], each[1]) for each in given]


def _is_pair(given: Any) -> bool:
    return isinstance(given, tuple | list) and len(given) == 2 and np.ndim(given[0]) == 0


def _described(sendobj: Any) -> tuple[str, tuple[int, ...], bool]:
    """(type, shape, whether it is a number of Python's) of an object; the type of no number begins with `a `."""
    if type(sendobj) in PYTHON:
        big = type(sendobj) is int and not -(2**63) <= sendobj < 2**63
        return ("a large integer" if big else np.dtype(type(sendobj)).name), (), True
    if isinstance(sendobj, np.ndarray | np.generic) and (sendobj.dtype.kind in "biufc"):
        return sendobj.dtype.name, sendobj.shape, False
    return f"a {type(sendobj).__name__}", (), False
