"""Orderings without a schedule of ours: the library's, and those whose additions have no order."""

from __future__ import annotations

from kernels.allreduce.catalog import ordering


@ordering("native", guarantee="none", why="library, algorithm, rank count, length and placement decide")
def native(size: int) -> None:
    """The MPI library's own all-reduce of floating-point numbers."""


@ordering("arrival", guarantee="none", why="whichever contribution arrives first at rank 0 is added first")
def arrival(size: int) -> None:
    """Rank 0 adds contributions as they arrive, its own first, and broadcasts; logs the order for replay."""


@ordering(
    "fixed-point",
    guarantee="layout",
    why="contributions become integers in a common unit before they are added, and integers add exactly",
)
def fixed_point(size: int) -> None:
    """MAX of the exponents, then integer SUM of two words per float64, one per float32, by the library."""


@ordering(
    "exact",
    guarantee="exact",
    why="every bit of every contribution is kept in integers, and the total is rounded once",
)
def exact(size: int) -> None:
    """Integer SUM of superaccumulators by the MPI library: correctly rounded, for short vectors."""
