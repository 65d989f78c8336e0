"""The launch shape of a sum on a GPU, which its twin on the CPU follows: it fixes the tree."""

from __future__ import annotations

from dataclasses import dataclass

BLOCK = 256  # threads of a block
ITEMS = 8  # elements per thread, at least
GRID = 4096  # blocks, at most: enough to fill any device, and the same for all of them


@dataclass(frozen=True)
class Shape:
    """`blocks` thread blocks of `block` threads; block b adds elements [b * segment, (b + 1) * segment)."""

    block: int
    blocks: int
    segment: int


def shape(n: int, block: int = BLOCK, items: int = ITEMS, grid: int = GRID) -> Shape:
    """The shape for `n` elements: at most `grid` blocks of `block` threads, `items` elements per thread or more.

    It follows from the four numbers alone, never from the device. Segments are equal multiples of `block`, but
    for the last; an empty array takes one block. Raises ValueError for a `block` that is not a power of two from
    32 to 1024, and for `items` or `grid` below 1.
    """
    if block not in (32, 64, 128, 256, 512, 1024):
        raise ValueError(f"block {block}: choose a power of two from 32 to 1024")
    for name, value in (("items", items), ("grid", grid)):
        if value < 1:
            raise ValueError(f"{name} {value}: at least 1 is needed")
    at_most = min(grid, max(1, -(-n // (block * items))))
    rows = max(1, -(-n // (at_most * block)))
    return Shape(block, max(1, -(-n // (rows * block))), rows * block)
