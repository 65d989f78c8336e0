"""Who reads many files: this process, processes of this node, or the ranks of an MPI job."""

from __future__ import annotations

import multiprocessing
import os
import sys
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Executor, ProcessPoolExecutor
from contextlib import contextmanager

AHEAD = 2  # tasks per process that wait or whose results do: more would only take memory


@contextmanager
def mapper(tasks: int, processes: int | None) -> Iterator[Callable[[Callable, Iterable], Iterator]]:
    """A function like `map` for `tasks` tasks, whose results come in order.

    Under `mpirun -n N python -m mpi4py.futures` the other N - 1 ranks do the work; otherwise `processes` processes
    (None: one per core that this process may use), or this process where that is one, or there is but one task.
    """
    if tasks <= 1:
        yield map
        return
    if workers := _ranks():
        from mpi4py.futures import MPIPoolExecutor

        with MPIPoolExecutor() as pool:
            yield lambda function, items: _in_order(pool, function, items, AHEAD * workers)
        return
    workers = min(processes or len(os.sched_getaffinity(0)), tasks)
    if workers <= 1:
        yield map
        return
    context = multiprocessing.get_context("spawn")  # HDF5 and threads do not survive a fork
    with ProcessPoolExecutor(workers, mp_context=context) as pool:
        yield lambda function, items: _in_order(pool, function, items, AHEAD * workers)


def _ranks() -> int:
    """Ranks of this MPI job that wait for work; 0 where there are none."""
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
