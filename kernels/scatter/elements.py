"""Operands of a scatter-add: checks types, shapes and the index, with the errors for those that do not fit."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from kernels.sums.elements import ACCUMULATORS, accumulator

INDICES = ("int32", "int64")


@dataclass(frozen=True)
class Scatter:
    """A scatter-add whose types and shapes fit: arrays are contiguous, aligned and of native byte order."""

    x: np.ndarray  # (n,) or (n, columns)
    index: np.ndarray  # (n,) int32 or int64
    bins: int

    @property
    def accumulator(self) -> np.dtype:
        """The type of the sums."""
        return accumulator(self.x.dtype)

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of the sums: (bins,) or (bins, columns)."""
        return (self.bins, *self.x.shape[1:])


def scatter(x, index, bins: int, variant: str, backend: str) -> Scatter:
    """Checks all arguments except the range of the index; messages name `variant` and `backend`.

    Copies arrays that are strided, misaligned or of foreign byte order. Raises TypeError for other element or index
    types, ValueError for shapes that do not fit and for `bins` below 0.
    """
    x, index = np.asarray(x), np.asarray(index)
    check(x.dtype.name, x.shape, index.dtype.name, index.shape, bins, variant, backend)
    return Scatter(_plain(x), _plain(index), int(bins))


def check(x_type: str, x_shape, index_type: str, index_shape, bins: int, variant: str, backend: str) -> None:
    """Raises as `scatter` does, from names of types and shapes alone, so arrays may be on any device."""
    where = f"scatter_add {variant!r} ({backend})"
    if x_type not in ACCUMULATORS:
        raise TypeError(f"{where} cannot add {x_type}: convert it to one of {', '.join(ACCUMULATORS)}")
    if index_type not in INDICES:
        raise TypeError(
            f"{where} cannot take an index of {index_type}: convert it to one of {', '.join(INDICES)}"
        )
    if len(x_shape) not in (1, 2):
        raise ValueError(
            f"{where} cannot add elements of shape {tuple(x_shape)}: (n,) or (n, columns) is expected"
        )
    if tuple(index_shape) != tuple(x_shape[:1]):
        raise ValueError(
            f"{where} has an index of shape {tuple(index_shape)} for elements of shape {tuple(x_shape)}: "
            f"({x_shape[0]},) is expected, one bin for each"
        )
    if isinstance(bins, bool) or not isinstance(bins, int | np.integer):
        raise TypeError(f"{where} needs an integer number of bins, not {bins!r}")
    if bins < 0:
        raise ValueError(f"{where} cannot have {bins} bins: 0 or more are possible")


def require_range(index: np.ndarray, bins: int) -> None:
    """Raises IndexError for the first index outside [0, bins)."""
    if len(index) and (index.min() < 0 or index.max() >= bins):
        position = int(np.argmax((index < 0) | (index >= bins)))
        raise out_of_range(int(index[position]), position, bins)


def out_of_range(value: int, position: int, bins: int) -> IndexError:
    """The error for the first bad index. Negative indices do not count from the end."""
    allowed = f"0 ... {bins - 1}" if bins else "nothing, for there are no bins"
    wrapped = "; negative indices do not count from the end" if value < 0 else ""
    return IndexError(f"index[{position}] is {value}, but {bins} bins allow {allowed}{wrapped}")


def _plain(a: np.ndarray) -> np.ndarray:
    # newbyteorder("=") of a native type is a new object, for which np.add.at lacks its fast path.
    if not a.dtype.isnative:
        a = a.astype(a.dtype.newbyteorder("="))
    return np.require(a, requirements=["C", "A"])
