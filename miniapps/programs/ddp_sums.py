"""Means of buckets of gradients over the ranks of a process group, for the hook of `miniapps.programs.ddp`.

An exception or the deletion of a model can leave a reduction unfinished. Then all ranks finish it together later; ranks
that never began it contribute zeros. So no message remains for the next reduction.
"""

from __future__ import annotations

import gc
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import ml_dtypes
import numpy as np
from mpi4py import MPI

from kernels.allreduce import Reduction, plan
from kernels.allreduce.coding import coding
from kernels.allreduce.means import divided, mean_of
from kernels.guarantees import ChoiceError
from kernels.wires import PLAIN

TYPES = ("float32", "float64", "float16", "bfloat16")
NARROW = ("float16", "bfloat16")
MANY = 128  # with so many planned means, free those that no model uses


def types_over(wire: str) -> list[str]:
    """The types of gradients that can be summed over a wire."""
    return [name for name in TYPES if name != "float64" or coding(wire) is None]


@dataclass(frozen=True)
class Axes:
    """The arguments of the hook. `accumulation` None: "exact" if the contributions meet on one rank, else "working".
    `scatter`: each rank gets an equal part of the mean, not the whole; a lossy wire carries the whole."""

    ordering: str
    accumulation: str | None
    wire: str
    check: bool
    scatter: bool = False

    def reduction(self, n: int, dtype: np.dtype, shapes: tuple[tuple[int, ...], ...], over: int) -> Reduction:
        """The reduction for the mean over `over` processes of `n` gradients of `dtype`; it may send another type."""
        made = self._whole(n, dtype, shapes, over)
        return replace(made, collective="reduce-scatter") if self.scatter and made.coding is None else made

    def _whole(self, n: int, dtype: np.dtype, shapes: tuple[tuple[int, ...], ...], over: int) -> Reduction:
        accumulation, single, found = self.accumulation, np.dtype(np.float32), coding(self.wire)
        if accumulation is None:
            meets = Reduction(self.ordering, (1,), single).entry.contributions_meet
            accumulation = "exact" if meets and not (found and found.hops == "every") else "working"
        made = Reduction(
            self.ordering, (n,), single, accumulation=accumulation, wire=self.wire, check=self.check
        )
        if found is not None:
            return replace(made, tensors=shapes, divisor=1 if found.hops == "every" else over)
        if accumulation == "exact" and made.contributions_travel and self.wire == PLAIN:
            return replace(made, dtype=dtype, accumulation="working", operation=mean_of(over))
        if accumulation == "working":
            return replace(made, dtype=single if dtype.name in NARROW else dtype)
        # Sums of float64 hold those of narrower types.
        wide = "working" if accumulation == "float64" else accumulation
        return replace(made, dtype=np.dtype(np.float64), accumulation=wide)

    def require_fitting(self, who: str) -> None:
        """Raise ChoiceError, before training begins, for choices that do not go together."""
        if "owners" in self.reduction(1, np.dtype(np.float32), ((1,),), 2).entry.needs:
            raise ChoiceError(
                f"{who}: ordering {self.ordering!r} adds over blocks, and a bucket of gradients has no blocks: choose "
                "direct, or train with miniapps.training"
            )

    def require_schedule(self, who: str) -> None:
        """Raise ChoiceError for choices that need MPI between the processes."""
        for choice, needs in (
            (self.ordering == "library", "ordering 'library' is MPI's own all-reduce"),
            (self.ordering == "arrival", "ordering 'arrival' needs MPI, which tells the sender of the next message"),
            (self.wire != PLAIN and coding(self.wire) is None, f"wire {self.wire!r} needs MPI, as its messages have "
             "no fixed length"),
        ):  # fmt: skip
            if choice:
                raise ChoiceError(
                    f"{who}: {needs}, and a launcher of torch started these processes: choose "
                    "another, such as ordering direct without a wire, or start the program by mpirun"
                )


class Mean:
    """The mean over ranks of a bucket (n,) of gradients of one type: their sum divided by the number `over`; `users`:
    numbers of the trainings that used it."""

    def __init__(
        self, comm: MPI.Intracomm, axes: Axes, n: int, dtype: np.dtype, shapes: Any, over: int, name: str
    ):
        self._over, self._dtype, self._comm = over, dtype, comm
        self.reduction = axes.reduction(n, dtype, shapes, over)
        self.reducer = plan(comm, self.reduction, name=name)
        found = self.reduction.coding
        self._before = (
            found is not None and found.hops == "every"
        )  # then partial sums are encoded, and none may exceed a mean
        self._formed = self.reduction.operation.name == "mean" or found is not None
        self.feedback = found is not None and found.feedback
        self.users: set[int] = set()
        self.busy = False

    def start(self, gradients: np.ndarray) -> None:
        """Begin with this rank's gradients (n,), without changing them; do not change them until `finish`."""
        x = gradients.astype(self.reduction.dtype, copy=False)
        self._given = x / np.float32(self._over) if self._before else x
        self.reducer.start(self._given[np.newaxis])

    def finish(self) -> np.ndarray:
        """Waits for the mean (n,), or this rank's part of it, of the type of the gradients."""
        total = self.reducer.finish()
        given, self._given = self._given, np.empty(0)
        if self._formed:
            return total if total.dtype == self._dtype else divided(total, 1, self._dtype)
        mean = divided(total, self._over, self._dtype)
        if self._overflowed(total):
            # Add scaled numbers again; finite sums of the first pass stay.
            lost, scale = ~np.isfinite(total), 2.0 ** -math.ceil(math.log2(self._over))
            with np.errstate(all="ignore"):
                small = self.reducer((given * given.dtype.type(scale))[np.newaxis])
                again = small / small.dtype.type(self._over * scale)
            mean[lost] = divided(again[lost], 1, self._dtype)
        return mean

    def _overflowed(self, total: np.ndarray) -> bool:
        finite = bool(np.isfinite(total).all())
        # The totals of the library may differ between ranks, and so do parts.
        if self.reduction.ordering == "library" or self.reduction.collective != "allreduce":
            return bool(self._comm.allreduce(not finite, MPI.LOR))
        return not finite

    def free(self) -> None:
        """Free the plan. Collective."""
        self.reducer.free()


@dataclass
class Begun:
    """A bucket of a training whose mean has begun; `done`: the places that receive it."""

    training: Any
    key: tuple[Any, ...]
    mean: Mean
    done: Any


class Group:
    """The ranks of a process group: a communicator, its planned means and those that have begun.

    All methods but `enter` are collective: ranks call them in the same order.
    """

    def __init__(self, comm: MPI.Intracomm):
        self.comm = comm
        self.begun: list[Begun] = []
        self._means: dict[tuple[Any, ...], list[Mean]] = {}
        self._trainings: dict[int, Any] = {}  # weak references to models
        self._entered = 0
        self._ended = 0  # or the number of a rank that has ended, plus one

    def enter(self, model: Any) -> int:
        """Returns the number of a new training, the same on all ranks. `model`: a weak reference."""
        self._entered += 1
        self._trainings[self._entered] = model
        return self._entered

    def gone(self, number: int) -> bool:
        """Whether the model of a training was deleted on this rank."""
        return self._trainings[number]() is None

    def take(self, training: Any, key: tuple[Any, ...]) -> Mean:
        """An idle mean for `key`, (axes, n, type, shapes, divisor); planned if there is none."""
        idle = next((mean for mean in self._means.get(key, ()) if not mean.busy), None)
        if idle is None:
            self._free_unused()
            axes, n, dtype, shapes, over = key
            count = sum(map(len, self._means.values()))
            idle = Mean(self.comm, axes, n, _dtype(dtype), shapes, over, f"gradients {count}")
            self._means.setdefault(key, []).append(idle)
        idle.users.add(training.number)
        idle.busy = True
        return idle

    def settle(self, training: Any) -> None:
        """At the start of a backward pass, finish reductions that an earlier pass of this training left, or a model
        that was deleted on all ranks. Raises RuntimeError on all ranks that still train if one has ended."""
        own = sum(begun.training is training for begun in self.begun)
        orphans = any(b.training is not training and self.gone(b.training.number) for b in self.begun)
        most = np.array([own, orphans, self._ended], np.int64)
        if not self._ended:
            self.comm.Iallreduce(MPI.IN_PLACE, most, MPI.MAX).Wait()
        self._ended = int(most[2])
        if self._ended:
            raise RuntimeError(
                f"fpna: rank {self._ended - 1} has ended, and this rank began another backward pass: give all ranks "
                "the same number of batches, or train in a join() context"
            )
        if most.any():
            self._complete(training.number)

    def leave(self) -> MPI.Request:
        """Begin to tell the other ranks that this one has ended: they learn it when they end or at the start of their
        next backward pass. For ranks of MPI. Complete when all have learned it."""
        self._leaving = np.array([0, 0, self.comm.rank + 1], np.int64)
        if self._ended:
            return MPI.REQUEST_NULL
        return self.comm.Iallreduce(MPI.IN_PLACE, self._leaving, MPI.MAX)

    def _complete(self, current: int) -> None:
        left: dict[int, list[tuple[Any, ...]]] = {}
        for begun in self.begun:
            left.setdefault(begun.training.number, []).append(begun.key)
        alive = self._alive() - {current}
        everywhere = self.comm.allgather((left, alive))
        going_on = set().union(*(alive for _, alive in everywhere))
        for number in sorted(set().union(*(left for left, _ in everywhere)) - going_on):
            keys = max((left.get(number, []) for left, _ in everywhere), key=len)
            mine = [begun.mean for begun in self.begun if begun.training.number == number]
            for key in keys[len(mine) :]:
                mine.append(self._idle(key))
                mine[-1].start(np.zeros(key[1], _dtype(key[2])))
            for mean in mine:
                mean.finish()
                mean.busy = False
            self.begun = [begun for begun in self.begun if begun.training.number != number]

    def _idle(self, key: tuple[Any, ...]) -> Mean:
        """An idle mean that was planned: another rank has begun it, and planning needs all ranks."""
        mean = next(mean for mean in self._means[key] if not mean.busy)
        mean.busy = True
        return mean

    def _alive(self) -> set[int]:
        for number in [number for number, model in self._trainings.items() if model() is None]:
            if not any(begun.training.number == number for begun in self.begun):
                del self._trainings[number]
        return {number for number, model in self._trainings.items() if model() is not None}

    def _free_unused(self) -> None:
        """Free the communicators and the memory of means whose models were deleted on all ranks."""
        if not self._means:
            return
        if sum(map(len, self._means.values())) >= MANY:
            gc.collect()  # an unused model may be in a reference cycle
        alive = set().union(*self.comm.allgather(self._alive()))
        for key, means in list(self._means.items()):
            for mean in [mean for mean in means if not mean.busy and not mean.users & alive]:
                mean.free()
                means.remove(mean)
            if not means:
                del self._means[key]


class Lost:
    """The encoding errors of a wire for the gradients of some parameters, one after the other.

    `rows`: (1, n) of this rank's gradients; `total`: (n,) of the sum; this rank keeps its slice `kept`."""

    def __init__(self, n: int):
        self.rows, self.total = np.zeros((1, n), np.float32), np.zeros(n, np.float32)
        self.kept: slice | None = None
        self._spare = np.zeros((1, n), np.float32), np.zeros(n, np.float32)

    def lend(self, mean: Mean) -> None:
        """Let a reduction add these errors, and write its own errors into other memory."""
        np.copyto(self._spare[0], self.rows)
        np.copyto(self._spare[1], self.total)
        self.kept = mean.reducer.use_lost(*self._spare)

    def accept(self) -> None:
        """After the reduction: its errors replace these."""
        self.rows, self.total, self._spare = *self._spare, (self.rows, self.total)

    def whole(self, comm: MPI.Intracomm) -> np.ndarray:
        """The whole `total` from the slices of all ranks. Collective."""
        if self.kept is None:
            return self.total
        total = np.zeros_like(self.total)
        total[self.kept] = self.total[self.kept]
        comm.Allreduce(MPI.IN_PLACE, total.view(np.int32), MPI.BOR)
        return total


class Feedback:
    """The encoding errors of wires by the name of a parameter, independent of its bucket."""

    def __init__(self) -> None:
        self._buckets: dict[tuple[str, ...], Lost] = {}
        self._places: dict[str, tuple[Lost, slice]] = {}

    def of(self, names: Sequence[str], sizes: Sequence[int], comm: MPI.Intracomm) -> Lost:
        """The errors for the parameters of a bucket, in this order. Collective if buckets were rearranged."""
        key = tuple(names)
        if key in self._buckets:
            return self._buckets[key]
        made, wholes, start = Lost(sum(sizes)), {}, 0
        for name, size in zip(names, sizes, strict=True):
            to = slice(start, start + size)
            start = to.stop
            if name in self._places:
                old, place = self._places[name]
                if id(old) not in wholes:
                    wholes[id(old)] = old.whole(comm)
                made.rows[:, to] = old.rows[:, place]
                made.total[to] = wholes[id(old)][place]
            self._places[name] = made, to
        self._buckets[key] = made
        used = {id(lost) for lost, _ in self._places.values()}
        self._buckets = {k: lost for k, lost in self._buckets.items() if id(lost) in used}
        return made

    def state(self, comm: MPI.Intracomm) -> dict[str, tuple[np.ndarray, np.ndarray]]:
        """By name, float32 (n,) each: the errors of this rank's gradients, and those of the sum. Collective."""
        wholes: dict[int, np.ndarray] = {}
        for lost, _ in self._places.values():
            if id(lost) not in wholes:
                wholes[id(lost)] = lost.whole(comm)
        return {
            name: (lost.rows[0, place].copy(), wholes[id(lost)][place].copy())
            for name, (lost, place) in self._places.items()
        }

    def restore(self, state: Mapping[str, tuple[np.ndarray, np.ndarray]]) -> None:
        """Continue from the errors of `state`."""
        self._buckets, self._places = {}, {}
        for name, (own, total) in state.items():
            lost = Lost(len(own))
            np.copyto(lost.rows[0], own)
            np.copyto(lost.total, total)
            self._places[name] = lost, slice(0, len(own))


def _dtype(name: str) -> np.dtype:
    return np.dtype(ml_dtypes.bfloat16 if name == "bfloat16" else name)
