"""What the blocks of a manual region send and return, without numbers and without other ranks. No MPI.

    talk = Talks(plan).of(node)
    talk.messages                     # in their order, with the shape of each block's tensor

Blocks of one shape do the same, so one of each shape is called, on torch's meta tensors.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

import torch
from torch.utils.flop_counter import FlopCounterMode

from kernels.guarantees import ChoiceError
from miniapps.errors import UsageError
from miniapps.partition.cuts.mesh import Mesh
from miniapps.partition.cuts.steps import Plan
from miniapps.partition.execution.bind import bind
from miniapps.partition.execution.bound import Operation
from miniapps.partition.execution.compute import Kernels
from miniapps.partition.execution.regions import lines_of, talks
from miniapps.partition.graphs.graph import ITEMSIZE
from miniapps.partition.manual.messages import Line, Together
from miniapps.partition.pricing.forms import META, array, empty
from miniapps.partition.rules.manual import parsed

Form = tuple[tuple[int, ...], str]  # shape and dtype


@dataclass(frozen=True)
class Said:
    """A message that all blocks of a region send: `what`, as in `manual.messages`, along a `letter`; the form of each
    block's tensor."""

    what: str
    letter: str
    forms: tuple[Form, ...]

    def nbytes(self, blocks: Sequence[int]) -> int:
        """Bytes that these blocks send to each other rank."""
        return sum(prod(shape) * ITEMSIZE[dtype] for shape, dtype in (self.forms[k] for k in blocks))


@dataclass(frozen=True)
class Talk:
    """A region: the `lines` of its blocks on all ranks, their `messages` in order, and of each block the forms of its
    `results` and its floating-point operations."""

    lines: tuple[Line, ...]
    messages: tuple[Said, ...]
    results: tuple[tuple[Form, ...], ...]
    flops: tuple[int, ...]

    def blocks(self, step: Operation) -> list[int]:
        """The numbers of a rank's blocks among `lines`."""
        return [self.lines.index(line) for line in lines_of(step)]


class Talks:
    """The talks of a plan's regions."""

    def __init__(self, plan: Plan):
        self.plan = plan
        self._steps: dict[str, Operation] = {}
        self._shape: Callable[[str], tuple[int, ...]]
        self._known: dict[tuple, Talk] = {}

    def of(self, node: str) -> Talk:
        """The talk of a region. Raises ChoiceError if its function fails, or if its blocks send different messages."""
        if not self._steps:  # a rank with all blocks
            bound = bind(self.plan, Mesh((("ranks", 1),)), 0, by_block=False)
            self._steps = {
                step.node: step for step in bound.steps if isinstance(step, Operation) and talks(step)
            }
            self._shape = bound.shape
        step = self._steps[node]
        shapes = tuple(
            tuple(
                self._shape(name) if part is None else part.shape
                for name, part in zip(step.operands, call.parts, strict=True)
            )
            for call in step.calls
        )
        dtypes = tuple(self.plan.values[name].dtype for name in step.operands)
        key = step.target, step.args, shapes, dtypes, tuple(call.where for call in step.calls)
        if key not in self._known:
            self._known[key] = talk_of(step, shapes, dtypes)
        return self._known[key]


def talk_of(step: Operation, shapes: Sequence[tuple], dtypes: Sequence[str]) -> Talk:
    """The talk of a region with the calls of all blocks, whose operands have these shapes."""
    kinds: dict[tuple, int] = {}
    alike = [kinds.setdefault(own, k) for k, own in enumerate(shapes)]  # the first call of the same shapes
    chosen = list(kinds.values())
    flops: dict[int, int] = {}
    function = Kernels("none").function(step.target, step.kernel, {})

    def call_of(number: int) -> Callable:
        def call(*args: Any, at: Any) -> Any:
            found, flops[number] = counted(function, *args, where=step.calls[number].where, at=at)
            return found

        return call

    lines = lines_of(step)
    talk = Unsent(step, list(map(call_of, chosen)), lines, chosen, alike)
    found = talk(*(filled(step.args, list(map(empty, shapes[k], dtypes))) for k in chosen))
    forms = {k: tuple(map(form_of, results)) for k, results in zip(chosen, found, strict=True)}
    return Talk(
        tuple(lines), tuple(talk.messages), tuple(forms[k] for k in alike), tuple(flops[k] for k in alike)
    )


class Unsent(Together):
    """The `chosen` calls of a region, which stand for the calls `alike`. `messages`: what all blocks would send."""

    def __init__(
        self,
        step: Operation,
        functions: Sequence[Callable],
        lines: Sequence[Line],
        chosen: Sequence[int],
        alike: Sequence[int],
    ):
        along = parsed(str(step.args[1])).along
        super().__init__(str(step.args[0]), functions, along, [lines[k] for k in chosen], None)
        self.every, self.chosen, self.alike = lines, chosen, alike
        self.messages: list[Said] = []

    def exchanged(self, asked: Sequence[tuple]) -> tuple[str, list[tuple[Line, Any]]] | None:
        """As of `Together`, for the blocks of all ranks."""
        found = super().exchanged(asked)
        if found is None:
            return None
        letter, sent = found
        tensors = {k: x for k, (_, x) in zip(self.chosen, sent, strict=True)}
        every = [tensors[k] for k in self.alike]
        (what, _), _ = asked[0]
        self.messages.append(Said(what, letter, tuple(map(form_of, every))))
        return letter, list(zip(self.every, every, strict=True))


def counted(function: Callable, key: str, *args: Any, **kwargs: Any) -> tuple[Any, int]:
    """(the results of a region on tensors without numbers, floating-point operations). Raises ChoiceError if its
    function fails."""
    try:
        with torch.device(META), FlopCounterMode(display=False) as counter:
            found = function(key, *args, **kwargs)
    except (ChoiceError, UsageError):
        raise
    except Exception as error:
        raise ChoiceError(
            f"manual region {key}: its function fails on tensors without numbers (torch's device meta): "
            f"{type(error).__name__}: {error}; make its tensors on the device of its operands"
        ) from error
    return found, counter.get_total_flops()


def form_of(x: torch.Tensor) -> Form:
    """The form of a tensor."""
    about = array(x)
    return about.shape, about.dtype


def filled(args: Any, operands: Sequence[torch.Tensor]) -> Any:
    """The arguments of a call with an operand for each "%k"."""
    if isinstance(args, tuple):
        return tuple(filled(each, operands) for each in args)
    if isinstance(args, str) and args.startswith("%"):
        return operands[int(args[1:])]
    return args
