"""A rank's step without data: every call that its program makes, and every message. No MPI.

    events = dry_run(plan, mesh, rank, "layout")

The program is the one that runs (`execution.code`), on torch's meta tensors, which have shapes but no numbers. So no
kernel runs and no array is made but buffers of messages, which stay untouched; any rank of any mesh can be asked.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from math import prod
from typing import Any

import numpy as np
import torch
from torch.multiprocessing.reductions import StorageWeakRef
from torch.utils._python_dispatch import TorchDispatchMode

from kernels.wires import PLAIN
from miniapps.partition.cuts.mesh import Mesh
from miniapps.partition.cuts.steps import ATTENTION_STEPS, Plan
from miniapps.partition.execution.bound import Added, Incoming, Moved, Operation, Outgoing
from miniapps.partition.execution.code import Writer
from miniapps.partition.execution.compute import Kernels, named
from miniapps.partition.execution.exchange import Exchange
from miniapps.partition.execution.orderings import is_exact, reduction, require_ordering
from miniapps.partition.execution.relay import size_of
from miniapps.partition.execution.ring import sights
from miniapps.partition.execution.wires import wired
from miniapps.partition.manual.messages import END
from miniapps.partition.pricing.alone import Alone
from miniapps.partition.pricing.events import Arrived, Event, KernelCall, Moves, Part, Sent, Summed, Told
from miniapps.partition.pricing.forms import META, array, empty, form, formed, plain, tensors
from miniapps.partition.pricing.talk import Talk, Talks, counted
from miniapps.partition.rules.manual import MANUAL


def dry_run(
    plan: Plan,
    mesh: Mesh,
    rank: int,
    level: str,
    threads: int = 1,
    anywhere: bool = False,
    wire: str = PLAIN,
    ordering: str = "",
) -> list[Event]:
    """All events of a step of `rank`, in order. Options as for `execution.run.Program`, whose errors it raises."""
    return dry_step(plan, mesh, rank, level, threads, anywhere, wire, ordering)[0]


def dry_step(
    plan: Plan,
    mesh: Mesh,
    rank: int,
    level: str,
    threads: int = 1,
    anywhere: bool = False,
    wire: str = PLAIN,
    ordering: str = "",
) -> tuple[list[Event], int]:
    """(`dry_run`, the most bytes that values of the step take at once, without its sources)."""
    require_ordering(ordering, level, mesh)
    alone = Alone(plan, mesh, rank, level, wire)
    recorder = Recorder()
    kernels = Recorded(level, threads, anywhere, recorder)

    def exchange(step: Moved) -> Callable:
        return Exchanged(recorder, step.node, *alone.exchange(step))

    def total(step: Added) -> Sum:
        return Sum(recorder, step, level, *alone.scatter(step), alone.blocks(step), wire, ordering)

    def relay(step: Outgoing) -> Passed:
        return Passed(recorder, step, rank, alone.peer(step))

    found = Talks(alone.plan)

    def region(step: Operation, function: Callable) -> Talking:
        return Talking(recorder, step, found.of(step.node), rank, alone.between(step))

    writer = Writer(alone.bound, kernels, exchange, total, timed=recorder.timed, relay=relay, region=region)
    text = writer.text(alone.bound.leaving)
    for name, value in writer.lines.names.items():
        if isinstance(value, torch.Tensor):
            writer.lines.names[name] = recorder.without_numbers(value)
    given = [
        empty(alone.bound.shape(name), s.tensor.dtype) if alone.bound.has(name) else None
        for s in plan.sources
        for name in [s.tensor.name]
    ]
    with torch.no_grad(), torch.device(META), recorder:
        writer.lines.compiled(text, f"<dry program of rank {rank}>")(given, 1)
    return recorder.events, recorder.held.most


# ---- stand-ins


class Recorder(TorchDispatchMode):
    """Records events; while active, also torch's operations between kernels."""

    def __init__(self) -> None:
        super().__init__()
        self.events: list[Event] = []
        self.held = Held()
        self.known: dict[tuple, Any] = {}  # forms of results of kernels
        self.numbers: dict[int, torch.Tensor] = {}  # those of constants, by the memory of their stand-ins
        self.node, self.quiet = "", 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        result = func(*args, **(kwargs or {}))
        if not self.quiet:
            fresh = not (func.is_view or func._schema.is_mutable)
            results = tuple(tensors(result)) if fresh else ()
            self.held.add(results)
            self.events.append(
                Moves(str(func), tuple(map(array, tensors((args, kwargs)))), tuple(map(array, results)))
            )
        return result

    def without_numbers(self, constant: torch.Tensor) -> torch.Tensor:
        """The stand-in of a constant."""
        found = constant.to(META)
        self.numbers[found.untyped_storage()._cdata] = constant
        return found

    def sights(self, *args: Any) -> dict[str, int]:
        """How many queries of a step of attention are `inside` the block of keys, and `behind` it."""
        rows, begin, end, causal = args[-5:-1]
        whole, at = self.numbers[rows.untyped_storage()._cdata], rows.storage_offset()
        with self.silent(), torch.device("cpu"):
            first, behind, stop = sights(whole[at : at + len(rows)], begin, end - begin, causal)
        return {"inside": behind - first, "behind": stop - behind}

    def timed(self, region: str, kind: str, function: Callable, nbytes: int) -> Callable:
        """`function`, whose events get the node of its region."""
        return Timed(self, region.removeprefix("node."), function)

    @contextmanager
    def silent(self) -> Iterator[None]:
        """A context whose operations of torch are not recorded."""
        self.quiet += 1
        try:
            yield
        finally:
            self.quiet -= 1


class Held:
    """Bytes of tensors that exist; `most`: at one time, up to a 64th less."""

    def __init__(self) -> None:
        self.most = self._sum = 0
        self._known: dict[int, tuple[StorageWeakRef, int]] = {}

    def add(self, made: Iterable[torch.Tensor]) -> None:
        """Count new tensors, but not those that share memory with a known one."""
        for tensor in made:
            storage = tensor.untyped_storage()
            known = self._known.get(storage._cdata)
            if known is not None and not known[0].expired():
                continue
            self._sum += storage.nbytes() - (0 if known is None else known[1])
            self._known[storage._cdata] = StorageWeakRef(storage), storage.nbytes()
        if self._sum > self.most + self.most // 64:  # some may be gone
            self._known = {key: each for key, each in self._known.items() if not each[0].expired()}
            self._sum = sum(nbytes for _, nbytes in self._known.values())
            self.most = max(self.most, self._sum)


class Timed:
    """A function whose events belong to a node."""

    def __init__(self, recorder: Recorder, node: str, function: Callable):
        self.recorder, self.node, self.function = recorder, node, function

    def __call__(self, *args, **kwargs):
        self.recorder.node = self.node
        return self.function(*args, **kwargs)


class Exchanged:
    """The stand-in of an exchange."""

    nbytes = 0  # of an event of its own

    def __init__(self, recorder: Recorder, node: str, real: Exchange, group: Sequence[int]):
        self.recorder, self.node, self.own, self.waits = recorder, node, real.own, real.waits
        sent = {} if real.messages is None else real.messages.sent
        self.group = tuple(group)
        self.sent = tuple((group[peer], nbytes) for peer, nbytes in sent.items())
        self.came = tuple((group[peer], nbytes) for peer, nbytes in sorted(real.received.items()))
        self.begun: list[torch.Tensor] = []

    def __call__(self, *xs: torch.Tensor) -> list[torch.Tensor]:
        return self._made("whole", xs)

    def start(self, *xs: torch.Tensor) -> None:
        """Begin."""
        self.begun = self._made("start", xs)

    def progress(self) -> None:
        """Advance, which takes no event."""

    def finish(self) -> list[torch.Tensor]:
        """The results, without numbers."""
        results, self.begun = self.begun, []
        self.recorder.events.append(Sent(self.node, self.group, self.sent, 0, part="finish", came=self.came))
        return results

    def _made(self, part: Part, xs: Sequence[torch.Tensor]) -> list[torch.Tensor]:
        with self.recorder.silent():
            results = [empty(own.shape, x.dtype) for own, x in zip(self.own, xs, strict=True)]
        self.recorder.held.add(results)
        stays = sum(array(x).nbytes for x in results)
        self.recorder.events.append(Sent(self.node, self.group, self.sent, stays, part=part, came=self.came))
        return results


class Passed:
    """The stand-in of a message between stages."""

    region = ("", "")
    nbytes = 0  # of an event of its own

    def __init__(self, recorder: Recorder, step: Outgoing, rank: int, peer: int):
        self.recorder, self.step, self.rank, self.peer = recorder, step, rank, peer

    def __call__(self, *xs: torch.Tensor) -> list[torch.Tensor]:
        step, recorder, nbytes = self.step, self.recorder, size_of(self.step)
        if isinstance(step, Incoming):
            with recorder.silent():
                found = [
                    empty(step.shape, step.dtype) for _ in range(1 if step.count is None else step.count)
                ]
            recorder.held.add(found)
            recorder.events.append(Arrived(step.node, self.peer, nbytes, step.tag))
            return found
        group = tuple(sorted((self.rank, self.peer)))
        recorder.events.append(Sent(step.node, group, ((self.peer, nbytes),), 0, step.tag))
        return []


class Talking:
    """The stand-in of the calls of a manual region whose blocks send messages; `group`: the ranks that have blocks."""

    def __init__(self, recorder: Recorder, step: Operation, talk: Talk, rank: int, group: Sequence[int]):
        self.recorder, self.step, self.talk, self.own = recorder, step, talk, talk.blocks(step)
        self.group, self.others = tuple(group), [peer for peer in group if peer != rank]

    def __call__(self, *calls: tuple) -> list[list[torch.Tensor]]:
        recorder, talk, node = self.recorder, self.talk, self.step.node
        with recorder.silent():
            found = [[empty(*each) for each in talk.results[k]] for k in self.own]
        about = ("blocks", len(talk.lines)), ("calls", len(calls))
        for k, args, results in zip(self.own, calls, found, strict=True):
            recorder.events.append(
                KernelCall(
                    node, self.step.target, False, tuple(map(array, tensors(args))), (plain(args), about),
                    tuple(map(array, results)), flops=talk.flops[k],
                )
            )  # fmt: skip
            recorder.held.add(results)
        if self.group:
            said = [(each.what, each.letter, each.nbytes(self.own)) for each in talk.messages]
            for what, letter, nbytes in (*said, (END, "", 0)):
                to = tuple((peer, nbytes) for peer in self.others)
                recorder.events.append(Told(node, self.group, what, letter, to))
        return found


class Kernel:
    """A kernel that records its call and returns results without numbers. `result`: a function that returns them;
    `counts`: and their floating-point operations. `about`: returns further named constants of a call."""

    def __init__(
        self,
        recorder: Recorder,
        target: str,
        own: bool,
        result: Callable,
        blocks: Sequence[int] = (),
        apart: bool = False,
        counts: bool = False,
        about: Callable[..., dict[str, int]] | None = None,
    ):
        self.recorder, self.target, self.own, self.result = recorder, target, own, result
        self.blocks, self.apart, self.counts, self.about = tuple(blocks), apart, counts, about

    def __call__(self, *args, **kwargs):
        recorder = self.recorder
        operands = list(tensors((args, kwargs)))
        more = self.about(*args) if self.about else {}
        constants = plain(args), tuple(sorted((plain(kwargs) | more).items()))
        key = (
            self.target,
            constants,
            len(self.blocks) * self.apart,
            tuple((x.shape, x.stride(), x.dtype) for x in operands),
        )
        with recorder.silent():
            if (known := recorder.known.get(key)) is None:  # torch finds shapes slowly
                found, flops = self.result(*args, **kwargs), 0
                if self.counts:
                    found, flops = found
                given, made = tuple(map(array, operands)), tuple(map(array, tensors(found)))
                recorder.known[key] = form(found, operands), flops, given, made
            else:
                of, flops, given, made = known
                found = formed(of, operands)
        recorder.events.append(
            KernelCall(recorder.node, self.target, self.own, given, constants, made, self.blocks, flops)
        )
        recorder.held.add(tensors(found))
        return found


class Recorded(Kernels):
    """The functions of `Kernels`, as kernels that record their calls."""

    def __init__(self, level: str, threads: int, anywhere: bool, recorder: Recorder):
        super().__init__(level, threads, anywhere)
        self.recorder = recorder

    def function(self, target: str, kernel: str, kwargs: dict[str, Any]) -> Callable:
        """The kernel of an operation; raises what `Kernels.function` raises."""
        real = super().function(target, kernel, kwargs)
        if kernel == "create":
            return real
        if kernel == MANUAL:  # the user's function, on tensors without numbers
            return Kernel(self.recorder, target, False, partial(counted, real), counts=True)
        result = _convolution(target) if target.startswith("conv.") else named(target)
        about = self.recorder.sights if target in ATTENTION_STEPS else None
        return Kernel(
            self.recorder, target, self.own(target, kernel, kwargs) is not None, result, about=about
        )

    def over_blocks(self, target: str, lengths: Sequence[int], apart: bool) -> Callable:
        """The kernel of a product or a sum over blocks."""
        result = _convolution(target) if target.startswith("conv.") else named(target)
        if apart:
            return Kernel(self.recorder, target, True, _apart(result, len(lengths)), lengths, apart=True)
        return Kernel(self.recorder, target, True, result, lengths)

    def drawn(
        self, step: Operation, indices: Sequence[np.ndarray], whole: Sequence[int], seed: int
    ) -> Callable:
        """The stand-in of a function that draws random numbers."""

        def made(shapes: Sequence[tuple[int, ...]], number: int, *operands: torch.Tensor):
            found = [empty(*each) for each in zip(shapes, step.dtypes, strict=True)]
            return found[0] if len(found) == 1 else tuple(found)

        return partial(Kernel(self.recorder, step.target, True, made), step.shapes)


class Sum:
    """The stand-in of `execution.totals.Total`."""

    def __init__(
        self, recorder: Recorder, step: Added, level: str, group: Sequence[int], scatter, blocks, wire: str,
        ordering: str,
    ):  # fmt: skip
        self.recorder, self.step, self.scatter = recorder, step, scatter
        n = sum(prod(shape) for shape in step.shapes)
        bounds = None if scatter is None else scatter.bounds
        if blocks is None:
            described = reduction(
                level, step.combine, step.dtype, n if bounds is None else bounds[-1], bounds, ordering
            )
        else:
            described = wired(level, blocks.count, wire)
        exact = is_exact(described, level)
        self.trees = described.ordering == "block-tree"
        self.reducer = True if group or exact or blocks is not None else None
        self.count = len(step.rows.numbers) if exact else len(step.rows.subtrees) if self.trees else 1
        self.event = Summed(
            step.node, tuple(group), described.ordering, described.accumulation or "", step.dtype,
            prod(described.shape), self.count, scatter is not None, described.wire,
        )  # fmt: skip
        self.part: Part = "whole"

    def packers(self, operand: int) -> list[Callable]:
        """A function for each partial, which copies it."""

        def pack(x: torch.Tensor) -> None:
            self.recorder.events.append(Moves("pack", (array(x),), (array(x),)))

        return [pack] * self.count

    def start(self) -> None:
        """Begin."""
        self.recorder.events.append(replace(self.event, part="start"))
        self.part = "finish"

    def progress(self) -> None:
        """Advance, which takes no event."""

    def finish(self) -> list[torch.Tensor]:
        """The totals, without numbers."""
        return self.total()

    def total(self) -> list[torch.Tensor]:
        """The totals, without numbers."""
        self.recorder.events.append(replace(self.event, part=self.part))
        shapes = self.step.shapes if self.scatter is None else [shape for shape, _ in self.scatter.parts]
        with self.recorder.silent():
            found = [empty(shape, self.step.dtype) for shape in shapes]
        self.recorder.held.add(found)
        return found


def _convolution(target: str) -> Callable:
    """A function with the arguments of `Kernels.convolution` that returns only the shape of the result."""
    kind = target.split(".")[1]

    def result(x, w, stride, dilation, groups, transposed, sides, size):
        if kind == "weight":
            return empty((w.shape[1], x.shape[1] // groups, *size), x.dtype)
        channels = w.shape[1] * groups if transposed else w.shape[0]
        return empty((x.shape[0], channels, *size), x.dtype)

    return result


def _apart(function: Callable, count: int) -> Callable:
    """A sum that keeps the sums of `count` blocks apart."""

    def apart(*args, **kwargs):
        found = function(*args, **kwargs)
        return empty((count, *found.shape), found.dtype)

    return apart
