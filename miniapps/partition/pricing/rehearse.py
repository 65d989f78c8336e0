"""Times a rank's step without the other ranks: the program that runs, on numbers of the right kind.

    rehearsal = Rehearsal(plan, mesh, rank, "layout", inputs)
    ran = rehearsal.run()                # .seconds of each call, .rest between them, what disturbed them

Each call is timed where it stands in the step, with the memory and the caches as the calls before it left them. What
other ranks would send is zero. No MPI: any rank of any mesh can be rehearsed on one core.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
import torch

from kernels.guarantees import meets
from kernels.wires import PLAIN
from miniapps.partition.cuts.mesh import Mesh
from miniapps.partition.cuts.steps import Plan
from miniapps.partition.execution.bound import Added, Incoming, Moved, Operation, Outgoing
from miniapps.partition.execution.code import Writer
from miniapps.partition.execution.compute import Kernels
from miniapps.partition.execution.given import constant_of, part_of
from miniapps.partition.execution.regions import region_of
from miniapps.partition.execution.relay import Relay
from miniapps.partition.execution.totals import Total
from miniapps.partition.manual.messages import END
from miniapps.partition.pricing.alone import Alone, Nobody, Others
from miniapps.partition.pricing.dry import dry_run
from miniapps.partition.pricing.events import KernelCall, Sent
from miniapps.partition.pricing.talk import Talk, Talks
from miniapps.system.quantum import undisturbed

SMALL = 0.05  # standard deviation of parameters
TRIES, EMPTY = 20, 200  # runs and calls by which a clock measures itself
SHORTEST_S = 1e-9
EVERY_S = 0.005  # from one quantum of work to the next


class Rehearsal:
    """The step of one rank, ready to run. `inputs`: the whole inputs of the model; `parts`: this rank's parts of the
    sources; `events`: all of the step. Raises what `Program` raises."""

    def __init__(
        self,
        plan: Plan,
        mesh: Mesh,
        rank: int,
        level: str,
        inputs: Sequence[torch.Tensor],
        threads: int = 1,
        anywhere: bool = False,
        wire: str = PLAIN,
    ):
        self.threads = 1 if meets(level, "layout") or anywhere else threads
        alone, self._clock = Alone(plan, mesh, rank, level, wire), Clock(clock_of(threads))
        self._step = _step(alone, level, Clocked(level, threads, anywhere, self._clock), self._clock)
        self.parts = sources(alone, inputs)
        self.events = dry_run(plan, mesh, rank, level, threads, anywhere, wire)
        self.number = 0

    @property
    def timed(self) -> list[KernelCall | Sent]:
        """The events that have a time of their own: kernels and exchanges, in order."""
        return [event for event in self.events if isinstance(event, KernelCall | Sent)]

    def run(self) -> Ran:
        """Runs the step."""
        torch.set_num_threads(self.threads)
        self.number += 1
        clock = self._clock
        clock.begin()
        with torch.no_grad():
            begin, used = time.perf_counter(), time.process_time()
            self._step(self.parts, self.number)
            whole, used = time.perf_counter() - begin, time.process_time() - used
        return clock.end(used / whole)


def sources(alone: Alone, inputs: Sequence[torch.Tensor]) -> list[Any]:
    """A rank's parts of all sources: of the `inputs`, of constants, and random parameters and buffers; None for
    sources of other stages."""
    generator = torch.Generator().manual_seed(0)
    found: list[Any] = []
    for source in alone.plan.sources:
        name = source.tensor.name
        if not alone.bound.has(name):
            found.append(None)
            continue
        if source.kind in ("constant", "input"):
            whole = constant_of(source) if source.kind == "constant" else inputs[int(source.key)]
            found.append(part_of(alone.bound.place, alone.plan.values[name], whole))
            continue
        part = torch.zeros(alone.bound.shape(name), dtype=getattr(torch, source.tensor.dtype))
        if part.is_floating_point():
            part.normal_(0.0, SMALL, generator=generator)
            part = part.abs_() if source.kind == "buffer" else part  # variances are positive
        found.append(part)
    return found


def clock_of(threads: int) -> Callable[[], float]:
    """A clock, s, for work of so many threads: the CPU time of this one, in which nothing else on its core counts, or
    wall time if others work for it."""
    return time.thread_time if threads == 1 else time.perf_counter


class Ran(NamedTuple):
    """`seconds` of each of `Rehearsal.timed` (n,), and whether nothing disturbed it, `good` (n,); seconds of the `rest`
    of the step, all between these calls, and whether most of it was undisturbed, `rested`; the `share` of the processor
    that the step got. All without the seconds of the clock."""

    seconds: np.ndarray
    good: np.ndarray
    rest: float
    rested: bool
    share: float


class Clock:
    """The seconds of calls by the clock `now`, in their order. `in_call`, `around_call`: what the clock adds to each,
    and beside it. About every EVERY_S it looks whether something else uses the core."""

    def __init__(self, now: Callable[[], float]) -> None:
        self._now = now
        self.taken: list[float] = []
        # (calls so far, whether the core was undisturbed, when the look began and ended)
        self._looks: list[tuple[int, bool, float, float]] = []
        self._due = float("inf")

        def nothing() -> None:
            pass

        timed = self.around(nothing)
        in_call, around_call = [], []
        for _ in range(TRIES):
            self.taken = []
            first = now()
            for _ in range(EMPTY):
                nothing()
            second = now()
            for _ in range(EMPTY):
                timed()
            third = now()
            recorded = sum(self.taken)
            in_call.append((recorded - (second - first)) / EMPTY)
            around_call.append((third - second - recorded) / EMPTY)
        self.in_call, self.around_call = max(min(in_call), 0.0), max(min(around_call), 0.0)

    def begin(self) -> None:
        """Begin a step."""
        self.taken, self._looks = [], []
        self.look()

    def look(self) -> None:
        """Look whether something else uses the core."""
        begin = self._now()
        good = undisturbed()
        end = self._now()
        self._looks.append((len(self.taken), good, begin, end))
        self._due = end + EVERY_S

    def end(self, share: float) -> Ran:
        """What the step took."""
        self.look()
        taken, good, rests = np.array(self.taken), np.zeros(len(self.taken), bool), [(0.0, 0), (0.0, 0)]
        for (first, before, _, begin), (last, after, end, _) in pairwise(self._looks):
            good[first:last] = fine = before and after
            rest, calls = rests[fine]
            between = end - begin - taken[first:last].sum() - (last - first) * self.around_call
            rests[fine] = rest + between, calls + last - first
        (disturbed, _), (rest, calls) = rests
        rested = 2 * calls >= len(taken)
        rest = rest * len(taken) / max(calls, 1) if rested else rest + disturbed
        return Ran(np.maximum(taken - self.in_call, SHORTEST_S), good, max(rest, SHORTEST_S), rested, share)

    def around(self, function: Callable) -> Callable:
        """`function`, timed."""
        now = self._now

        def timed(*args: Any, **kwargs: Any):
            begin = now()
            result = function(*args, **kwargs)
            end = now()
            self.taken.append(end - begin)
            if end > self._due:
                self.look()
            return result

        return timed

    def shared(self, function: Callable, count: int) -> Callable:
        """`function`, which makes `count` calls side by side; each gets an equal share of its time."""
        now = self._now

        def timed(*args: Any):
            begin = now()
            result = function(*args)
            self.taken += [(now() - begin) / count] * count
            return result

        return timed if count else function


class Clocked(Kernels):
    """The functions of `Kernels`, timed."""

    def __init__(self, level: str, threads: int, anywhere: bool, clock: Clock):
        super().__init__(level, threads, anywhere)
        self.clock = clock

    def function(self, target: str, kernel: str, kwargs: dict[str, Any]) -> Callable:
        """The kernel of an operation; raises what `Kernels.function` raises."""
        real = super().function(target, kernel, kwargs)
        return real if kernel == "create" else self.clock.around(real)

    def over_blocks(self, target: str, lengths: Sequence[int], apart: bool) -> Callable:
        """The kernel of a product or a sum over blocks."""
        return self.clock.around(super().over_blocks(target, lengths, apart))

    def drawn(
        self, step: Operation, indices: Sequence[np.ndarray], whole: Sequence[int], seed: int
    ) -> Callable:
        """The function that draws random numbers."""
        return self.clock.around(super().drawn(step, indices, whole, seed))


def _step(alone: Alone, level: str, kernels: Clocked, clock: Clock) -> Callable:
    """The compiled step of a rank, whose messages nobody receives."""

    def exchange(step: Moved) -> Callable:
        real, _ = alone.exchange(step)
        call: Any = clock.around(real)
        call.nbytes, call.waits, call.progress = (
            0,
            real.waits,
            real.progress,
        )  # bytes are of an event of its own
        call.start, call.finish = clock.around(real.start), clock.around(real.finish)
        return call

    def total(step: Added) -> Total:
        group, scatter = alone.scatter(step)
        about = step.rows, step.combine, step.dtype, step.shapes, step.node
        more = scatter, alone.wire, alone.blocks(step)
        if not group:
            return Total(None, level, *about, None, *more)
        return Total(Nobody(), level, *about, partial(_Unsent, group.index(alone.rank)), *more)

    messages = Relay(Nobody())

    def relay(step: Outgoing) -> Callable:
        call = messages(step)
        return call if isinstance(step, Incoming) else clock.around(call)

    found = Talks(alone.plan)

    def region(step: Operation, function: Callable) -> Callable:
        talk, group = found.of(step.node), alone.between(step)
        comm = Others(list(answers(talk, talk.blocks(step)))) if group else None
        untimed = Kernels(level).function(step.target, step.kernel, dict(step.kwargs))
        return clock.shared(region_of(step, untimed, comm), len(step.calls))

    writer = Writer(alone.bound, kernels, exchange, total, relay=relay, region=region)
    text = writer.text(alone.bound.leaving)
    return writer.lines.compiled(text, f"<rehearsal of rank {alone.rank}>")


def answers(talk: Talk, own: Sequence[int]) -> Iterator[tuple]:
    """What other ranks send in each message of a region on which this rank has the blocks `own`
    (`manual.messages.Together.exchanged`): zeros."""
    others = [k for k in range(len(talk.lines)) if k not in own]
    for said in talk.messages:
        sent = [(talk.lines[k], np.zeros(*said.forms[k])) for k in others]
        yield [(said.what, said.letter)], "", sent
    yield [(END, "")], "", []


class _Unsent:
    """A reducer that returns the first contribution of this rank, the one at `place` in its group."""

    def __init__(self, place: int, comm, reduction, name: str, blocks, summed: bool):
        self.part = slice(None) if reduction.bounds is None else slice(*reduction.bounds[place : place + 2])

    def __call__(self, buffer: np.ndarray) -> np.ndarray:
        return buffer[0, self.part]

    def start(self, buffer: np.ndarray) -> None:
        """Begin, as `kernels.allreduce` does."""
        self.buffer = buffer

    def progress(self) -> None:
        """Advance nothing."""

    def finish(self) -> np.ndarray:
        """What a call returns."""
        return self(self.buffer)
