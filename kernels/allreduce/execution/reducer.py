"""The base of all reducers: checks arguments, compares bits across ranks, releases handles."""

from __future__ import annotations

import weakref
from collections import Counter
from functools import partial
from hashlib import blake2b
from typing import Any

import numpy as np
from mpi4py import MPI

from kernels.allreduce.errors import CallMismatch, RanksDisagree, by_rank, ranks_text
from kernels.allreduce.execution import device
from kernels.allreduce.execution.communicators import Ledger, ledger_of
from kernels.allreduce.execution.handover import Handover, Stored
from kernels.allreduce.execution.requests import Requests, calls_of, release
from kernels.allreduce.reduction import Reduction
from kernels.environment import guarded


class Reducer:
    """Combines contributions of all ranks; made by `kernels.allreduce.plan`, which documents its use.

    `total`: the shape of the total if it is not that of a contribution. A subclass sets `nbytes`, implements
    `_reduce(contributions) -> total`, and overrides the methods below it where it can do better. It works on
    `self._comm`, a communicator of its own, and registers in `self._requests` all requests that may be under way
    between calls. `blocks`: the numbers of this rank's blocks, ascending; None if `plan` was given none. Additions run
    in the default floating-point environment, whatever the caller's is.
    """

    def __init__(self, comm: MPI.Comm, reduction: Reduction, name: str, total: tuple[int, ...] | None = None):
        self.reduction = reduction
        self.ordering, self.guarantee = reduction.ordering, reduction.guarantee
        self.shape, self.dtype = reduction.shape, reduction.dtype
        self.name = name
        self.nbytes = 0
        self.checked = reduction.check
        self.blocks: tuple[int, ...] | None = None
        self._checks = 0
        self._total = np.zeros(self.shape if total is None else total, self.dtype)
        # (contributions, out) of a started reduction, or the Handover of an added one; None if there is neither.
        self._started: Any = None
        self._handover: Handover | None = None  # made for the first contribution that is added
        self._staging: device.Staging | device.Direct | None = (
            None  # made for the first contributions in GPU memory
        )
        self._staged = False  # whether the started reduction's are
        self._ledger = ledger_of(comm)
        self._number = self._ledger.make(comm)
        self._comm = self._ledger.alive[self._number]
        self.ranks = comm.size
        self._calls = calls_of(self._comm)
        self._requests = Requests()
        # Runs even if the reducer is dropped in the midst of a reduction, so that no message comes into memory that was
        # given back. It cannot free the communicator, because that takes all ranks.
        self._release = weakref.finalize(self, _drop, self._requests, self._ledger, self._number)

    @guarded
    def __call__(self, contributions: np.ndarray, out: np.ndarray | None = None) -> np.ndarray:
        if (
            type(contributions) is not np.ndarray
            or contributions.dtype is not self.dtype
            or contributions.shape[1:] != self.shape
            or not contributions.ndim
            or out is not None
            or self.checked
            or self._started
        ):
            contributions = self._admit(contributions, out)
            if type(contributions) is not np.ndarray:
                return self._return(self._reduce_into(*self._stage(contributions, out)), True)
        total = self._reduce(contributions) if out is None else self._reduce_into(contributions, out)
        if self.checked:
            self._check_ranks(total)
        return total

    @guarded
    def start(self, contributions: np.ndarray, out: np.ndarray | None = None) -> None:
        """Begins a reduction and returns at once; `finish()` ends it.

        Until then leave `contributions` and `out` alone. All ranks start and finish in the same order. Messages move
        meanwhile, with two exceptions: `arrival` does everything in `finish`, and so does `direct` in `exact` if a rank
        brings several contributions of a long vector.
        """
        contributions = self._admit(contributions, out)
        self._staged = type(contributions) is not np.ndarray
        if self._staged:
            contributions, out = self._stage(contributions, out)
        self._started = contributions, out
        self._requests.amid = True
        self._begin(contributions, self._total if out is None else out)

    @guarded
    def progress(self) -> bool:
        """Advances the started reduction without waiting; returns whether `finish()` would return at once. Call it now
        and then between pieces of work: most MPI libraries move nothing outside of calls.
        """
        self._require_started("progress")
        return type(self._started) is tuple and self._progress()

    @guarded
    def add(self, block: int, contribution: np.ndarray) -> None:
        """Hands over the contribution (*shape) of one of this rank's `blocks`, instead of a call with all.

        Blocks come in any order; after the last, `finish()` gives the total, with the bits of the call. The caller may
        overwrite the contribution at once. The reducer adds it as soon as the order of additions allows, and so keeps
        little: one sum under `exact`, sums of incomplete subtrees under orderings over blocks, else the contributions
        that came before a lower block. `library` and allgather keep all. Raises ValueError for a block that is not this
        rank's or was added before, and if `plan` was given no blocks; TypeError for GPU memory.
        """
        self._require_alive()
        if type(self._started) is tuple:
            raise RuntimeError(f"{self} has a reduction under way: finish() it before adding to the next")
        if device.is_on_device(contribution):
            raise TypeError(
                f"{self}: add() takes contributions in host memory; pass those in GPU memory in one call"
            )
        self._adding().add(block, contribution)
        self._started = self._handover

    @guarded
    def finish(self) -> np.ndarray:
        """The total of the started or added contributions. Raises ValueError if blocks are missing."""
        if self._started is None and self.blocks == ():
            self._started = self._adding()  # a rank without blocks has nothing to add
        self._require_started("finish")
        if type(self._started) is not tuple:
            return self._finish_added()
        total = self._end()
        self._started, self._requests.amid = None, False
        return self._return(total, self._staged)

    def _adding(self) -> Handover:
        if self.blocks is None:
            raise ValueError(
                f"{self} was planned without blocks=, the numbers of this rank's blocks: add() needs them"
            )
        if self._handover is None:
            self._handover = self._make_handover()
        return self._handover

    def _finish_added(self) -> np.ndarray:
        failure, added = None, self._adding()
        try:
            added.require_all()
        except ValueError as error:
            failure = error
        self._agree_on(failure, "" if failure is None else str(failure))
        try:
            return self._return(self._reduce_added(added), False)
        finally:
            self._started = None
            added.reset()

    def _stage(self, contributions, out) -> tuple[np.ndarray, np.ndarray]:
        """Contributions in GPU memory, and memory for their total, where this reducer works on them."""
        if self._staging is None:
            self._staging = device.Staging(self._total)
        return self._staging.take(contributions, out)

    def _return(self, total: np.ndarray, staged: bool):
        """The total for the caller: in GPU memory if contributions are there."""
        if self.checked:
            self._check_ranks(total)
        return self._staging.give(total) if staged and self._staging is not None else total

    def _admit(self, contributions, out):
        """The contributions if they and `out` fit; else raises an error that names what it expected.

        In checked mode an error on one rank is raised on all, and so is a difference between ranks.
        """
        if not self.checked:
            return self._fitting(contributions, out)
        failure, x = None, None
        try:
            x = self._fitting(contributions, out)
            passed = f"{x.dtype} (k, {', '.join(map(str, x.shape[1:]))})"
            passed += "" if type(x) is np.ndarray else " in GPU memory"
        except (TypeError, ValueError, RuntimeError) as error:
            failure, passed = error, f"{type(error).__name__}: {error}"
        self._agree_on(failure, passed)
        return x

    def _agree_on(self, failure: Exception | None, passed: str) -> None:
        """Raises `failure` if there is one; in checked mode raises on all ranks if they pass different things."""
        if self.checked and self._release.alive and not agree(self._comm, digest_of(passed.encode())):
            raise CallMismatch(
                f"{self}: ranks pass different things: {by_rank(self._comm.allgather(passed))}"
            ) from failure
        if failure is not None:
            raise failure

    def _fitting(self, contributions, out):
        """The contributions as a NumPy array, or as a CuPy array if they are in GPU memory."""
        self._require_alive()
        if self._started:
            raise RuntimeError(f"{self} has a reduction under way: finish() it before the next")
        on_device = device.is_on_device(contributions)
        x = device.view(contributions) if on_device else np.asarray(contributions)
        if x.dtype != self.dtype:
            raise TypeError(f"{self} expects contributions of type {self.dtype}, got {x.dtype}")
        if x.ndim != len(self.shape) + 1 or x.shape[1:] != self.shape:
            expected = ", ".join(map(str, ("k", *self.shape)))
            raise ValueError(f"{self} expects contributions of shape ({expected}), k >= 0, got {x.shape}")
        if on_device and out is not None:
            device.require_out(str(self), out, self._total)
        elif out is not None and not (
            isinstance(out, np.ndarray)
            and (out.dtype, out.shape) == (self._total.dtype, self._total.shape)
            and out.flags.c_contiguous
            and out.flags.writeable
        ):
            what = f"{out.dtype} {out.shape}" if isinstance(out, np.ndarray) else type(out).__name__
            what += " in GPU memory" if device.is_on_device(out) else ""
            raise ValueError(
                f"{self}: out is {what}: expected a writable C-contiguous {self.dtype} array {self._total.shape}"
                " in host memory, where contributions are"
            )
        return x

    def _reduce(self, contributions: np.ndarray) -> np.ndarray:
        raise NotImplementedError

    def _reduce_into(self, contributions: np.ndarray, out: np.ndarray) -> np.ndarray:
        np.copyto(out, self._reduce(contributions))
        return out

    def _begin(self, contributions: np.ndarray, out: np.ndarray) -> None:
        """By default begins nothing before `finish`: a wait in here could be for a rank that waits for this one."""

    def _progress(self) -> bool:
        return False

    def _end(self) -> np.ndarray:
        contributions, out = self._started
        return self._reduce(contributions) if out is None else self._reduce_into(contributions, out)

    def _make_handover(self) -> Handover:
        """The Handover that takes contributions one by one for `_reduce_added`."""
        return Stored(str(self), self.blocks, self.shape, self.dtype)

    def _reduce_added(self, added) -> np.ndarray:
        """The total of the contributions in such a handover."""
        return self._reduce(added.contributions)

    def _set_blocks(self, blocks: tuple[int, ...] | None) -> None:
        """Called once by `plan`, on all ranks."""
        self.blocks = blocks

    def _require_alive(self) -> None:
        if not self._release.alive:
            _freed(str(self))

    def _require_started(self, what: str) -> None:
        self._require_alive()
        if not self._started:
            raise RuntimeError(f"{self}: {what}() without start(): nothing is under way")

    def _check_ranks(self, total: np.ndarray) -> None:
        self._checks += 1
        require_same_bits(self._comm, total, f"{self}, checked call {self._checks}")

    def drain_orders(self) -> list[np.ndarray]:
        """The orders of addition since the last call, uint16 (size,) each; only `arrival` has any, on rank 0."""
        return []

    @guarded
    def free(self) -> None:
        """Ends a started reduction, forgets added contributions, frees requests and communicator. Collective.

        A second call does nothing.
        """
        if self._release.alive:
            if type(self._started) is tuple:
                self.finish()
            self._give_back()

    def _give_back(self) -> None:
        self._release()
        self._ledger.free(self._number)
        # A partial of a text does not keep the reducer and its memory alive.
        self._reduce = partial(_freed, str(self))  # type: ignore[method-assign]

    def __enter__(self):
        return self

    def __exit__(self, *exception) -> None:
        # After an exception the other ranks may be anywhere: freeing would wait for them.
        if exception[0] is None:
            self.free()

    def __str__(self) -> str:
        label = f"reducer {self.name!r}" if self.name else "reducer"
        return f"{label} (ordering {self.reduction.label!r}, {self.dtype}, shape {self.shape})"


def _drop(requests: Requests, ledger: Ledger, number: int) -> None:
    """Lets go of a reducer's requests. If no part of a reduction is left, all ranks may free its communicator
    together."""
    if not MPI.Is_finalized() and release(requests):
        ledger.dropped.add(number)


def _freed(reducer: str, contributions=None):
    raise RuntimeError(f"{reducer} was freed; plan a new one")


def as_bytes(array: np.ndarray) -> np.ndarray:
    """The memory of a C-contiguous array as bytes, which MPI sends for every type: it knows no bfloat16."""
    return array.reshape(-1).view(np.uint8)


def require_blocks(reducer: Reducer, planned: int | None, contributions: np.ndarray) -> None:
    """Raises ValueError unless there is one contribution for each planned block, if any were planned."""
    if planned not in (None, len(contributions)):
        raise ValueError(
            f"{reducer} was planned for {planned} contributions of this rank, got {len(contributions)}"
        )


def require_same_bits(comm: MPI.Comm, array: np.ndarray, what: str) -> None:
    """Raises RanksDisagree on all ranks unless `array` (of one shape and type) has the same bits on all.

    The message begins with `what` and names the ranks in the minority. Of equally frequent bits, those of the lowest
    rank count as the majority's. Collective: one all-reduce of 32 bytes if all bits agree.
    """
    digest = digest_of(array.tobytes())
    if agree(comm, digest):
        return
    digests = np.empty((comm.size, 2), np.int64)
    comm.Allgather(digest, digests)
    holders = [tuple(row) for row in digests.tolist()]
    common, _ = Counter(holders).most_common(1)[0]  # of equals, the first to appear
    minority = [rank for rank, holder in enumerate(holders) if holder != common]
    majority = [rank for rank, holder in enumerate(holders) if holder == common]
    raise RanksDisagree(
        f"{what}: {ranks_text(minority)} got other bits than {ranks_text(majority)}", minority
    )


def digest_of(data: bytes) -> np.ndarray:
    """128-bit hash as int64 (2,)."""
    return np.frombuffer(blake2b(data, digest_size=16).digest(), np.int64)


def agree(comm: MPI.Comm, digest: np.ndarray) -> bool:
    """Whether all ranks pass the same int64 vector: one small all-reduce. The MAX of ~x is the MIN of x."""
    both = np.concatenate([digest, ~digest])
    most = np.empty_like(both)
    comm.Allreduce(both, most, op=MPI.MAX)
    half = len(digest)
    return bool((most[:half] == ~most[half:]).all())
