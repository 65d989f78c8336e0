"""Schedules and order-free sums on the serial simulator: no MPI, so properties are tried by the thousand."""

import math
import subprocess
import sys
from fractions import Fraction
from functools import partial
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kernels.allreduce import Reduction, ScheduleError, orderings
from kernels.allreduce.accumulate import ACCUMULATIONS
from kernels.allreduce.catalog import get
from kernels.allreduce.cost import cost
from kernels.allreduce.operations import SUM
from kernels.allreduce.schedule import OWN, Message, Round, Schedule, Sum, Transfer, evenly, transfers
from kernels.allreduce.schedules.in_order import in_order
from kernels.allreduce.simulator import carry_out, simulate, simulate_schedule
from kernels.allreduce.tree import of_chunks, trees
from kernels.guarantees import ChoiceError
from kernels.tree import expression
from tests.order_free import defined

SIZES = (1, 2, 3, 5, 8, 16)
# Over ranks: those over blocks need to know who owns which.
SCHEDULED = [o.name for o in orderings() if o.scheduled and "owners" not in o.needs]

scheduled = pytest.mark.parametrize("name", SCHEDULED)
sizes = pytest.mark.parametrize("size", SIZES)
seeds = st.integers(0, 2**32 - 1)


def lengths(size):
    return sorted({0, 1, size - 1, size, 5, 1000})


def numbers(rng, shape, dtype=np.float64):
    """Values over some orders of magnitude that partly cancel: another order most often has other bits."""
    if np.dtype(dtype) == np.int64:
        return rng.integers(-(2**62), 2**62, shape)
    return (rng.standard_normal(shape) * 10.0 ** rng.integers(-3, 4, shape)).astype(dtype)


def bits(arrays):
    return [a.tobytes() for a in arrays]


def added_in_order(rows):
    """The sum of rows, left to right from +0.0, in the plainest way there is."""
    total = np.zeros(rows.shape[1:], rows.dtype)
    for row in rows:
        total = total + row
    return total


# Additions


@given(
    seed=seeds,
    k=st.sampled_from((0, 1, 2, 3, 8, 9, 17, 129, 1000)),
    shape=st.sampled_from(((), (1,), (2,), (3,), (1, 1), (5, 1), (1, 5), (2, 3), (0,), (257,))),
    dtype=st.sampled_from((np.float64, np.float32, np.int64)),
    layout=st.sampled_from(("C", "F", "strided")),
)
def test_local_contributions_are_added_left_to_right(seed, k, shape, dtype, layout):
    rng = np.random.default_rng(seed)
    x = numbers(rng, (k, *shape), dtype)
    x[rng.random(x.shape) < 0.2] = -0.0 if dtype != np.int64 else 0
    given = np.repeat(x, 2, axis=0)[::2] if layout == "strided" else np.array(x, order=layout)
    out = np.full(shape, 7, dtype)
    with np.errstate(over="ignore"):
        SUM.fold(given, out)
        expected = added_in_order(x)
    assert out.tobytes() == np.asarray(expected).tobytes()


@given(seed=seeds, count=st.integers(2, 9), into=st.integers(0, 9))
def test_a_sum_may_go_into_any_of_its_sources(seed, count, into):
    rng = np.random.default_rng(seed)
    sources = list(numbers(rng, (count, 3)))
    expected = sources[0]
    for source in sources[1:]:
        expected = expected + source
    target = sources[into] if into < count else np.empty(3)
    kept = [None if source is target else source.copy() for source in sources]
    SUM.into(sources, target)
    assert target.tobytes() == expected.tobytes()
    assert all(old is None or old.tobytes() == new.tobytes() for old, new in zip(kept, sources, strict=True))


# Schedules


@scheduled
@sizes
@settings(max_examples=settings.default.max_examples // 3)
@given(seed=seeds, dtype=st.sampled_from((np.float64, np.float32)), data=st.data())
def test_totals_are_equal_on_all_ranks_and_within_the_error_bound(name, size, seed, dtype, data):
    rng = np.random.default_rng(seed)
    n = data.draw(st.sampled_from([n for n in lengths(size) if n < 100]))
    blocks = data.draw(st.lists(st.integers(0, 4), min_size=size, max_size=size))
    contributions = [numbers(rng, (k, n), dtype) for k in blocks]
    totals = simulate(name, contributions)
    assert len(set(bits(totals))) == 1
    assert totals[0].shape == (n,) and totals[0].dtype == dtype
    unit = Fraction(float(np.finfo(dtype).eps)) / 2
    additions_made = sum(blocks) + size
    for column, total in zip(np.concatenate(contributions).T, totals[0], strict=True):
        terms = [Fraction(float(x)) for x in column]
        allowed = additions_made * unit / (1 - additions_made * unit) * sum(map(abs, terms))
        assert abs(Fraction(float(total)) - sum(terms)) <= allowed


@scheduled
@sizes
def test_long_and_short_vectors_and_integers(name, size):
    rng = np.random.default_rng(size)
    for n in lengths(size):
        contributions = [rng.integers(-(2**40), 2**40, (2, n)) for _ in range(size)]
        totals = simulate(name, contributions)
        assert all((total == np.concatenate(contributions).sum(axis=0)).all() for total in totals)


@scheduled
@sizes
def test_the_printed_tree_evaluates_to_the_simulated_bits(name, size):
    rng = np.random.default_rng(size)
    schedule = get(name).schedule(size)
    for n in lengths(size):
        vectors = list(numbers(rng, (size, n)))
        totals = simulate_schedule(schedule, [[v] for v in vectors])
        for element in {0, n // 2, n - 1} & set(range(n)):
            for tree, total in zip(trees(schedule, element, n), totals, strict=True):
                value = eval(expression(tree), {"x": [vector[element] for vector in vectors]})
                assert value.tobytes() == total[element].tobytes()


@scheduled
@sizes
def test_every_rank_evaluates_the_same_tree_with_every_contribution_once(name, size):
    for chunk in zip(*of_chunks(get(name).schedule(size)), strict=True):
        first, *others = map(expression, chunk)
        assert all(other == first for other in others)
        assert sorted(first.replace("(", "").replace(")", "").split(" + ")) == sorted(
            f"x[{rank}]" for rank in range(size)
        )


@pytest.mark.parametrize(
    "name, expected",
    [
        ("linear", "(((((x[0] + x[1]) + x[2]) + x[3]) + x[4]) + x[5])"),
        ("direct", "(((((x[0] + x[1]) + x[2]) + x[3]) + x[4]) + x[5])"),
        ("recursive-doubling", "(((x[0] + x[1]) + (x[2] + x[3])) + (x[4] + x[5]))"),
        ("ring", "(((((x[2] + x[3]) + x[4]) + x[5]) + x[0]) + x[1])"),
    ],
)
def test_the_trees_are_those_of_the_literature(name, expected):
    assert expression(trees(get(name).schedule(6), 2, 6)[0]) == expected


@pytest.mark.parametrize(
    "name, depends", [("linear", False), ("recursive-doubling", False), ("direct", False), ("ring", True)]
)
@pytest.mark.parametrize("size", [p for p in SIZES if p > 2])
def test_only_the_ring_depends_on_the_place_in_the_vector(name, depends, size):
    schedule = get(name).schedule(size)
    chunks = of_chunks(schedule)[0]
    expressions = {
        expression(chunks[schedule.chunk_of(element, n)]) for n in (1, size, 2 * size) for element in range(n)
    }
    assert len(expressions) == (size if depends else 1)


@scheduled
def test_a_fixed_order_over_ranks_depends_on_the_number_of_ranks(name):
    blocks = np.array([[1.0], [1e16], [-1e16], [1.0]])
    totals = {bits(simulate(name, np.split(blocks, size)))[0] for size in (1, 2, 4)}
    assert len(totals) > 1


# Cost


@pytest.mark.parametrize("size", [2, 4, 8, 16])
def test_costs_are_those_of_the_literature(size):
    n, item = 16 * size, 8
    steps = size.bit_length() - 1
    expected = {  # critical messages, bytes, additions; Thakur, Rabenseifner and Gropp 2005
        "linear": (2 * (size - 1), 2 * (size - 1) * n * item, (size - 1) * n),
        "recursive-doubling": (steps, steps * n * item, steps * n),
        "ring": (2 * (size - 1), 2 * (size - 1) * n * item // size, (size - 1) * n // size),
        "direct": (2 * (size - 1), 2 * (size - 1) * n * item // size, (size - 1) * n // size),
    }
    for name, (messages, nbytes, added) in expected.items():
        c = cost(get(name).schedule(size), n, item)
        assert (c.critical_messages, c.critical_bytes, c.critical_additions) == (messages, nbytes, added)
        assert c.seconds(alpha=1.0, beta=0.0, gamma=0.0) == messages
        assert c.seconds(alpha=0.0, beta=1.0, gamma=0.0) == nbytes
        assert c.seconds(alpha=0.0, beta=0.0, gamma=1.0) == added


@scheduled
@sizes
def test_empty_vectors_and_lone_ranks_send_nothing(name, size):
    assert cost(get(name).schedule(size), 0, 8).messages == 0
    assert cost(get(name).schedule(1), 1000, 8).messages == 0


def test_ring_and_direct_send_only_chunks_that_are_not_empty():
    assert cost(get("direct").schedule(8), 1, 8).messages == 2 * 7
    assert cost(get("ring").schedule(8), 1, 8).messages == 2 * 7


@given(n=st.integers(0, 100), chunks=st.integers(1, 20))
def test_chunks_cover_the_vector_and_differ_by_at_most_one_element(n, chunks):
    cuts = [evenly(n, chunks, chunk) for chunk in range(chunks)]
    assert cuts[0][0] == 0 and cuts[-1][1] == n
    assert all(left[1] == right[0] for left, right in pairwise(cuts))
    sizes = [stop - start for start, stop in cuts]
    assert max(sizes) - min(sizes) <= 1


def test_neighbouring_chunks_to_one_peer_are_one_message():
    to = [Message(1, 0, 0), Message(2, 0, 0), Message(1, 1, 0), Message(1, 3, 0)]
    four = Schedule(1, 4, lambda rank: ())
    assert transfers(tuple(to), partial(four.bounds, 8)) == [
        Transfer(1, 0, 0, 0, 4),
        Transfer(2, 0, 0, 0, 2),
        Transfer(1, 1, 0, 6, 8),
    ]
    # Two slots are two places in memory.
    assert transfers((Message(1, 0, 3), Message(1, 1, 4)), partial(four.bounds, 8)) == [
        Transfer(1, 0, 3, 0, 2),
        Transfer(1, 1, 4, 2, 4),
    ]
    # Of two elements in four chunks, chunks 0 and 2 are empty: chunks 1 and 3 follow each other.
    assert transfers((Message(1, 0, 0), Message(1, 1, 0), Message(1, 3, 0)), partial(four.bounds, 2)) == [
        Transfer(1, 0, 0, 0, 2)
    ]


# Schedules that cannot work


def two_ranks(first, second, chunks=2):
    return Schedule(2, chunks, lambda rank: (first, second)[rank])


@pytest.mark.parametrize(
    "schedule, message",
    [
        (two_ranks((Round(),), ()), "different numbers of rounds: \\[1, 0\\]"),
        (
            two_ranks((Round(),), (Round(receives=(Message(0, 1, 1),)),)),
            "round 0: rank 1 expects chunk 1 from rank 0, which sends none",
        ),
        (
            two_ranks((Round(sends=(Message(1, 0, OWN),)),), (Round(receives=(Message(0, 1, 1),)),)),
            "round 0: rank 1 expects chunk 1 from rank 0, which sends chunk 0",
        ),
        (
            two_ranks((Round(), Round(sends=(Message(1, 1, OWN),))), (Round(), Round())),
            "round 1: rank 0 sends chunk 1 to rank 1, which expects none",
        ),
        (
            two_ranks((Round(sums=(Sum(0, 0, (OWN, 1)),)),), (Round(),)),
            "round 0: rank 0 reads slot 1, chunk 0, before it is written",
        ),
        (
            two_ranks(
                (Round(sends=(Message(1, 0, OWN),), receives=(Message(1, 0, 0),)),),
                (Round(sends=(Message(0, 0, OWN),), receives=(Message(0, 0, 1),)),),
            ),
            "round 0: rank 0 expects chunk 0 from rank 1 into slot 0, where that chunk is in use",
        ),
        (
            two_ranks((Round(sums=(Sum(0, 0, (OWN,)), Sum(0, 1, (OWN, 0)))),), (Round(),)),
            "round 0: rank 0 reads slot -1, chunk 0, after that of the total is written",
        ),
        (
            two_ranks((Round(sums=(Sum(1, OWN, (OWN, OWN)),)),), (Round(),)),
            "round 0: rank 0 writes slot -1, chunk 1, which holds a contribution",
        ),
        (
            two_ranks(
                (Round(sends=(Message(1, 0, OWN), Message(1, 1, OWN))),),
                (Round(receives=(Message(0, 0, 1), Message(0, 1, 2))),),
            ),
            "round 0: rank 1 receives from one slot of rank 0 into several",
        ),
        (
            two_ranks(
                (
                    Round(receives=(Message(1, 0, 1),)),
                    Round(sends=(Message(1, 0, OWN), Message(1, 0, 1))),
                ),
                (
                    Round(sends=(Message(0, 0, OWN),)),
                    Round(receives=(Message(0, 0, 1), Message(0, 1, 1))),
                ),
            ),
            "round 1: rank 1 expects chunk 1 from rank 0, which sends chunk 0",
        ),
    ],
)
def test_a_schedule_that_would_hang_or_corrupt_is_refused(schedule, message):
    with pytest.raises(ScheduleError, match=message):
        carry_out(schedule, [[[0, 0]], [[1, 1]]], tuple)


# Arrival


@settings(max_examples=50)
@given(seed=seeds, order=st.sampled_from(SIZES).flatmap(lambda p: st.permutations(range(1, p))))
def test_a_replayed_arrival_gives_the_bits_of_adding_in_that_order(seed, order):
    order = [0, *order]
    contributions = list(numbers(np.random.default_rng(seed), (len(order), 1, 5)))
    expected = added_in_order(np.concatenate([contributions[rank] for rank in order]))
    assert set(bits(simulate("arrival", contributions, order=order))) == {expected.tobytes()}


def test_the_order_of_arrival_decides_the_bits():
    contributions = [np.array([[x]]) for x in (1.0, 1e16, -1e16)]
    assert simulate("arrival", contributions, order=[0, 1, 2])[0] == 0.0
    assert simulate("arrival", contributions, order=[0, 2, 1])[0] == 0.0
    contributions = [np.array([[x]]) for x in (0.0, 1e16, -1e16, 1.0)]
    assert simulate("arrival", contributions, order=[0, 1, 2, 3])[0] == 1.0
    assert simulate("arrival", contributions, order=[0, 1, 3, 2])[0] == 0.0


@pytest.mark.parametrize("name", ["library", "arrival"])
def test_what_has_no_order_of_its_own_is_not_simulated_without_one(name):
    with pytest.raises(ValueError, match=name):
        simulate(name, [np.ones((1, 2))] * 2)


def test_an_order_that_is_no_permutation_is_refused():
    with pytest.raises(ValueError, match=r"no permutation of the ranks 0 \.\.\. 2"):
        in_order(3, [0, 1, 1])


# Order-free sums


def owners(draw, blocks):
    """Blocks dealt out to a drawn number of ranks in a drawn way; ranks may own none."""
    size = draw(st.sampled_from(SIZES))
    owner = draw(st.lists(st.integers(0, size - 1), min_size=len(blocks), max_size=len(blocks)))
    return [blocks[[o == rank for o in owner]] for rank in range(size)]


@given(seed=seeds, count=st.integers(1, 20), dtype=st.sampled_from((np.float64, np.float32)), data=st.data())
def test_exact_sums_do_not_depend_on_rank_count_ownership_or_order(seed, count, dtype, data):
    rng = np.random.default_rng(seed)
    blocks = numbers(rng, (count, 3), dtype)
    dealt = owners(data.draw, blocks[rng.permutation(count)])
    expected = defined(blocks)
    assert set(bits(simulate("direct", dealt, accumulation="exact"))) == {expected.tobytes()}


awkward = st.floats(allow_nan=False, allow_infinity=False, min_value=-1e307, max_value=1e307)


@given(st.lists(awkward, max_size=12), st.data())
def test_exact_sums_are_correctly_rounded(values, data):
    blocks = np.array(values).reshape(-1, 1)
    expected = np.array([math.fsum(values) + 0.0])
    assert set(bits(simulate("direct", owners(data.draw, blocks), accumulation="exact"))) == {
        expected.tobytes()
    }


def nearest_float32(value: Fraction) -> np.float32:
    """The float32 nearest to a fraction, ties to even, by comparing distances."""
    guess = np.float32(float(value))
    candidates = [guess, np.nextafter(guess, np.float32(-np.inf)), np.nextafter(guess, np.float32(np.inf))]
    return min(candidates, key=lambda c: (abs(Fraction(float(c)) - value), int(c.view(np.int32)) & 1))


@given(st.lists(st.floats(width=32, min_value=-(2.0**100), max_value=2.0**100), max_size=12), st.data())
def test_exact_sums_of_float32_are_rounded_once(values, data):
    blocks = np.array(values, np.float32).reshape(-1, 1)
    expected = nearest_float32(sum(map(Fraction, values), Fraction(0))) + np.float32(0)
    assert set(bits(simulate("direct", owners(data.draw, blocks), accumulation="exact"))) == {
        expected.tobytes()
    }


@pytest.mark.parametrize("tiny", [2.0**-40, -(2.0**-40), 2.0**-149, 0.0])
def test_float32_halfway_cases_are_decided_by_what_float64_cannot_hold(tiny):
    # 1 + 2**-24 lies halfway between two float32, and in float64 the tiny rest beside it is lost.
    blocks = np.array([[1.0], [2.0**-24], [tiny]], np.float32)
    expected = np.float32(1 + 2.0**-23) if tiny > 0 else np.float32(1)
    assert simulate("direct", [blocks], accumulation="exact")[0][0] == expected


@scheduled
@sizes
@pytest.mark.parametrize("accumulation", ACCUMULATIONS)
def test_no_zero_total_is_negative(name, size, accumulation):
    contributions = [np.full((rank % 3, 2), -0.0) for rank in range(size)]
    totals = simulate(name, contributions, accumulation=accumulation, nodes=(0,) * size)
    assert set(bits(totals)) == {np.zeros(2).tobytes()}


@pytest.mark.parametrize("size", (1, 2, 3, 4, 8))
@pytest.mark.parametrize("short", (False, True))
def test_every_schedule_has_one_exact_total(size, short):
    """By every ordering, of every length class and type: the bits that all contributions have together."""
    for dtype, decades in ((np.float64, 90), (np.float32, 12)):
        rng = np.random.default_rng([size, decades])
        blocks = rng.standard_normal((2 * size + 1, 5)) * 10.0 ** rng.integers(
            -decades, decades, (2 * size + 1, 5)
        )
        blocks = np.concatenate([blocks, -blocks[:size]]).astype(dtype)
        owner = rng.permutation(np.arange(len(blocks)) % size)
        dealt = [blocks[owner == rank] for rank in range(size)]
        context = {"nodes": tuple(rank // 2 for rank in range(size)), "owners": tuple(owner.tolist())}
        expected = {defined(blocks).tobytes()}
        for o in orderings():
            if o.scheduled:
                totals = simulate(o.name, dealt, short=short, accumulation="exact", **context)
                assert set(bits(totals)) == expected, o.name


# Choosing


def test_every_ordering_says_what_it_promises_and_why():
    promised = {o.name: o.guarantee for o in orderings()}
    assert {"library": "none", "arrival": "none", "block-tree": "layout"}.items() <= promised.items()
    assert {promised[name] for name in SCHEDULED} == {"run"}
    assert all(o.why and o.summary for o in orderings())


def test_an_unknown_ordering_lists_the_known_ones():
    with pytest.raises(ChoiceError, match=r"'rnig'.*library, arrival.*, direct.*block-tree"):
        get("rnig")


def test_an_ordering_below_the_asked_level_lists_those_that_meet_it():
    with pytest.raises(
        ChoiceError,
        match=r"'ring' promises 'run'.*'layout'.*: .*block-tree.*accumulation exact$",
    ):
        Reduction("ring").require("layout")
    with pytest.raises(
        ChoiceError, match=r"promises 'layout'.*meet 'exact': any ordering.*accumulation exact$"
    ):
        Reduction("block-tree").require("exact")
    Reduction("ring").require("run")
    Reduction("ring", accumulation="exact").require("exact")


def test_importing_the_package_does_not_load_mpi():
    code = "import sys, kernels.allreduce; sys.exit('mpi4py' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], timeout=60).returncode == 0
