"""The serial simulator: schedules carried out without MPI, over a list that stands for the ranks.

The values are whatever `add` adds: arrays with the executor's additions, or symbols, which gives the
reduction tree. Carrying out a schedule also checks it, where a real network would hang or corrupt data.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from kernels import exact
from kernels.allreduce import catalog
from kernels.allreduce.arithmetic import add_up, fold
from kernels.allreduce.errors import ScheduleError
from kernels.allreduce.schedule import Round, Schedule, bounds

Values = list[Any]  # of one rank, by chunk


def carry_out(schedule: Schedule, own: Sequence[Values], add: Callable[[list], Any]) -> list[Values]:
    """Slot 0 of every rank after the schedule, by chunk, from `own[rank][chunk]`; `add` sums a list.

    Raises ScheduleError where messages do not match, a value is read before it is written, or a location
    is written twice, or written and sent, in one round.
    """
    programs = list(schedule.ranks())
    if len({len(rounds) for rounds in programs}) > 1:
        raise ScheduleError(f"ranks have different numbers of rounds: {[len(rounds) for rounds in programs]}")
    slots = [{(0, chunk): value for chunk, value in enumerate(values)} for values in own]
    for index, current in enumerate(zip(*programs, strict=True)):
        try:
            _round(current, slots, add)
        except ScheduleError as error:
            raise ScheduleError(f"round {index}: {error}") from None
    return [[state[0, chunk] for chunk in range(schedule.chunks)] for state in slots]


def _round(current: tuple[Round, ...], slots: list[dict], add: Callable[[list], Any]) -> None:
    post: dict[
        tuple[int, int], list
    ] = {}  # (sender, receiver) -> (chunk, slot of the sender, value), in order
    for rank, part in enumerate(current):
        for m in part.sends:
            sent = post.setdefault((rank, m.peer), [])
            sent.append((m.chunk, m.slot, _read(slots[rank], rank, m.slot, m.chunk)))
            if sent[0][1] != m.slot:
                raise ScheduleError(f"rank {rank} sends to rank {m.peer} from several slots")
    for rank, part in enumerate(current):
        busy = {(m.slot, m.chunk) for m in part.sends}
        into: dict[int, int] = {}
        for m in part.receives:
            expected = f"rank {rank} expects chunk {m.chunk} from rank {m.peer}"
            waiting = post.get((m.peer, rank))
            if not waiting:
                raise ScheduleError(f"{expected}, which sends none")
            chunk, _, value = waiting.pop(0)
            if chunk != m.chunk:
                raise ScheduleError(f"{expected}, which sends chunk {chunk}")
            if (m.slot, chunk) in busy:
                raise ScheduleError(f"{expected} into slot {m.slot}, where that chunk is in use")
            if into.setdefault(m.peer, m.slot) != m.slot:
                raise ScheduleError(f"rank {rank} receives from rank {m.peer} into several slots")
            busy.add((m.slot, chunk))
            slots[rank][m.slot, chunk] = value
    for (sender, receiver), rest in post.items():
        if rest:
            chunk = rest[0][0]
            raise ScheduleError(f"rank {sender} sends chunk {chunk} to rank {receiver}, which expects none")
    for rank, part in enumerate(current):
        for s in part.sums:
            sources = [_read(slots[rank], rank, slot, s.chunk) for slot in s.sources]
            slots[rank][s.into, s.chunk] = add(sources)


def _read(state: dict, rank: int, slot: int, chunk: int) -> Any:
    try:
        return state[slot, chunk]
    except KeyError:
        raise ScheduleError(f"rank {rank} reads slot {slot}, chunk {chunk}, before it is written") from None


def simulate_schedule(schedule: Schedule, vectors: Sequence[np.ndarray]) -> list[np.ndarray]:
    """The total on every rank, from one vector (n,) per rank."""
    n = len(vectors[0])
    cuts = [slice(*bounds(n, schedule.chunks, chunk)) for chunk in range(schedule.chunks)]
    parts = carry_out(schedule, [[vector[cut] for cut in cuts] for vector in vectors], add_up)
    return [np.concatenate(values) for values in parts]


def simulate(
    name: str, contributions: Sequence[np.ndarray], order: Sequence[int] | None = None
) -> list[np.ndarray]:
    """What the reducer of ordering `name` returns on every rank, bit for bit, without MPI.

    `contributions[rank]` is (k, *shape), k >= 0 its own for each rank. `arrival` needs the `order` of the
    ranks. Raises ChoiceError for an unknown ordering, ValueError for `native`, whose order is the library's.
    """
    ordering, size, shape = catalog.get(name), len(contributions), contributions[0].shape[1:]
    if name in ORDER_FREE:
        return [ORDER_FREE[name](contributions) for _ in range(size)]
    schedule = ordering.schedule(size) if order is None else catalog.permuted(size, order)
    if schedule is None:
        raise ValueError(f"ordering {name!r} cannot be simulated: {ordering.why}")
    vectors = [np.empty(shape, x.dtype) for x in contributions]
    for x, vector in zip(contributions, vectors, strict=True):
        fold(x, vector)
    return [total.reshape(shape) for total in simulate_schedule(schedule, [v.ravel() for v in vectors])]


def _exact(contributions: Sequence[np.ndarray]) -> np.ndarray:
    words = [exact.zeros(x.shape[1:]) for x in contributions]
    for own, x in zip(words, contributions, strict=True):
        exact.add(own, x)
    return exact.round(sum(words), np.empty(contributions[0].shape[1:], contributions[0].dtype))


def _fixed_point(contributions: Sequence[np.ndarray]) -> np.ndarray:
    exponent = max(exact.fixed_exponent(x) for x in contributions)
    total = sum(exact.fixed_encode(x, exponent) for x in contributions)
    return exact.fixed_decode(total, exponent, contributions[0].dtype)


ORDER_FREE = {"exact": _exact, "fixed-point": _fixed_point}
