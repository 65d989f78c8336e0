"""Logical axes, and the cuts of tensors along them.

A dim is cut as a list of factors `((size, axis), ...)`, major to minor, whose sizes multiply to the size of the dim.
The axis is a name, or None for a factor that is not cut. `((14, "batch"), (16, None))` is a dim of 224 whose major
factor is batch. A cut describes every dim of a tensor. It belongs to the problem and does not mention ranks.

Cuts are canonical, so that equal cuts are equal tuples: neighbouring factors without an axis are joined, factors of
size 1 are omitted, and a dim of size 1 is `()`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise

Factor = tuple[int, "str | None"]
Dim = tuple[Factor, ...]
Cut = tuple[Dim, ...]


class AxisError(ValueError):
    """An axis that cannot be cut as requested."""


@dataclass(frozen=True)
class Axis:
    """A logical axis of `starts[-1]` elements in blocks: block b has the elements starts[b] to starts[b + 1] - 1."""

    name: str
    starts: tuple[int, ...]

    def __post_init__(self):
        rising = all(a < b for a, b in pairwise(self.starts))
        if len(self.starts) < 2 or self.starts[0] != 0 or not rising:
            raise AxisError(
                f"axis {self.name}: block starts {self.starts} must ascend from 0, each block with an element"
            )

    @property
    def blocks(self) -> int:
        """Number of blocks."""
        return len(self.starts) - 1

    @property
    def extent(self) -> int:
        """Number of elements."""
        return self.starts[-1]

    def at(self, size: int) -> tuple[int, ...]:
        """The starts of the blocks in a factor of `size` elements: scaled, as in images of another resolution.

        A factor of the axis' own extent has its own starts. Blocks of a factor smaller than the number of blocks may be
        empty; plans do not cut such factors.
        """
        return tuple(start * size // self.extent for start in self.starts)


def evenly(name: str, extent: int, blocks: int) -> Axis:
    """An axis in `blocks` nearly equal blocks, the first ones one element longer. Raises AxisError."""
    if not 1 <= blocks <= extent:
        raise AxisError(
            f"axis {name}: {extent} elements cannot be cut into {blocks} blocks; choose 1 to {extent}"
        )
    base, extra = divmod(extent, blocks)
    starts = [0]
    for block in range(blocks):
        starts.append(starts[-1] + base + (block < extra))
    return Axis(name, tuple(starts))


def canonical(factors: Iterable[Factor]) -> Dim:
    """The factors of a dim without those of size 1, neighbours without an axis joined."""
    joined: list[Factor] = []
    for size, axis in factors:
        if size == 1 and axis is None:
            continue
        if axis is None and joined and joined[-1][1] is None:
            joined[-1] = joined[-1][0] * size, None
        else:
            joined.append((size, axis))
    return tuple(joined)


def whole(shape: Sequence[int]) -> Cut:
    """The cut of a tensor without axes."""
    return tuple(((n, None),) if n != 1 else () for n in shape)


def shape(cut: Cut) -> tuple[int, ...]:
    """The shape of the whole tensor."""
    return tuple(size_of(dim) for dim in cut)


def size_of(dim: Dim) -> int:
    """The size of a dim."""
    size = 1
    for n, _ in dim:
        size *= n
    return size


def axes_of(cut: Cut) -> tuple[str, ...]:
    """The axes of a tensor, first dim first."""
    return tuple(axis for dim in cut for _, axis in dim if axis is not None)


def is_cut(dim: Dim) -> bool:
    """Whether any axis cuts the dim."""
    for _, axis in dim:  # noqa: SIM110 - faster than a generator, in the most frequent call of a plan
        if axis is not None:
            return True
    return False


def without(dim: Dim, axes: Iterable[str]) -> Dim:
    """The dim without `axes`."""
    gone = set(axes)
    return canonical((n, None if axis in gone else axis) for n, axis in dim)


def merge(one: Dim, other: Dim) -> Dim | None:
    """The dim cut by the axes of both, or None if they contradict each other.

    `((224, None),)` and `((14, "batch"), (16, None))` are the latter; `((14, "batch"), (16, None))` and
    `((14, None), (4, "heads"), (4, None))` are cut by both.
    """
    if one == other or not is_cut(other):
        return one
    if not is_cut(one):
        return other
    left, right, merged = list(reversed(one)), list(reversed(other)), []
    while left and right:
        (n, a), (m, b) = left.pop(), right.pop()
        if n == m:
            if a is not None and b is not None and a != b:
                return None
            merged.append((n, a if a is not None else b))
        elif n < m and b is None and m % n == 0:
            merged.append((n, a))
            right.append((m // n, None))
        elif n > m and a is None and n % m == 0:
            merged.append((m, b))
            left.append((n // m, None))
        else:
            return None
    return canonical(merged)


def split(dim: Dim, sizes: Sequence[int]) -> list[Dim] | None:
    """Splits the dim into parts of `sizes`, major to minor, which multiply to its size; None if a factor with an axis
    would span two parts."""
    if len(sizes) == 1:
        return [dim]
    rest, parts = list(reversed(dim)), []
    for size in sizes:
        part: list[Factor] = []
        left = size
        while left > 1:
            n, axis = rest.pop()
            if left % n == 0:
                part.append((n, axis))
                left //= n
            elif axis is None and n % left == 0:
                part.append((left, None))
                rest.append((n // left, None))
                left = 1
            else:
                return None
        parts.append(canonical(part))
    return parts


def text(cut: Cut) -> str:
    """A cut in words: `batch:14*16 x 64`, a factor without an axis as its size alone."""
    if not cut:
        return "scalar"
    return " x ".join("*".join(f"{axis}:{n}" if axis else str(n) for n, axis in dim) or "1" for dim in cut)
