"""All-reduces of others, as the instruments call them: MPI's here, those of torch.distributed in `backends`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from kernels.guarantees import ChoiceError

CALLS = ("blocking", "nonblocking", "persistent")


@dataclass(frozen=True)
class Way:
    """How an all-reduce is called. `offset`: elements in the buffers before the vector. `ranks`: those that take part,
    in this order; None for all."""

    call: str = "blocking"
    in_place: bool = False
    offset: int = 0
    ranks: tuple[int, ...] | None = None


@dataclass(frozen=True)
class Opened:
    """An all-reduce of n numbers, with its buffers: `fill` with a contribution (n,), `run`, and `result` (n,), a copy.
    On a rank that does not take part, the result is its contribution."""

    fill: Callable[[np.ndarray], None]
    run: Callable[[], None]
    result: Callable[[], np.ndarray]
    free: Callable[[], None]

    def total(self, contribution: np.ndarray) -> np.ndarray:
        """This rank's contribution (n,) -> the total (n,)."""
        self.fill(contribution)
        self.run()
        return self.result()


@dataclass(frozen=True)
class Library:
    """The all-reduce of a library over the ranks of `comm`. `opens(n, dtype, way)` raises ChoiceError on all ranks if
    the library has no such call. `copies`: it can also leave the contribution unchanged. `renumbers`: it can number
    processes in another way."""

    name: str
    comm: Any
    opens: Callable[[int, Any, Way], Opened]
    calls: tuple[str, ...] = CALLS
    copies: bool = True
    renumbers: bool = True


def numbers(seed: int, rank: int, n: int, dtype: str) -> np.ndarray:
    """The contribution of a rank, (n,): of near magnitudes, whose sums in another order mostly have other bits."""
    rng = np.random.default_rng([seed, rank, n])
    return (rng.standard_normal(n) * 10.0 ** rng.integers(-1, 2, n)).astype(dtype)


def nothing() -> None:
    """For libraries that have nothing to free."""


def of_mpi(comm: Any) -> Library:
    """The MPI library over the ranks of a communicator of mpi4py."""
    from mpi4py import MPI

    text = MPI.Get_library_version().split("\n")[0].rstrip("\0").split(",")[0].replace("Version:", "")

    def opens(n: int, dtype: Any, way: Way) -> Opened:
        own = comm if way.ranks is None else _part(comm, way.ranks)
        buffer, copied = np.empty(way.offset + n, dtype), np.empty(way.offset + n, dtype)
        send = buffer[way.offset :]
        receive = send if way.in_place or own is None else copied[way.offset :]

        def fill(contribution: np.ndarray) -> None:
            send[:] = contribution

        run, free = (nothing, nothing) if own is None else _call(own, way, send, receive)
        if own is not None and own is not comm:
            free = _both(free, own.Free)
        return Opened(fill, run, receive.copy, free)

    return Library(" ".join(text.split()), comm, opens)


def _call(comm: Any, way: Way, send: np.ndarray, receive: np.ndarray) -> tuple[Callable[[], None], ...]:
    """(run, free) of a call of MPI."""
    from mpi4py import MPI

    sent = MPI.IN_PLACE if way.in_place else send
    if way.call == "blocking":
        return lambda: comm.Allreduce(sent, receive), nothing
    if way.call == "nonblocking":
        return lambda: comm.Iallreduce(sent, receive).Wait(), nothing
    try:
        request = comm.Allreduce_init(sent, receive)
    except NotImplementedError:
        raise ChoiceError("--call persistent: this MPI library has none (it is older than MPI 4)") from None

    def run() -> None:
        request.Start()
        request.Wait()

    return run, request.Free


def _part(comm: Any, ranks: tuple[int, ...]) -> Any:
    """A communicator of some ranks, numbered as they are listed; None on the others."""
    made = comm.Split(0 if comm.rank in ranks else 1, ranks.index(comm.rank) if comm.rank in ranks else 0)
    if comm.rank in ranks:
        return made
    made.Free()
    return None


def _both(first: Callable[[], None], second: Callable[[], None]) -> Callable[[], None]:
    def free() -> None:
        first()
        second()

    return free
