"""The launch shape of a sum on a GPU, also used by its twin on the CPU: it fixes the tree."""

from __future__ import annotations

from dataclasses import dataclass

BLOCK = 256  # threads of a block
ITEMS = 8  # elements per thread, at least
GRID = 4096  # blocks, at most: enough for any device, and the same for all devices


@dataclass(frozen=True)
class Shape:
    """`blocks` thread blocks of `block` threads; block b adds elements [b * segment, (b + 1) * segment)."""

    block: int
    blocks: int
    segment: int


def shape(n: int, block: int = BLOCK, items: int = ITEMS, grid: int = GRID) -> Shape:
    """The shape for `n` elements: at most `grid` blocks of `block` threads, `items` elements per thread or more.

    It depends on the four numbers alone, not on the device. Segments are equal multiples of `block`, except for the
    last; an empty array has one block. Raises ValueError for a `block` that is not a power of two from 32 to 1024, and
    for `items` or `grid` below 1.
    """
    if block not in (32, 64, 128, 256, 512, 1024):
        raise ValueError(f"block {block}: choose a power of two from 32 to 1024")
    for name, value in (("items", items), ("grid", grid)):
        if value < 1:
            raise ValueError(f"{name} {value}: at least 1 is needed")
    at_most = min(grid, max(1, -(-n // (block * items))))
    rows = max(1, -(-n // (at_most * block)))
    return Shape(block, max(1, -(-n // (rows * block))), rows * block)
