"""The suite's own engine: plans a schedule once and runs it by C++ kernels; weights and sample alone determine bits."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence

import numpy as np

from kernels import _native
from kernels.guarantees import ChoiceError
from kernels.inference.arrays import batch_of
from kernels.inference.capture import export, graph_of
from kernels.inference.lower import plan
from kernels.inference.schedule import LEVELS, Schedule
from kernels.missing import missing
from kernels.registry import variant
from kernels.threads import checked, cores


class Static:
    """A network that is ready to run: `network(x) -> y`, float32 `(batch, *sample)` to `(batch, *result)`.

    `threads` share the samples; `level` is an instruction set of `LEVELS`, None for the best of this processor. Neither
    changes bits. May be called from several threads at once.
    """

    def __init__(
        self,
        schedule: Schedule,
        threads: int = 1,
        level: str | None = None,
        again: Callable[[Sequence[np.ndarray]], Schedule] | None = None,
    ):
        if level is not None and level not in LEVELS:
            raise ChoiceError(f"unknown instruction set {level!r}: this processor has {', '.join(LEVELS)}")
        self.schedule, self.threads = schedule, checked(threads) or cores()
        self.level = -1 if level is None else LEVELS.index(level)
        self._again = again
        sizes = (int(np.prod(shape)) for shape in (schedule.sample, schedule.result))
        self._program = _native.StaticProgram(
            schedule.program(), schedule.constants, schedule.tables, *sizes, schedule.arena, schedule.tile
        )
        self._scratch: np.ndarray = self._arena()
        self._busy = threading.Lock()

    def __call__(self, x: np.ndarray) -> np.ndarray:
        schedule = self.schedule
        x = batch_of(x, schedule.sample, schedule.batched)
        y = np.empty((len(x), *schedule.result), np.float32)
        if self._busy.acquire(blocking=False):
            try:
                self._program.run(x, y, self._scratch, self.threads, self.level)
            finally:
                self._busy.release()
        else:
            self._program.run(x, y, self._arena(), self.threads, self.level)
        return y if schedule.batched else y[0]

    def load(self, weights: Mapping[str, np.ndarray]) -> None:
        """Loads other weights of the same shapes without a new export. No call may be in progress. Raises ValueError
        for other shapes."""
        if self._again is None:
            raise ValueError(
                "this network was built from a schedule alone: build another one for other weights"
            )
        Static.__init__(self, self._again(list(weights.values())), self.threads, self._level(), self._again)

    def _level(self) -> str | None:
        return None if self.level < 0 else LEVELS[self.level]

    def _arena(self) -> np.ndarray:
        memory = np.empty(self.threads * self.schedule.arena + 16, np.float32)
        begin = -memory.ctypes.data // 4 % 16
        return memory[begin : begin + self.threads * self.schedule.arena]


@variant(
    "inference",
    "static",
    backend="native",
    guarantee="layout",
    why="every output adds over k ascending, each product rounded, then added; a vector holds many outputs and never "
    "two terms of one; exp, tanh and log are the engine's own polynomials",
    available=missing("torch"),
)
def compile(
    forward: Callable,
    weights: Mapping[str, np.ndarray],
    sample: tuple[int, ...],
    threads: int = 1,
    batched: bool = True,
) -> Static:
    """Exports `forward`, plans its schedule and packs its weights. Raises graph.Unsupported for missing operations.

    The bits of a sample's result depend on weights and sample alone: not on the batch, the place in it, threads,
    addresses, or the width of vectors. Compilation needs torch; the network runs without it.
    """
    program = export(forward, weights, sample, batched)
    shapes = [np.shape(array) for array in weights.values()]

    def scheduled(arrays: Sequence[np.ndarray]) -> Schedule:
        if [np.shape(array) for array in arrays] != shapes:
            raise ValueError(
                f"weights of shapes {[np.shape(x) for x in arrays]}: {shapes} are expected, in this order"
            )
        return plan(graph_of(program, sample, batched, arrays))

    return Static(scheduled(list(weights.values())), threads, again=scheduled)
