"""Messages inside of manual regions, between the blocks of a dim, forward and backward.

    @manual("n., .. -> n.", along="n")
    def centred(where, x, weight):
        total = where.psum(x.sum(0), "n")            # over all blocks of n
        ...

A region with `along` is called once for each block, under every guarantee. The calls of a rank run side by side, each
in a thread of its own, and wait for each other at each message; the main thread exchanges with other ranks. Sums are
taken in the binary tree over the blocks, so no bit follows the mesh. Without a plan there is one block.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from queue import SimpleQueue
from typing import Any

import numpy as np

from kernels.guarantees import ChoiceError
from miniapps.errors import UsageError

Line = Mapping[str, int]  # the first place of a call's block along each letter
END, ERROR = "the end", "an error"


class Seat:
    """One call's place among the calls of a region, which talk `along` these letters."""

    def __init__(self, along: str):
        self.along = along
        self.asked: SimpleQueue[tuple] = SimpleQueue()
        self.told: SimpleQueue[Any] = SimpleQueue()

    def everyone(self, what: str, letter: str, x: Any) -> tuple[list[Any], int]:
        """(the tensors of all blocks along a letter, in their order; the number of this call's own)."""
        self.asked.put(((what, letter), x))
        found = self.told.get()
        if isinstance(found, BaseException):
            raise found
        return found


class OneBlock(Seat):
    """The seat of the only call, on whole tensors."""

    def everyone(self, what: str, letter: str, x: Any) -> tuple[list[Any], int]:
        return [x], 0


class Where(dict[str, np.ndarray]):
    """The numbers of the places along each letter of a region, int64, and the messages between its blocks."""

    def __init__(self, places: Mapping[str, np.ndarray], at: Seat):
        super().__init__(places)
        self._at = at

    def psum(self, x: Any, letter: str) -> Any:
        """The sum of x over all blocks along a letter, in the binary tree over the blocks. x has one shape in all
        blocks. Raises UsageError for a letter that `along` lacks."""
        return _functions()[0].apply(x, self._along("psum", letter), letter)

    def all_gather(self, x: Any, letter: str, dim: int = 0) -> Any:
        """x of all blocks along a letter, joined along `dim` in the order of the blocks. Raises UsageError as
        `psum`."""
        return _functions()[1].apply(x, self._along("all_gather", letter), letter, dim)

    def ppermute(self, x: Any, letter: str, shift: int = 1) -> Any:
        """x of the block that is `shift` blocks before this one along a letter; before the first is the last. Raises
        UsageError as `psum`."""
        return _functions()[2].apply(x, self._along("ppermute", letter), letter, shift)

    def _along(self, name: str, letter: str) -> Seat:
        if letter not in tuple(self._at.along):
            raise UsageError(
                f"{name}(..., {letter!r}): the region sends along {self._at.along or 'no letter'}; decorate it with "
                f"fpna.manual(spec, along={letter!r})"
            )
        return self._at


def added(tensors: Sequence[Any]) -> Any:
    """The sum in the binary tree whose left subtree is the largest full one, as `block-tree` has it."""
    if len(tensors) == 1:
        return tensors[0]
    middle = 1 << ((len(tensors) - 1).bit_length() - 1)
    return added(tensors[:middle]) + added(tensors[middle:])


@cache
def _functions() -> tuple[Any, Any, Any]:
    """torch's functions of sum, gather and permutation, with their backward passes."""
    import torch

    class Sum(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Any, at: Seat, letter: str) -> Any:
            ctx.at, ctx.letter = at, letter
            every, _ = at.everyone("psum", letter, x)
            return added(every).clone()

        @staticmethod
        def backward(ctx: Any, gradient: Any) -> Any:
            every, _ = ctx.at.everyone("psum, backward", ctx.letter, gradient.contiguous())
            return added(every).clone(), None, None

    class Gathered(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Any, at: Seat, letter: str, dim: int) -> Any:
            every, own = at.everyone("all_gather", letter, x)
            ctx.at, ctx.letter, ctx.dim = at, letter, dim
            ctx.span = sum(part.shape[dim] for part in every[:own]), x.shape[dim]
            return torch.cat(every, dim)

        @staticmethod
        def backward(ctx: Any, gradient: Any) -> Any:
            every, _ = ctx.at.everyone("all_gather, backward", ctx.letter, gradient.contiguous())
            return added([each.narrow(ctx.dim, *ctx.span) for each in every]).clone(), None, None, None

    class Permuted(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Any, at: Seat, letter: str, shift: int) -> Any:
            ctx.at, ctx.letter, ctx.shift = at, letter, shift
            every, own = at.everyone("ppermute", letter, x)
            return every[(own - shift) % len(every)].clone()

        @staticmethod
        def backward(ctx: Any, gradient: Any) -> Any:
            every, own = ctx.at.everyone("ppermute, backward", ctx.letter, gradient.contiguous())
            return every[(own + ctx.shift) % len(every)].clone(), None, None, None

    return Sum, Gathered, Permuted


class Together:
    """The calls of one region on a rank: `functions` and `lines` of each call; `comm`: of the ranks that have the other
    blocks along its letters, None without."""

    def __init__(self, key: str, functions: Sequence[Callable], along: str, lines: Sequence[Line], comm: Any):
        self.key, self.functions, self.along, self.lines, self.comm = key, functions, along, lines, comm

    def __call__(self, *calls: tuple) -> list[Any]:
        """The results of each call, of its arguments. Raises what a call raises, on all ranks."""
        import torch

        seats = [Seat(self.along) for _ in calls]
        threads = torch.get_num_threads()

        def work(at: Seat, function: Callable, args: tuple) -> None:
            torch.set_num_threads(threads)
            try:
                with torch.no_grad():
                    found = (END, ""), function(*args, at=at)
            except BaseException as error:
                found = (ERROR, ""), error
            at.asked.put(found)

        workers = [
            threading.Thread(target=work, args=each, daemon=True)
            for each in zip(seats, self.functions, calls, strict=True)
        ]
        for worker in workers:
            worker.start()
        while True:
            asked = [at.asked.get() for at in seats]
            try:
                every = self.exchanged(asked)
            except Exception as error:
                for at, ((what, _), _) in zip(seats, asked, strict=True):
                    if what not in (END, ERROR):
                        at.told.put(error)
                raise
            if every is None:
                return [found for _, found in asked]
            letter, blocks = every
            for at, line in zip(seats, self.lines, strict=True):
                at.told.put(along_letter(blocks, line, letter))

    def exchanged(self, asked: Sequence[tuple]) -> tuple[str, list[tuple[Line, Any]]] | None:
        """(letter, pairs (line, tensor) of the calls on all ranks); None at the end. Raises what a call raised, and
        ChoiceError if calls differ."""
        import torch

        failed = next((x for (what, _), x in asked if what == ERROR), None)
        heads = sorted({head for head, _ in asked})
        sent = [(line, x.detach()) for line, (head, x) in zip(self.lines, asked, strict=True) if head[1]]
        every: list[tuple[Any, str, list]] = [(heads, "", [])]
        if self.comm is not None:
            text = "" if failed is None else f"{type(failed).__name__}: {failed}"
            every = self.comm.allgather((heads, text, [(line, x.numpy()) for line, x in sent]))
        if failed is not None:
            raise failed
        if text := next((text for _, text, _ in every if text), ""):
            raise ChoiceError(f"manual region {self.key}: another rank raised {text}")
        told = sorted({head for heads, _, _ in every for head in heads})
        if len(told) > 1:
            shown = " and ".join(what if what == END else f"{what} along {letter}" for what, letter in told)
            raise ChoiceError(
                f"manual region {self.key}: blocks reach {shown} at the same time; every block must send the same "
                "messages in the same order"
            )
        if told == [(END, "")]:
            return None
        if self.comm is None:
            return told[0][1], sent
        return told[0][1], [(line, torch.from_numpy(x)) for _, _, found in every for line, x in found]


def along_letter(every: Sequence[tuple[Line, Any]], own: Line, letter: str) -> tuple[list[Any], int]:
    """(the tensors of the blocks that differ from `own` along a letter alone, its number among them)."""
    others = {name: at for name, at in own.items() if name != letter}
    found = sorted(
        ((line[letter], x) for line, x in every if all(line[name] == at for name, at in others.items())),
        key=lambda pair: pair[0],
    )
    places = [place for place, _ in found]
    return [x for _, x in found], places.index(own[letter])
