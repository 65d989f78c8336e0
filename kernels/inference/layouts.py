"""Layouts: the places of a value's elements in memory, and copies between layouts."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from kernels.inference.graph import elements
from kernels.inference.schedule import ALIGNED, Buffer, rounded

PANELS = (32, 16, 8)  # columns of weights in one panel


@dataclass(frozen=True)
class Value:
    """The layout of a node's value: `shape` of a sample, `pitch` elements from row to row.

    `pixels`: a sample (channels, height, width) has a row per pixel and a column per channel. Otherwise it has a row
    per index of all axes but the last.
    """

    buffer: Buffer
    shape: tuple[int, ...]
    pitch: int
    pixels: bool = False

    @property
    def columns(self) -> int:
        return self.shape[0] if self.pixels else self.shape[-1] if self.shape else 1

    @property
    def rows(self) -> int:
        return elements(self.shape) // max(1, self.columns)

    @property
    def span(self) -> int:
        """Elements from the first to the last, rounded up to a multiple of 16."""
        return rounded(self.rows * self.pitch)


def panels(columns: int) -> list[tuple[int, int]]:
    """(first, end) of the panels of 32, 16 or 8 columns that make up `columns`, widest first."""
    cuts = []
    begin = 0
    while begin < columns:
        width = next(width for width in PANELS if width <= columns - begin)
        cuts.append((begin, begin + width))
        begin += width
    return cuts


def steps(value: Value) -> tuple[tuple[int, int, int], tuple[int, int, int]]:
    """(lengths, steps) of the three axes of a value."""
    if len(value.shape) != 3:
        return (1, value.rows, value.columns), (0, value.pitch, 1)
    channels, height, width = value.shape
    if value.pixels:
        return (channels, height, width), (1, width * value.pitch, value.pitch)
    return (channels, height, width), (height * value.pitch, value.pitch, 1)


def joined(n, a, y) -> list[int]:
    """[lengths, steps, steps] of three axes, after joining axes that are adjacent in both layouts."""
    axes = sorted((axis for axis in zip(n, a, y, strict=True) if axis[0] > 1), key=lambda axis: -axis[2])
    merged: list[tuple[int, int, int]] = []
    for length, i, j in axes:
        if merged and merged[-1][1:] == (length * i, length * j):
            length, i, j = merged.pop()[0] * length, i, j
        merged.append((length, i, j))
    merged = [(1, 0, 0)] * (3 - len(merged)) + merged
    return [part for column in zip(*merged, strict=True) for part in column]


def aligned(pieces: list[np.ndarray]) -> np.ndarray:
    """The pieces in one array, one after another, at an address that is a multiple of 64."""
    size = sum(piece.size for piece in pieces)
    memory = np.zeros(size + ALIGNED, np.float32)
    begin = -memory.ctypes.data // 4 % ALIGNED
    whole = memory[begin : begin + size]
    at = 0
    for piece in pieces:
        whole[at : at + piece.size] = piece
        at += piece.size
    return whole
