"""The alpha-beta-gamma model, fitted to measured all-reduces: seconds per message, per byte and per addition.

Hockney's model with additions: an all-reduce takes alpha x messages + beta x bytes + gamma x additions, counted along
the rounds by `kernels.allreduce.cost`. Over several nodes, messages and bytes between nodes have separate constants.
The fit is a nonnegative least-squares fit (Lawson and Hanson) of relative errors: every equation is divided by its
measured time, so small vectors count as much as large ones.
"""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import asdict, dataclass

import numpy as np

LEAST = 6  # points of a piece
CLEARLY = 2 / 3  # two pieces must reduce the error of one piece to this fraction,
ENOUGH = 0.05  # unless the error of one piece is at most this
GOOD, FAIR = 0.15, 0.3  # median relative errors


@dataclass(frozen=True, slots=True)
class Point:
    """One measured all-reduce of a vector of `nbytes`: the counts of its schedule, in the order of the constants of a
    Piece, and its median time."""

    nbytes: int
    counts: tuple[int, ...]
    seconds: float


@dataclass(frozen=True, slots=True)
class Piece:
    """The constants for vectors of at most `upto` bytes (None: of any length)."""

    alpha: float
    beta: float
    gamma: float
    alpha_across: float = 0.0
    beta_across: float = 0.0
    upto: int | None = None

    def seconds(self, counts: Sequence[int]) -> float:
        """The predicted time for messages, bytes and additions, and messages and bytes across nodes."""
        constants = self.alpha, self.beta, self.gamma, self.alpha_across, self.beta_across
        return sum(constant * count for constant, count in zip(constants, counts, strict=True))


@dataclass(frozen=True)
class Model:
    """Pieces for short and long vectors, or one for all; `error` is the median relative error of the fit."""

    pieces: tuple[Piece, ...]
    error: float

    def seconds(self, point: Point) -> float:
        """The predicted time for the counts of a point."""
        piece = next(p for p in self.pieces if p.upto is None or point.nbytes <= p.upto)
        return piece.seconds(point.counts)

    @property
    def verdict(self) -> str:
        """The quality of the fit in a few words."""
        if self.error <= GOOD:
            return "good"
        return "fair" if self.error <= FAIR else "poor: an orientation only"

    def record(self) -> dict:
        """The model for the JSON file."""
        return {"pieces": [asdict(p) for p in self.pieces], "error": self.error, "verdict": self.verdict}


def fit(points: Sequence[Point]) -> Model | None:
    """The model for these points, in two pieces where that is clearly better; None with fewer than LEAST points."""
    if len(points) < LEAST:
        return None
    one, squares = _piece(points, None)
    best = (one,), squares
    for size in sorted({p.nbytes for p in points})[:-1]:
        short = [p for p in points if p.nbytes <= size]
        long = [p for p in points if p.nbytes > size]
        if min(len(short), len(long)) >= LEAST:
            (low, a), (high, b) = _piece(short, size), _piece(long, None)
            if a + b < best[1]:
                best = (low, high), a + b
    alone, parted = (np.sqrt(s / len(points)) for s in (squares, best[1]))
    pieces = best[0] if alone > ENOUGH and parted < CLEARLY * alone else (one,)
    model = Model(pieces, 0.0)
    error = statistics.median(abs(model.seconds(p) / p.seconds - 1) for p in points)
    return Model(pieces, error)


def _piece(points: Sequence[Point], upto: int | None) -> tuple[Piece, float]:
    """The constants for all points and the sum of squared relative errors."""
    from scipy.optimize import nnls

    counts = np.array([p.counts for p in points], float)
    relative = counts / np.array([[p.seconds] for p in points])
    scale = np.linalg.norm(relative, axis=0)
    scale[scale == 0] = 1.0  # a column of zeros keeps a constant of 0
    constants, rest = nnls(relative / scale, np.ones(len(points)))
    return Piece(*(float(c) for c in constants / scale), upto=upto), float(rest) ** 2
