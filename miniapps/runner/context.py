"""The context that an application receives: communicator, configuration, trace, log, reducers, steps."""

from __future__ import annotations

import logging
import math
import os
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from kernels import environment
from miniapps.errors import UsageError
from miniapps.runner import faults, slow
from miniapps.runner.chained import Heads
from miniapps.runner.console import NoProgress, StepProgress
from miniapps.runner.options import RunOptions
from miniapps.runner.replay import Replay
from miniapps.runner.traced import Reducer, traced
from miniapps.runner.watch import Watch
from miniapps.system.place import Place
from miniapps.trace import Tracer
from miniapps.trace.schema import CPU_TIME, THREAD_TIME


def keeps_environment(options: RunOptions) -> bool:
    """Whether the application must compute in the default floating-point environment: under every guarantee, unless
    `fpna cause` disturbs its arithmetic."""
    return options.guarantee != "none" and "FPNA_DISTURB" not in os.environ


@dataclass
class Context:
    """Everything a repeat of an application may use; the same object serves all repeats of a launch."""

    comm: Any
    config: Any
    options: RunOptions
    tracer: Tracer
    log: logging.Logger
    out: Path
    attributes: dict[str, Any] = field(
        default_factory=dict
    )  # of the trace, as far as they are known at the start
    repeat: int = 0
    faults: list[faults.Fault] = field(default_factory=list)
    replay: Replay | None = None
    progress: StepProgress | NoProgress = field(default_factory=NoProgress)
    struck: set[str] = field(default_factory=set)
    # Descriptions of the reducers by name, as in the trace.
    reductions: dict[str, dict[str, Any]] = field(default_factory=dict)
    watch: Watch | None = (
        None  # records and injects faults between records of the state; None if neither is requested
    )
    place: Place | None = None  # the opened directory `out`
    heads: Heads | None = None  # of the chain of the run; None without a chain
    _reducers: dict[str, Reducer] = field(default_factory=dict)
    _links: Any = None  # the clock of emulated links, once a reducer needs it
    _chosen: set[tuple[int, int, str, int]] = field(default_factory=set)  # repeat, step, name, block
    _slow: slow.Slow | None = None  # slows this rank when a fault asks for it
    # (current step, (CPU time of this process, of this thread) at its beginning)
    _begun: tuple[int, tuple[float, float]] | None = None

    def __post_init__(self):
        if self.options.record == "messages" or any(f.kind in faults.INSIDE for f in self.faults):
            recording = self.options.record == "messages"
            self.watch = Watch(self.comm, self.tracer, self.faults, self.struck, recording)
        if any(fault.kind == "slow" and fault.rank == self.rank for fault in self.faults):
            self._slow = slow.Slow(self.tracer)

    def directory(self) -> Path:
        """The directory for files of the run. Raises PlaceError where it was moved, removed or replaced."""
        return self.out if self.place is None else self.place.require()

    @property
    def rank(self) -> int:
        return self.comm.rank

    @property
    def size(self) -> int:
        return self.comm.size

    @property
    def seed(self) -> int:
        return self.options.seed

    def reducer(
        self,
        name: str,
        shape: tuple[int, ...] = (),
        dtype: str = "float64",
        comm: Any = None,
        blocks: Sequence[int] | None = None,
        tree: bool = False,
        summed: bool = False,
        by: tuple[str, str] | None = None,
        collective: str = "allreduce",
        operation: Any = "sum",
        bounds: Sequence[int] | None = None,
        wire: str = "as is",
        tensors: Sequence[tuple[int, ...]] | None = None,
        watched: bool = True,
    ) -> Reducer:
        """Plans a reduction of arrays of `shape` over all ranks, or those of `comm`; it is freed with the repeat.

        The policy of the run chooses its ordering and accumulation unless `by` = (ordering, accumulation) does.
        `blocks`: the numbers of this rank's blocks, one per contribution. `tree`: the application asks for a tree over
        blocks. `summed`: as for `kernels.allreduce.plan`. `collective`, `operation`, `bounds`, `wire`, `tensors`: as
        for `kernels.allreduce.Reduction`. `watched`: whether the Watch of the run, if it has one, records
        contributions and totals and lets faults strike them. The trace describes the reduction.

        Collective. Raises ValueError for a name in use, UsageError where the replayed run has no orders of this
        reduction, and ChoiceError for a `wire` that conflicts with the other choices or the guarantee.
        """
        from kernels import allreduce

        comm = self.comm if comm is None else comm
        if name in self._reducers:
            raise ValueError(f"a reducer called {name!r} exists in this repeat; choose another name")
        policy = self.options.policy
        decided = "application" if by else "option" if policy.by_option else "guarantee"
        ordering, accumulation = by or policy.of(math.prod(shape), wire, tree)
        reduction = allreduce.Reduction(
            ordering, shape, np.dtype(dtype), accumulation=accumulation, collective=collective, operation=operation,
            bounds=bounds, wire=wire, tensors=tensors, check=self.options.check_ranks,
            packing=self.replay.packing(name, self.repeat) if self.replay and ordering == self.replay.trees else None,
        )  # fmt: skip
        if reduction.coding is not None and by is None:
            reduction.require(policy.level)
        inner = allreduce.plan(
            comm,
            reduction,
            name=name,
            blocks=blocks,
            summed=summed,
            replay=self.replay.order(name, self.repeat) if self.replay and ordering == "arrival" else None,
        )
        if self.options.links is not None:
            inner = self._over_links(self.options.links, inner, comm, blocks)
        own = 0 if blocks is None or summed else len(blocks)
        reducer = traced(name, inner, self.tracer, self.reductions, decided, own)
        if watched and self.watch is not None:
            reducer = self.watch.reducer(reducer, comm, blocks)
        self._reducers[name] = reducer
        return reducer

    def _over_links(self, links: str, inner: Any, comm: Any, blocks: Sequence[int] | None) -> Any:
        """`inner` over the emulated links of the run, which all of its reducers share."""
        from kernels.allreduce.emulation import links_of
        from kernels.allreduce.execution import emulated

        if self._links is None:
            self._links = emulated.Clock(links_of(links, self.size))
        return emulated.EmulatedReducer(inner, self._links, comm, blocks)

    def choose(
        self, name: str, measure: Callable[[], tuple[str, float]], block: int = -1, clock: bool = True
    ) -> str:
        """Returns the decision `name` of the current step, about the whole or a `block`.

        `measure()` returns (choice, score). With `--replay` the choice is the replayed run's and the score is NaN.
        `clock`: whether `measure` reads a clock; a decision computed from data inherits their guarantee.

        Every rank must call this and make the same choice, from a measurement that all ranks share; rank 0 records it.
        Raises UsageError where the replayed run lacks the decision, and for a clock under a guarantee without a replay,
        since no clock reads the same twice; ValueError for a second decision of this name in a step.
        """
        key = (self.repeat, self.tracer.step, name, block)
        if key in self._chosen:
            raise ValueError(
                f"the choice {name!r} of block {block} was already made in this step; choose another name"
            )
        self._chosen.add(key)
        level = self.options.guarantee
        if self.replay is not None:
            choice, score = self.replay.choice(name, *key[:2], block), math.nan
        elif clock and level != "none":
            raise UsageError(
                f"--guarantee {level}: a clock decides {name!r}, and no clock reads the same twice; record a run with "
                "--guarantee none, and repeat its choices with --replay RUN"
            )
        else:
            choice, score = measure()
        if self.rank == 0:
            self.tracer.choice(name, block, choice, score)
        return choice

    def begin_step(
        self,
        step: int,
        steps: int,
        peek: Callable[[int], np.ndarray | None] | None = None,
        what: str = "step",
    ) -> None:
        """Begin `step` of `steps` for the trace, the progress bar and injected faults; `what`: the word for a step.

        `peek(block)` returns the writable state array of a block that this rank owns, else None.
        """
        if keeps_environment(self.options):
            environment.reset()  # a library loaded since may have changed it
        self._begun = (step, self._end_step())
        self.tracer.at(self.repeat, step)
        self.progress.show(self.repeat, step, steps, what)
        if self.faults:
            due = faults.inject(self.faults, self.comm, self.repeat, step, peek)
            self.struck.update(fault.spec for fault in due)
            for fault in due:
                if fault.kind == "slow" and fault.rank == self.rank and self._slow is not None:
                    self._slow.by(fault.factor)

    def end_steps(self, step: int) -> None:
        """End the last step; later records belong to `step`."""
        self._end_step()
        self.tracer.at(self.repeat, step)

    def other_seeds(self, blocks: Iterable[int]) -> dict[int, int]:
        """{block: seed} of the `blocks` whose seed an injected fault replaces."""
        seeds = faults.other_seeds(self.faults, self.repeat, self.seed, blocks) if self.faults else {}
        self.struck.update(
            fault.spec for fault in self.faults if fault.kind == "seed" and fault.block in seeds
        )
        return seeds

    def extend_chain(self, checkpoint: Callable[[], bytes]) -> str:
        """Returns the head of the chain after the current step, for the checkpoint written in this step: 64 hex digits
        on rank 0, empty elsewhere and without a chain. The step must record nothing afterwards.

        `checkpoint()` returns the hash of the checkpoint; only rank 0 calls it. Collective.
        """
        if self.heads is None:
            return ""
        return self.heads.extend(checkpoint)

    def continue_chain(self, step: int, head: str) -> None:
        """Continue the chain from the `head` in the checkpoint of `step`; the same on all ranks."""
        if self.heads is not None:
            self.heads.continue_from(step, head)

    def begin_repeat(self, repeat: int) -> None:
        """Begin the repeat with this number."""
        self.repeat = repeat
        self.tracer.at(repeat, 0)
        if self.heads is not None:
            self.heads.begin_repeat()

    def end_repeat(self, state: str = "") -> None:
        """Record the remaining orders and free the reducers; `state`: fingerprint of the final state. Collective."""
        self._end_step()
        if self.heads is not None:
            self.heads.end_repeat(state)
        if self._slow is not None:
            self._slow.by(1.0)
        self.release()

    def release(self) -> None:
        """Free the reducers within a repeat, so that others can take their names. Collective."""
        self._drain()
        for reducer in self._reducers.values():
            reducer.free()
        self._reducers.clear()

    def _end_step(self) -> tuple[float, float]:
        """Record CPU times, calls and orders of the step that ends, if one has begun. Returns the current CPU times of
        this process and of this thread."""
        now = time.process_time(), time.thread_time()
        if self._begun is not None:
            step, before = self._begun
            for name, end, begin in zip((CPU_TIME, THREAD_TIME), now, before, strict=True):
                self.tracer.usage(name, step, end - begin)
            self._begun = None
        self._drain()
        return now

    def _drain(self) -> None:
        for name, reducer in self._reducers.items():
            self.reductions[name]["calls"] += reducer.drain_calls()
            self.tracer.order(name, reducer.drain_orders())
