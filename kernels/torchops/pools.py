"""Pools of threads of this process: finds them, sets all or one of them, and measures CPU time of other threads.

torch sets its own threads, threadpoolctl those of OpenBLAS, MKL, BLIS and other OpenMP libraries, and numba, numexpr
and pyarrow set theirs, where the process has them. Work of other threads shows only in their CPU time.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

APIS = {"openblas": "OpenBLAS", "mkl": "MKL", "blis": "BLIS", "openmp": "OpenMP", "flexiblas": "FlexiBLAS"}
# Packages with threads whose number cannot be set once they have started.
UNSET = (
    "jax",
    "tensorflow",
    "onnxruntime",
    "openvino",
    "polars",
    "ray",
    "dask",
    "duckdb",
    "tbb",
    "mxnet",
    "paddle",
)
NO_LIBRARIES = "threads of BLAS and OpenMP libraries beside torch's: threadpoolctl is not installed"
ASIDE_S = 30e-6  # CPU time of other threads in a call, from which they count as working
PROBES = 3  # calls, all of which must exceed ASIDE_S


@dataclass
class Pool:
    """One pool. `reached`: {requested number of threads: actual number}."""

    name: str
    set: Callable[[int], Any] = field(repr=False)
    get: Callable[[], int] = field(repr=False)
    reached: dict[int, int] = field(default_factory=dict)

    def hold(self, count: int) -> None:
        """Sets `count` threads, or the nearest possible number below."""
        try:
            self.set(count)
        except ValueError:  # numba fixes its largest number when it starts
            most = max((n for n in range(1, count) if self._takes(n)), default=self.get())
            self.set(most)
        self.reached[count] = self.get()

    def _takes(self, count: int) -> bool:
        try:
            self.set(count)
        except ValueError:
            return False
        return True


class Pools:
    """The pools that this process has now in `all`, torch's first; `lacking`: the pools that cannot be found."""

    def __init__(self) -> None:
        self.all = [Pool("torch", torch.set_num_threads, torch.get_num_threads)]
        libraries, self.lacking = _libraries()
        self.all += [*libraries, *_of_packages()]

    @contextmanager
    def held(self, count: int, alone: str | None = None) -> Iterator[None]:
        """A context with all pools at `count` threads, or only the pool `alone` and the others at 1."""
        before = [(pool, pool.get()) for pool in self.all]
        try:
            for pool in self.all:
                pool.hold(count if alone in (None, pool.name) else 1)
            yield
        finally:
            for pool, earlier in before:
                pool.set(earlier)

    def varied(self) -> dict[str, list[int]]:
        """{pool: its numbers of threads so far}; a single number where it could not be changed."""
        return {pool.name: sorted(set(pool.reached.values())) for pool in self.all}


def _libraries() -> tuple[list[Pool], str]:
    """(pools of threadpoolctl without those that torch sets itself, ""), or ([], why there are none)."""
    try:
        from threadpoolctl import ThreadpoolController
    except ImportError:
        return [], NO_LIBRARIES
    before = torch.get_num_threads()
    controllers = ThreadpoolController().lib_controllers
    own = {id(each) for each in controllers}
    try:
        for count in (3, 2):
            torch.set_num_threads(count)
            own = {id(each) for each in controllers if id(each) in own and each.get_num_threads() == count}
    finally:
        torch.set_num_threads(before)
    pools: dict[str, Pool] = {}
    for each in controllers:
        if id(each) not in own:
            name = _named(each)
            while name in pools:
                name += "'"
            pools[name] = Pool(name, each.set_num_threads, each.get_num_threads)
    return list(pools.values()), ""


def _named(controller: Any) -> str:
    """A name such as `OpenBLAS of numpy`: the library and the package that contains it, or its file."""
    parts = Path(controller.filepath).parts
    at = max((n for n, part in enumerate(parts) if part in ("site-packages", "dist-packages")), default=-1)
    owner = parts[at + 1].removesuffix(".libs") if 0 <= at < len(parts) - 1 else parts[-1]
    return f"{APIS.get(controller.internal_api, controller.internal_api)} of {owner}"


def _of_packages() -> Iterator[Pool]:
    """Pools of imported packages that have started them."""
    parallel = sys.modules.get("numba.np.ufunc.parallel")
    if getattr(parallel, "_is_initialized", False):
        numba = sys.modules["numba"]
        yield Pool("numba", numba.set_num_threads, numba.get_num_threads)
    if (numexpr := sys.modules.get("numexpr")) and hasattr(numexpr, "get_num_threads"):
        yield Pool("numexpr", numexpr.set_num_threads, numexpr.get_num_threads)
    if (arrow := sys.modules.get("pyarrow")) and hasattr(arrow, "set_cpu_count"):
        yield Pool("pyarrow", arrow.set_cpu_count, arrow.cpu_count)


def aside(call: Callable[[], Any]) -> float:
    """CPU time of other threads of this process during `call`, in seconds, the least of PROBES; 0.0 below ASIDE_S. Call
    it with all pools held at one thread."""
    time.sleep(0.01)  # threads from earlier work fall asleep
    least = min(_aside(call) for _ in range(PROBES))
    return least if least >= ASIDE_S else 0.0


def _aside(call: Callable[[], Any]) -> float:
    own, every = time.thread_time_ns(), time.process_time_ns()
    call()
    every = time.process_time_ns() - every
    return max(0.0, (every - (time.thread_time_ns() - own)) * 1e-9)


def unset() -> list[str]:
    """Packages of this process whose threads cannot be set."""
    return [name for name in UNSET if name in sys.modules]
