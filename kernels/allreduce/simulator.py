"""The serial simulator: runs schedules without MPI, over a list with an entry for each rank.

Values may be arrays, added as by the executor, or symbols, which give the reduction tree. A run also checks the
schedule, where a real network would hang or corrupt data.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from kernels import wires
from kernels.allreduce import accumulate, catalog
from kernels.allreduce.coding import Coding, coding
from kernels.allreduce.errors import ScheduleError
from kernels.allreduce.operations import SUM, Operation
from kernels.allreduce.schedule import OWN, TOTAL, Round, Schedule
from kernels.allreduce.schedules.in_order import in_order
from kernels.wires.cells import Cells
from kernels.wires.codecs import Codec

Values = list[Any]  # of one vector, by chunk


def carry_out(
    schedule: Schedule,
    own: Sequence[Sequence[Values]],
    add: Callable[[list], Any],
    send: Callable[[Any, int], Any] | None = None,
) -> list[Values]:
    """Returns the total on every rank, by chunk, from `own[rank][i][chunk]`; i numbers the rank's contributions.

    `add` sums a list, which may have one item. `send(value, chunk)`, optional, returns the value after it has been
    sent, which the sender uses too. A chunk of the total that a rank never gets is None. Raises ScheduleError if
    messages do not match, if a value is read before it is written, if a location is written twice, or written and sent,
    in one round, and if reduction in place would lose a contribution.
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
            _round(current, slots, add, send)
        except ScheduleError as error:
            raise ScheduleError(f"round {index}: {error}") from None
    return [[state.get((TOTAL, chunk)) for chunk in range(schedule.chunks)] for state in slots]


def _round(
    current: tuple[Round, ...],
    slots: list[dict],
    add: Callable[[list], Any],
    send: Callable[[Any, int], Any] | None,
) -> None:
    # (sender, receiver) -> (chunk, slot of the sender, value), in order
    post: dict[tuple[int, int], list] = {}
    for rank, part in enumerate(current):
        for m in part.sends:
            value = _read(slots[rank], rank, m.slot, m.chunk)
            if send is not None:
                value = slots[rank][m.slot, m.chunk] = send(value, m.chunk)
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
    # A contribution that is reduced in place shares its memory with the total.
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
    """The total on every rank, from the contributions of each rank, (n * width,) words each; zeros in parts that a rank
    does not get."""
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
    wire: str = wires.PLAIN,
    tensors: Sequence[tuple[int, ...]] | None = None,
    **context,
) -> list[np.ndarray]:
    """Returns the totals of ordering `name` on every rank, with the bits of the reducer, without MPI.

    `contributions[rank]` is (k, *shape); each rank has its own k >= 0. `arrival` needs the `order` of the ranks.
    `accumulation`: the numbers that hold partial sums; `wire`: the encoding of messages, for vectors of `tensors`;
    `context`: `nodes` or `owners` for the ordering's schedule. With feedback, totals are those of a first call. Raises
    ChoiceError for an unknown ordering and for `library`, whose order is the library's.
    """
    code = coding(wire)
    if code is not None:
        cells = code.codec.cells(math.prod(contributions[0].shape[1:]), tensors)
        if code.hops == "once":
            return _encoded_once(contributions, code, cells, accumulation, context.get("owners"))
        return _encoded_at_each_hop(name, contributions, code.codec, cells, short, context)
    ordering, size = catalog.get(name), len(contributions)
    schedule = ordering.schedule(size, short, **context) if order is None else in_order(size, order)
    shape, dtype = contributions[0].shape[1:], contributions[0].dtype
    held = accumulate.get(accumulation, dtype, operation)

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
        if held.name == "exact":
            accumulate.settle(total, np.concatenate(contributions))
    return totals


def _encoded_once(
    contributions: Sequence[np.ndarray],
    code: Coding,
    cells: Cells,
    accumulation: str,
    owners: Sequence[int] | None,
) -> list[np.ndarray]:
    """The totals of `direct` if contributions and total are encoded once, and between them the sums of groups, if the
    wire has groups. `owners`: the rank of each contribution that is numbered as its block; None: those of rank 0 first.
    """
    shape = contributions[0].shape[1:]
    rows = [x.reshape(len(x), cells.n) for x in contributions]
    held = accumulate.get(accumulation, np.dtype(np.float32))

    def added(x: np.ndarray) -> np.ndarray:
        words, total = np.empty(cells.n * held.width, held.travels), np.empty(cells.n, np.float32)
        held.load(x, words)
        held.store(words, total)
        if held.name == "exact":
            accumulate.settle(total, x)
        return total

    def over(codec: Codec, x: np.ndarray) -> np.ndarray:
        return np.array([codec.over(each, cells) for each in x], np.float32).reshape(x.shape)

    if not accumulate.order_free(accumulation):
        rows = [added(x)[np.newaxis] for x in rows]
    everything = np.concatenate(rows)
    if code.inner is not None:
        if owners is not None and accumulate.order_free(accumulation):
            everything = everything[np.argsort(np.argsort(owners, kind="stable"))]
        decoded = over(code.inner, everything)
        groups = [decoded[k : k + code.group] for k in range(0, len(decoded), code.group)]
        everything = np.array([added(each) for each in groups], np.float32).reshape(len(groups), cells.n)
    total = code.codec.over(added(over(code.codec, everything)), cells).reshape(shape)
    return [total.copy() for _ in contributions]


def _encoded_at_each_hop(
    name: str, contributions: Sequence[np.ndarray], codec: Codec, cells: Cells, short: bool, context: dict
) -> list[np.ndarray]:
    ordering, shape = catalog.get(name), contributions[0].shape[1:]
    schedule = ordering.schedule(len(contributions), short, **context)
    bounds = [schedule.bounds(len(cells), chunk) for chunk in range(schedule.chunks)]
    cuts = [slice(int(cells.starts[first]), int(cells.starts[stop])) for first, stop in bounds]
    travelled: dict[
        int, np.ndarray
    ] = {}  # by identity: values that are decoded already, and stay as they are

    def send(value: np.ndarray, chunk: int) -> np.ndarray:
        if id(value) not in travelled:
            value = codec.over(value, cells.part(*bounds[chunk]))
            travelled[id(value)] = value
        return value

    over_blocks = "owners" in ordering.needs
    own = []
    for x in contributions:
        rows = x.reshape(len(x), cells.n) if over_blocks else [SUM.of([*x.reshape(len(x), cells.n)])]
        own.append([[row[cut] for cut in cuts] for row in rows])
    totals = carry_out(schedule, own, lambda values: SUM.of(values).copy(), send)
    return [
        np.concatenate([send(value, chunk) for chunk, value in enumerate(values)]).reshape(shape)
        for values in totals
    ]
