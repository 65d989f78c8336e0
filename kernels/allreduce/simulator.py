"""The serial simulator: schedules carried out without MPI, over a list that stands for the ranks.

The values are whatever `add` adds: arrays with the executor's additions, or symbols, which gives the
reduction tree. Carrying out a schedule also checks it, where a real network would hang or corrupt data.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from kernels.allreduce import accumulate, catalog
from kernels.allreduce.errors import ScheduleError
from kernels.allreduce.operations import SUM, Operation
from kernels.allreduce.schedule import OWN, TOTAL, Round, Schedule
from kernels.allreduce.schedules.in_order import in_order

Values = list[Any]  # of one vector, by chunk


def carry_out(
    schedule: Schedule, own: Sequence[Sequence[Values]], add: Callable[[list], Any]
) -> list[Values]:
    """The total on every rank, by chunk, from `own[rank][i][chunk]`, i numbering the rank's contributions.

    `add` sums a list, which may have one item. A chunk of the total that a rank never gets is None. Raises
    ScheduleError where messages do not match, a value is read before it is written, a location is written twice, or
    written and sent, in one round, and where reduction in place would lose a contribution.
    """
    programs = list(schedule.ranks())
    if len({len(rounds) for rounds in programs}) > 1:
        raise ScheduleError(f"ranks have different numbers of rounds: {[len(rounds) for rounds in programs]}")
    slots = [
        {(OWN - i, chunk): value for i, values in enumerate(vectors) for chunk, value in enumerate(values)}
        for vectors in own
    ]
    for index, current in enumerate(zip(*programs, strict=True)):
        try:
            _round(current, slots, add)
        except ScheduleError as error:
            raise ScheduleError(f"round {index}: {error}") from None
    return [[state.get((TOTAL, chunk)) for chunk in range(schedule.chunks)] for state in slots]


def _round(current: tuple[Round, ...], slots: list[dict], add: Callable[[list], Any]) -> None:
    # (sender, receiver) -> (chunk, slot of the sender, value), in order
    post: dict[tuple[int, int], list] = {}
    for rank, part in enumerate(current):
        for m in part.sends:
            value = _read(slots[rank], rank, m.slot, m.chunk)
            post.setdefault((rank, m.peer), []).append((m.chunk, m.slot, value))
    for rank, part in enumerate(current):
        _receive(rank, part, slots[rank], post)
    for (sender, receiver), rest in post.items():
        if rest:
            chunk = rest[0][0]
            raise ScheduleError(f"rank {sender} sends chunk {chunk} to rank {receiver}, which expects none")
    for rank, part in enumerate(current):
        for s in part.sums:
            _write(
                slots[rank],
                rank,
                s.into,
                s.chunk,
                add([_read(slots[rank], rank, x, s.chunk) for x in s.sources]),
            )


def _receive(rank: int, part: Round, state: dict, post: dict[tuple[int, int], list]) -> None:
    # A contribution that is reduced in place lies where the total does.
    busy = {(max(m.slot, TOTAL), m.chunk) for m in part.sends}
    pairs: dict[int, set[tuple[int, int]]] = {}  # by sender: its slots with those of this rank
    for m in part.receives:
        expected = f"rank {rank} expects chunk {m.chunk} from rank {m.peer}"
        waiting = post.get((m.peer, rank))
        if not waiting:
            raise ScheduleError(f"{expected}, which sends none")
        chunk, sent_from, value = waiting.pop(0)
        if chunk != m.chunk:
            raise ScheduleError(f"{expected}, which sends chunk {chunk}")
        if (m.slot, chunk) in busy:
            raise ScheduleError(f"{expected} into slot {m.slot}, where that chunk is in use")
        busy.add((m.slot, chunk))
        pairs.setdefault(m.peer, set()).add((sent_from, m.slot))
        _write(state, rank, m.slot, chunk, value)
    for peer, slots in pairs.items():
        if len(slots) > min(len({sent for sent, _ in slots}), len({into for _, into in slots})):
            raise ScheduleError(
                f"rank {rank} receives from one slot of rank {peer} into several, or from several into one"
            )


def _write(state: dict, rank: int, slot: int, chunk: int, value: Any) -> None:
    if slot < TOTAL:
        raise ScheduleError(f"rank {rank} writes slot {slot}, chunk {chunk}, which holds a contribution")
    state[slot, chunk] = value


def _read(state: dict, rank: int, slot: int, chunk: int) -> Any:
    if slot < TOTAL and (TOTAL, chunk) in state:
        raise ScheduleError(
            f"rank {rank} reads slot {slot}, chunk {chunk}, after that of the total is written: "
            "reduced in place, the contribution is gone"
        )
    try:
        return state[slot, chunk]
    except KeyError:
        raise ScheduleError(f"rank {rank} reads slot {slot}, chunk {chunk}, before it is written") from None


def simulate_schedule(
    schedule: Schedule, vectors: Sequence[Sequence[np.ndarray]], operation: Operation = SUM, width: int = 1
) -> list[np.ndarray]:
    """The total on every rank, from the contributions of each rank, (n * width,) words each; zeros where a rank gets
    nothing of it."""
    n = next(len(vector) for own in vectors for vector in own) // width
    bounds = [schedule.bounds(n, chunk) for chunk in range(schedule.chunks)]
    cuts = [slice(start * width, stop * width) for start, stop in bounds]
    own = [[[vector[cut] for cut in cuts] for vector in vectors_] for vectors_ in vectors]
    nothing = np.zeros_like(next(vector for vectors_ in vectors for vector in vectors_))
    return [
        np.concatenate(
            [nothing[cut] if value is None else value for value, cut in zip(values, cuts, strict=True)]
        )
        for values in carry_out(schedule, own, operation.of)
    ]


def simulate(
    name: str,
    contributions: Sequence[np.ndarray],
    order: Sequence[int] | None = None,
    operation: Operation = SUM,
    short: bool = False,
    accumulation: str = "working",
    **context,
) -> list[np.ndarray]:
    """What the reducer of ordering `name` returns on every rank, bit for bit, without MPI.

    `contributions[rank]` is (k, *shape), k >= 0 its own for each rank. `arrival` needs the `order` of the ranks.
    `accumulation` is in what partial sums are held, `context` the `nodes` or `owners` of the ordering's schedule.
    Raises ChoiceError for an unknown ordering and for `library`, whose order is the library's.
    """
    ordering, size = catalog.get(name), len(contributions)
    schedule = ordering.schedule(size, short, **context) if order is None else in_order(size, order)
    shape, dtype = contributions[0].shape[1:], contributions[0].dtype
    held = accumulate.get(accumulation, dtype, operation)
    if held.propose is not None and held.agreed is not None:
        everything = np.concatenate(contributions)
        held.agreed(held.propose(everything), len(everything))

    def words_of(x: np.ndarray) -> np.ndarray:
        words = np.empty(math.prod(shape) * held.width, held.travels)
        held.load(x, words)
        return words

    over_blocks = "owners" in ordering.needs
    vectors = [
        [words_of(x[i : i + 1]) for i in range(len(x))] if over_blocks else [words_of(x)]
        for x in contributions
    ]
    totals = [np.empty(shape, dtype) for _ in contributions]
    for words, total in zip(
        simulate_schedule(schedule, vectors, held.operation, held.width), totals, strict=True
    ):
        held.store(words, total)
    return totals
