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
    """Rounded to a common unit, that of the largest, and added as integers: by the owner of each chunk as `direct` or,
    of short vectors, by every rank."""


@ordering(
    "exact",
    guarantee="exact",
    why="every bit of every contribution is kept in integers, and the total is rounded once",
)
def exact(size: int) -> None:
    """Correctly rounded: summed exactly, by the owner of each chunk as `direct` or, of short vectors, by every rank."""
