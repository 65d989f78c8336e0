"""Reduce, reduce-scatter and allgather as parts of every all-reduce."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from kernels.allreduce import Reduction, ScheduleError, orderings
from kernels.allreduce.catalog import get
from kernels.allreduce.collectives import allgather, reduce, reduce_scatter
from kernels.allreduce.cost import cost
from kernels.allreduce.instruments.draw import ordering_svg
from kernels.allreduce.schedule import Schedule, evenly
from kernels.allreduce.simulator import carry_out, simulate_schedule
from kernels.guarantees import ChoiceError

SIZES = (1, 2, 3, 5, 8)
SCHEDULED = [o.name for o in orderings() if o.scheduled]

scheduled = pytest.mark.parametrize("name", [*SCHEDULED, "ring:cut=full"])
sizes = pytest.mark.parametrize("size", SIZES)
short_or_long = pytest.mark.parametrize("short", [False, True], ids=["long", "short"])


def lengths(size):
    return sorted({0, 1, size - 1, size, 5, 100})


def at_ranks(schedule: Schedule, vectors, n):
    """What lies where the total would, by rank: (n,), with NaN where nothing is."""
    cuts = [slice(*schedule.bounds(n, chunk)) for chunk in range(schedule.chunks)]
    own = [[[vector[cut] for cut in cuts]] for vector in vectors]
    totals = []
    for values in carry_out(schedule, own, lambda xs: sum(xs[1:], start=xs[0])):
        total = np.full(n, np.nan)
        for cut, value in zip(cuts, values, strict=True):
            if value is not None:
                total[cut] = value
        totals.append(total)
    return totals


@scheduled
@sizes
@short_or_long
def test_reduce_and_reduce_scatter_have_the_bits_of_the_all_reduce(name, size, short):
    schedule = get(name).schedule(size, short)
    scattered, root = reduce_scatter(schedule), size // 2
    reduced = reduce(schedule, root)
    for n in lengths(size):
        vectors = np.random.default_rng(n).standard_normal((size, n))
        expected = simulate_schedule(schedule, [[v] for v in vectors])[0]
        assert at_ranks(reduced, vectors, n)[root].tobytes() == expected.tobytes()
        for rank, total in enumerate(at_ranks(scattered, vectors, n)):
            part = slice(*evenly(n, size, rank))
            assert total[part].tobytes() == expected[part].tobytes()


def bounds_of(size, n):
    """Parts of a vector of n for the ranks: all for the first, all for the last, and drawn ones, some of them empty."""
    drawn = np.sort(np.random.default_rng([size, n]).integers(0, n + 1, size - 1))
    yield (0, *(n for _ in range(size)))
    yield (*(0 for _ in range(size)), n)
    yield (0, *map(int, drawn), n)


@scheduled
@sizes
@short_or_long
def test_reduce_scatter_in_given_parts_has_the_bits_of_the_all_reduce(name, size, short):
    schedule = get(name).schedule(size, short)
    for n in (0, 1, 5, 100):
        vectors = np.random.default_rng(n).standard_normal((size, n))
        expected = simulate_schedule(schedule, [[v] for v in vectors])[0]
        for bounds in bounds_of(size, n):
            scattered = reduce_scatter(schedule, bounds)
            for rank, total in enumerate(simulate_schedule(scattered, [[v] for v in vectors])):
                part = slice(*bounds[rank : rank + 2])
                assert total[part].tobytes() == expected[part].tobytes()
            if n == (1 if short else 5) and name != "two-level":
                reduction = Reduction(name, (n,), collective="reduce-scatter", bounds=bounds)
                assert ordering_svg(reduction, scattered, n, "schedule").startswith("<svg")


@pytest.mark.parametrize("name", ["direct", "block-tree"])
@pytest.mark.parametrize("size", [2, 3, 4, 5])
def test_a_rank_sends_what_is_not_its_own_whatever_the_parts(size, name):
    n = 100
    for bounds in bounds_of(size, n):
        schedule = reduce_scatter(get(name).schedule(size), bounds)
        assert (cost(schedule, n, 8).rounds, cost(schedule, n, 8).bytes) == (1, (size - 1) * n * 8)


def test_bounds_that_do_not_fit_are_refused():
    for bounds, part in (
        ((0, 3, 2, 5), "bounds must not descend: rank 1 would get elements 3 to 2"),
        ((1, 2, 5), "must begin with 0 and end with 5"),
        ((0, 2, 4), "must begin with 0 and end with 5"),
        ((), "must begin with 0"),
    ):
        with pytest.raises(ValueError, match=part):
            Reduction("direct", (5,), collective="reduce-scatter", bounds=bounds)
    with pytest.raises(ChoiceError, match="bounds are for a reduce-scatter, not for allreduce"):
        Reduction("direct", (5,), bounds=(0, 5))
    with pytest.raises(ChoiceError, match="3 numbers for 3 ranks; give 4"):
        reduce_scatter(get("direct").schedule(3), (0, 1, 5))


@scheduled
@sizes
@short_or_long
def test_allgather_brings_every_part_to_every_rank_once(name, size, short):
    schedule = allgather(get(name).schedule(size, short))
    for n in lengths(size):
        expected = np.random.default_rng(n).standard_normal(n)
        vectors = np.full((size, n), np.nan)  # what is not to be read
        for rank in range(size):
            part = slice(*evenly(n, size, rank))
            vectors[rank, part] = expected[part]
        assert all(total.tobytes() == expected.tobytes() for total in at_ranks(schedule, vectors, n))
        assert cost(schedule, n, 8).bytes == (size - 1) * n * 8


def works(schedule: Schedule, ranks, chunks) -> bool:
    """Whether each chunk is complete at its rank: the sum of every contribution once."""
    own = [[[(rank,)] * schedule.chunks] for rank in range(schedule.size)]
    try:
        values = carry_out(schedule, own, lambda xs: sum(xs, start=()))
    except ScheduleError:
        return False
    everything = list(range(schedule.size))
    return all(
        sorted(values[rank][chunk] or ()) == everything for rank, chunk in zip(ranks, chunks, strict=True)
    )


def without(schedule: Schedule, number: int, sender: int, receiver: int, chunk: int) -> Schedule:
    """The schedule without what one rank sends to another in one round of one chunk."""

    def program(rank):
        rounds = list(schedule.program(rank))
        part = rounds[number]
        if rank == sender:
            part = replace(part, sends=tuple(m for m in part.sends if (m.peer, m.chunk) != (receiver, chunk)))
        if rank == receiver:
            part = replace(
                part, receives=tuple(m for m in part.receives if (m.peer, m.chunk) != (sender, chunk))
            )
        rounds[number] = part
        return tuple(rounds)

    return replace(schedule, program=program)


@scheduled
@pytest.mark.parametrize("size", [2, 3, 4, 5])
def test_every_message_is_needed(name, size):
    schedule = get(name).schedule(size)
    all_chunks = range(schedule.chunks)
    scattered = reduce_scatter(schedule)
    if schedule.cut is evenly:
        owners = [chunk * size // scattered.chunks for chunk in range(scattered.chunks)]
    else:
        owners = [chunk % size for chunk in range(scattered.chunks)]
    for collective, ranks, chunks in (
        (reduce(schedule, size - 1), [size - 1] * schedule.chunks, all_chunks),
        (scattered, owners, range(scattered.chunks)),
    ):
        assert works(collective, ranks, chunks)
        for number, current in enumerate(zip(*collective.ranks(), strict=True)):
            assert any(part.sends or part.sums for part in current)
            sent = {(rank, m.peer, m.chunk) for rank, part in enumerate(current) for m in part.sends}
            # Chunks are alike but for their turn: a few stand for all.
            for sender, receiver, chunk in sorted(sent)[:: 1 + len(sent) // 8]:
                assert not works(without(collective, number, sender, receiver, chunk), ranks, chunks)


def counts(schedule, n=840):
    c = cost(schedule, n, 1)
    return c.rounds, c.messages, c.bytes


@pytest.mark.parametrize("size", [2, 3, 4, 5, 7, 8])
def test_direct_is_a_reduce_scatter_and_an_allgather(size):
    schedule = get("direct").schedule(size)
    programs = list(schedule.ranks())
    assert list(reduce_scatter(schedule).ranks()) == [rounds[:1] for rounds in programs]
    gathered = [
        tuple(replace(r, sums=(), sends=tuple(replace(m, slot=0) for m in r.sends)) for r in rounds)
        for rounds in allgather(schedule).ranks()
    ]
    assert gathered == [rounds[1:] for rounds in programs]


@pytest.mark.parametrize("size", [2, 3, 4, 5, 7, 8])
def test_costs_of_the_parts(size):
    n, p = 840, size
    steps = (size - 1).bit_length()
    expected = {
        ("linear", "reduce"): (1, p - 1, (p - 1) * n),
        ("linear", "reduce-scatter"): (2, 2 * (p - 1), (p - 1) * n + (p - 1) * n // p),
        ("binomial", "reduce"): (steps, p - 1, (p - 1) * n),
        ("ring", "reduce"): (2 * (p - 1), p * (p - 1) + p * (p - 1) // 2, None),
        ("ring", "allgather"): (p - 1, p * (p - 1), (p - 1) * n),
        ("direct", "reduce"): (2, (p + 1) * (p - 1), (p - 1) * n + (p - 1) * n // p),
        ("direct", "allgather"): (1, p * (p - 1), (p - 1) * n),
    }
    make = {"reduce": lambda s: reduce(s, 0), "reduce-scatter": reduce_scatter, "allgather": allgather}
    for (name, collective), (rounds, messages, nbytes) in expected.items():
        tally = counts(make[collective](get(name).schedule(size)), n)
        assert tally[0] == rounds, (name, collective)
        assert tally[1] == messages, (name, collective)
        assert nbytes is None or tally[2] == nbytes, (name, collective)


@pytest.mark.parametrize("start, hops", [(0, 1), (1, 0)])
@pytest.mark.parametrize("size", [3, 4, 5, 7, 8])
def test_a_ring_scatters_in_its_first_half_or_one_hop_more(size, start, hops):
    schedule = reduce_scatter(get(f"ring:start={start}").schedule(size))
    assert cost(schedule, 840, 1).bytes == (size - 1 + hops) * 840


@pytest.mark.parametrize("size", [2, 4, 8])
def test_recursive_doubling_reduces_and_gathers_in_as_many_steps(size):
    steps = size.bit_length() - 1
    for name in ("recursive-doubling", "rabenseifner"):
        assert counts(allgather(get(name).schedule(size)))[0] == steps
    # To one rank it is the binomial tree.
    assert counts(reduce(get("recursive-doubling").schedule(size), 0)) == (steps, size - 1, (size - 1) * 840)
    assert counts(reduce_scatter(get("rabenseifner").schedule(size)))[2] <= 840 * size


def test_all_reduces_of_other_collectives_are_refused():
    with pytest.raises(ChoiceError, match=r"root 3 is no rank: choose 0 \.\.\. 2"):
        reduce(get("direct").schedule(3), 3)
    with pytest.raises(ChoiceError, match="rank 0 has 2 blocks"):
        allgather(get("block-tree").schedule(2, owners=[0, 0, 1]))
