"""Reads many files by processes of this node, or by the ranks of an MPI job; this process opens none (`guard`)."""

from __future__ import annotations

import os
import sys
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Executor, ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

from analysis.load.guard import Ended, Guards, call, sizes, unreadable
from analysis.load.rankfile import Piece, nothing, read_piece

AHEAD = 2  # tasks per process that are submitted and not yet consumed: more would only take memory

Tasks = Iterable[list[Path]]


@contextmanager
def readers(tasks: int, processes: int | None) -> Iterator[Callable[[Tasks], Iterator[list[Piece]]]]:
    """Yields a function that reads lists of files and returns the pieces of each list, in order.

    `tasks`: the number of lists. A file that ends the process reading it gives a piece with an error.

    Under `mpirun -n N python -m mpi4py.futures` the other N - 1 ranks read, each with a process of its own; otherwise
    `processes` processes (None: one per core that this process may use).
    """
    if tasks > 1 and (workers := _ranks()):
        from mpi4py.futures import MPIPoolExecutor

        with MPIPoolExecutor() as pool:
            yield lambda items: _in_order(pool, alone, items, AHEAD * workers)
        return
    workers = max(1, min(processes or len(os.sched_getaffinity(0)), tasks))
    if workers == 1:
        yield lambda items: map(alone, items)
        return
    guards = Guards(workers)
    try:
        with ThreadPoolExecutor(workers) as pool:
            yield lambda items: _in_order(
                pool, lambda paths: _read(guards.call, paths), items, AHEAD * workers
            )
    finally:
        guards.close()


def _read(call: Callable, paths: list[Path]) -> list[Piece]:
    """Reads all `paths` in one call; if that ends the process, one by one."""
    try:
        return [call(read_piece, paths, nbytes=sizes(paths))]
    except Ended as error:
        if len(paths) == 1:
            return [nothing(unreadable(paths[0], error))]
    return [piece for path in paths for piece in _read(call, [path])]


def alone(paths: list[Path]) -> list[Piece]:
    """The pieces of `paths`, read by the shared Guard."""
    return _read(call, paths)


def _ranks() -> int:
    """The number of ranks of this MPI job that wait for work; 0 outside `mpi4py.futures`."""
    if "mpi4py.futures" not in sys.modules:
        return 0
    from mpi4py import MPI

    return MPI.COMM_WORLD.size - 1


def _in_order(pool: Executor, function: Callable, items: Iterable, ahead: int) -> Iterator:
    waiting: deque = deque()
    try:
        for item in items:
            waiting.append(pool.submit(function, item))
            if len(waiting) > ahead:
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()
    finally:
        for future in waiting:
            future.cancel()
