"""What an application is given: communicator, configuration, trace, log, reducers, beginning of a step."""

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
    """Whether an application computes in the default floating-point environment: under every guarantee, unless `fpna
    cause` disturbs its arithmetic."""
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
    repeat: int = 0
    faults: list[faults.Fault] = field(default_factory=list)
    replay: Replay | None = None
    progress: StepProgress | NoProgress = field(default_factory=NoProgress)
    struck: set[str] = field(default_factory=set)
    # What each reducer is, as in the trace.
    reductions: dict[str, dict[str, Any]] = field(default_factory=dict)
    watch: Watch | None = None  # of what passes between records; None where nobody asked for it
    place: Place | None = None  # `out` as it was opened
    heads: Heads | None = None  # of the chain of the run; None where nobody keeps one
    _reducers: dict[str, Reducer] = field(default_factory=dict)
    _links: Any = None  # the clock of emulated links, once a reducer asked for it
    _chosen: set[tuple[int, int, str, int]] = field(default_factory=set)  # repeat, step, name, block
    _slow: slow.Slow | None = None  # what an injected fault slows this rank by
    # The step under way, the CPU times of this process and of this thread when it began.
    _begun: tuple[int, tuple[float, float]] | None = None

    def __post_init__(self):
        if self.options.record == "messages" or any(f.kind in faults.INSIDE for f in self.faults):
            recording = self.options.record == "messages"
            self.watch = Watch(self.comm, self.tracer, self.faults, self.struck, recording)
        if any(fault.kind == "slow" and fault.rank == self.rank for fault in self.faults):
            self._slow = slow.Slow(self.tracer)

    def directory(self) -> Path:
        """Where to write files of the run. Raises PlaceError where that is not what it was when the run began."""
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
        by: tuple[str, str] | None = None,
        collective: str = "allreduce",
        operation: Any = "sum",
        bounds: Sequence[int] | None = None,
        wire: str = "as is",
        tensors: Sequence[tuple[int, ...]] | None = None,
        watched: bool = True,
    ) -> Reducer:
        """A reduction of arrays of `shape` as the policy of the run says, or by an (ordering, accumulation), over all
        ranks or those of `comm`; freed with the repeat. `blocks`: the numbers of this rank's blocks, one per
        contribution. `collective`, `operation`, `bounds`, `wire`, `tensors`: as for `kernels.allreduce.Reduction`.
        What it is goes into the trace. `watched`: whether contributions and totals are recorded and meet faults, where
        a run does either.

        Collective. Raises ValueError for a name in use, UsageError when the run to be replayed has no orders for it,
        and ChoiceError for a `wire` that does not go with the rest, or with the guarantee.
        """
        from kernels import allreduce

        comm = self.comm if comm is None else comm
        if name in self._reducers:
            raise ValueError(f"a reducer called {name!r} exists in this repeat; choose another name")
        policy = self.options.policy
        decided = "application" if by else "option" if policy.by_option else "guarantee"
        ordering, accumulation = by or policy.of(math.prod(shape), wire)
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
            replay=self.replay.order(name, self.repeat) if self.replay and ordering == "arrival" else None,
        )
        if self.options.links is not None:
            inner = self._over_links(self.options.links, inner, comm, blocks)
        own = 0 if blocks is None else len(blocks)
        reducer = traced(name, inner, self.tracer, self.reductions, decided, own)
        if watched and self.watch is not None:
            reducer = self.watch.reducer(reducer, comm, blocks)
        self._reducers[name] = reducer
        return reducer

    def _over_links(self, links: str, inner: Any, comm: Any, blocks: Sequence[int] | None) -> Any:
        """`inner` over the slower links of the run, which all of its reducers share."""
        from kernels.allreduce.emulation import links_of
        from kernels.allreduce.execution import emulated

        if self._links is None:
            self._links = emulated.Clock(links_of(links, self.size))
        return emulated.EmulatedReducer(inner, self._links, comm, blocks)

    def choose(
        self, name: str, measure: Callable[[], tuple[str, float]], block: int = -1, clock: bool = True
    ) -> str:
        """The decision `name` of the current step, about the whole or a `block`: the choice of `measure() -> (choice,
        score)`, or with `--replay` that of the replayed run, with the score NaN. `clock`: whether a clock takes it;
        one that data take, which have the bits that the guarantee promises, is itself as good as these.

        Every rank must call it and come to the same choice, by a measurement that all of them share; rank 0 records it.
        Raises UsageError where the run to be replayed has not decided it, and under a guarantee without a replay, since
        no clock reads the same twice; ValueError for a second decision of that name in a step.
        """
        key = (self.repeat, self.tracer.step, name, block)
        if key in self._chosen:
            raise ValueError(
                f"the choice {name!r} of block {block} is taken in this step; choose another name"
            )
        self._chosen.add(key)
        level = self.options.guarantee
        if self.replay is not None:
            choice, score = self.replay.choice(name, *key[:2], block), math.nan
        elif clock and level != "none":
            raise UsageError(
                f"--guarantee {level}: {name!r} is decided from a clock, which promises nothing; record a run with "
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
        """Say that `step` of `steps`, which people know as a `what`, begins: the trace, the progress bar and injected
        faults go by it.

        `peek(block)` returns the writable state array of a block that this rank owns, else None.
        """
        if keeps_environment(self.options):
            environment.reset()  # a library that was loaded meanwhile may have chosen another
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
        """Say that the last step is over: what follows is recorded as `step`."""
        self._end_step()
        self.tracer.at(self.repeat, step)

    def other_seeds(self, blocks: Iterable[int]) -> dict[int, int]:
        """{block: seed} of those `blocks` whose random numbers an injected fault wants drawn by another seed."""
        seeds = faults.other_seeds(self.faults, self.repeat, self.seed, blocks) if self.faults else {}
        self.struck.update(
            fault.spec for fault in self.faults if fault.kind == "seed" and fault.block in seeds
        )
        return seeds

    def extend_chain(self, checkpoint: Callable[[], bytes]) -> str:
        """The head of the chain of the run after the step under way, for the checkpoint that is written in it: 64 hex
        digits on rank 0, empty elsewhere and where there is no chain. Nothing of this step is recorded after it.

        `checkpoint()` is the hash of what is written, asked of rank 0 alone. Collective.
        """
        if self.heads is None:
            return ""
        return self.heads.extend(checkpoint)

    def continue_chain(self, step: int, head: str) -> None:
        """Go on from the `head` in the checkpoint of `step`, of which the run continues; the same on all ranks."""
        if self.heads is not None:
            self.heads.continue_from(step, head)

    def begin_repeat(self, repeat: int) -> None:
        """Make ready for another repeat."""
        self.repeat = repeat
        self.tracer.at(repeat, 0)
        if self.heads is not None:
            self.heads.begin_repeat()

    def end_repeat(self, state: str = "") -> None:
        """Record what is left of the orders and free the reducers; `state`: the fingerprint of the final state.
        Collective."""
        self._end_step()
        if self.heads is not None:
            self.heads.end_repeat(state)
        if self._slow is not None:
            self._slow.by(1.0)
        self.release()

    def release(self) -> None:
        """Free the reducers in the midst of a repeat, for others that take their names; collective."""
        self._drain()
        for reducer in self._reducers.values():
            reducer.free()
        self._reducers.clear()

    def _end_step(self) -> tuple[float, float]:
        """Record what belongs to the step that ends, if one has begun: its CPU times, calls and orders. Returns the CPU
        times of this process and of this thread now."""
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
