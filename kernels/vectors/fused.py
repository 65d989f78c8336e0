"""Code that all backends of `fuse` share: checks vectors when planning, scalars and partial sums at each call."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from types import ModuleType

import numpy as np

from kernels.threads import MOST
from kernels.vectors.steps import Program, parse

TYPES = (np.dtype(np.float64), np.dtype(np.float32))


@dataclass(frozen=True)
class Bound:
    """A program with its checked vectors."""

    program: Program
    arrays: dict[str, np.ndarray]  # the vectors that the program uses, of NumPy or CuPy
    same: dict[str, int]  # {name: address}; names with equal addresses are one vector
    starts: np.ndarray  # int64 (blocks + 1,), in host memory
    dtype: np.dtype
    threads: int
    xp: ModuleType  # numpy or cupy

    @property
    def n(self) -> int:
        return int(self.starts[-1])

    @property
    def nbytes(self) -> int:
        """The fewest bytes to move: vectors whose old elements are read, and vectors that are written."""
        written = {self.same[name] for name in self.program.targets}
        return self.n * self.dtype.itemsize * (len(self.program.read(self.same)) + len(written))


class Fused:
    """Planned steps and dot products: `fused(partials, alpha=..., beta=...)` runs them.

    `partials`, float64 (blocks, dots), C-contiguous, receives the dot products of every block; None if there are none.
    Give all scalars by name. `nbytes` and `flops`: the fewest bytes and operations of a call. Two threads must not call
    it at once. Raises TypeError for missing or unknown scalars and partial sums of another type, ValueError for their
    shape.
    """

    def __init__(self, bound: Bound, run: Callable):
        self.scalars = bound.program.scalars
        self.nbytes, self.flops = bound.nbytes, bound.n * bound.program.flops
        self.shape = (len(bound.starts) - 1, len(bound.program.dots))  # of the partial sums
        self._array, self._run = bound.xp.ndarray, run

    def __call__(self, partials=None, /, **scalars) -> None:
        try:
            values = [float(scalars[name]) for name in self.scalars]
        except KeyError:
            raise self._wrong_scalars(scalars) from None
        if len(scalars) != len(values):
            raise self._wrong_scalars(scalars)
        if partials is not None:
            if not isinstance(partials, self._array) or partials.dtype != np.float64:
                raise TypeError(f"partials: expected float64 {self._array}, got {_what(partials)}")
            if partials.shape != self.shape or not partials.flags.c_contiguous:
                raise ValueError(f"partials: expected shape {self.shape}, C-contiguous, got {partials.shape}")
        elif self.shape[1]:
            raise TypeError(f"partials: expected float64 {self.shape} for the dot products, got None")
        self._run(partials, values)

    def _wrong_scalars(self, given) -> TypeError:
        expected = ", ".join(self.scalars) or "none"
        return TypeError(f"scalars: expected {expected}, got {', '.join(given) or 'none'}")


def bind(xp, vectors, steps: str, dots: str, starts, threads: int) -> Bound:
    """Parses and checks the arguments of `fuse`.

    vectors: one-dimensional, contiguous, float64 or float32, all of one type, arrays of `xp`. Vectors that no step uses
    are not checked. Raises ValueError and TypeError that name the step, dot product or vector.
    """
    program = parse(steps, dots, vectors)
    arrays = {name: vectors[name] for name in program.vectors}
    for name, array in arrays.items():
        if not isinstance(array, xp.ndarray) or array.dtype not in TYPES:
            raise TypeError(f"vector {name!r}: expected float64 or float32 {xp.ndarray}, got {_what(array)}")
    dtype = next(iter(arrays.values())).dtype
    for name, array in arrays.items():
        if array.dtype != dtype:
            raise TypeError(f"vector {name!r}: {array.dtype}, but others are {dtype}; use one type for all")
        if array.ndim != 1 or not array.flags.c_contiguous:
            raise ValueError(f"vector {name!r}: expected one dimension, contiguous, got {array.shape}")
        if name in program.targets and not getattr(array.flags, "writeable", True):
            raise ValueError(f"vector {name!r}: a step writes it, but it is read-only")
    starts = _checked_starts(starts, arrays)
    for name, array in arrays.items():
        if len(array) < starts[-1]:
            raise ValueError(f"vector {name!r}: {len(array)} elements, but the blocks have {starts[-1]}")
    if not 1 <= threads <= MOST:
        raise ValueError(f"threads: expected 1 to {MOST}, got {threads}")
    same = {name: _address(array) for name, array in arrays.items()}
    _refuse_overlap(program, same, int(starts[-1]) * dtype.itemsize)
    return Bound(program, arrays, same, starts, dtype, threads, xp)


def _checked_starts(starts, arrays) -> np.ndarray:
    if starts is None:
        lengths = {len(array) for array in arrays.values()}
        if len(lengths) > 1:
            raise ValueError(f"vectors of {sorted(lengths)} elements: without starts, all need one length")
        return np.array([0, *lengths], np.int64)
    starts = np.ascontiguousarray(starts)
    if starts.dtype != np.int64 or starts.ndim != 1 or not len(starts):
        raise TypeError(f"starts: expected int64 (blocks + 1,), got {starts.dtype} {starts.shape}")
    if starts[0] != 0 or (np.diff(starts) < 0).any():
        raise ValueError("starts: expected ascending numbers from 0 to the number of elements")
    return starts


def _refuse_overlap(program: Program, same: dict[str, int], nbytes: int) -> None:
    """Raises ValueError if a written vector overlaps another: backends that go by step or by tile would then differ."""
    for target in program.targets:
        for name in program.vectors:
            if 0 < abs(same[target] - same[name]) < nbytes:
                raise ValueError(
                    f"vector {target!r}, which a step writes, and {name!r} overlap: use vectors that share all of"
                    " their memory or none"
                )


def _address(array) -> int:
    interface = getattr(array, "__cuda_array_interface__", None) or array.__array_interface__
    return interface["data"][0]


def _what(value) -> str:
    return f"{value.dtype} {type(value)}" if hasattr(value, "dtype") else f"{type(value)}"
