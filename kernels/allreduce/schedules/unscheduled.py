"""Orderings without a schedule of ours."""

from __future__ import annotations

from kernels.allreduce.ordering import ordering


@ordering("library", guarantee="none", why="library, algorithm, rank count, length and placement decide")
def library(size: int) -> None:
    """The MPI library's own all-reduce of floating-point numbers."""


@ordering("arrival", guarantee="none", why="whichever contribution arrives first at rank 0 is added first")
def arrival(size: int) -> None:
    """Rank 0 adds contributions as they arrive, its own first, and broadcasts; logs the order for replay."""
