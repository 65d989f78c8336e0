"""What every schedule must do, whatever its ordering, and what each of the trees is."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kernels.allreduce import orderings
from kernels.allreduce.catalog import get
from kernels.allreduce.cost import cost
from kernels.allreduce.schedule import TOTAL
from kernels.allreduce.simulator import simulate, simulate_schedule
from kernels.allreduce.tree import trees
from kernels.guarantees import ChoiceError
from kernels.tree import expression, leaves

SIZES = (1, 2, 3, 4, 5, 7, 8, 16)
SCHEDULED = [o.name for o in orderings() if o.scheduled]

scheduled = pytest.mark.parametrize("name", SCHEDULED)
sizes = pytest.mark.parametrize("size", SIZES)
short_or_long = pytest.mark.parametrize("short", [False, True], ids=["long", "short"])


def lengths(size):
    return sorted({0, 1, size - 1, size, 5, 1000})


def tree(name, size, element=0, n=None, **context):
    return expression(trees(get(name).schedule(size, **context), element, n or size)[0])


# All of them


@scheduled
@sizes
@short_or_long
def test_every_rank_gets_the_same_tree_with_every_contribution_once(name, size, short):
    schedule = get(name).schedule(size, short)
    every = sorted(leaf for rank in range(size) for leaf in schedule.leaves(rank))
    for n in (1, size, 3 * size + 1):
        for element in {0, n // 2, n - 1}:
            first, *others = trees(schedule, element, n)
            assert sorted(leaves(first)) == every
            assert all(expression(other) == expression(first) for other in others)


@scheduled
@sizes
def test_the_variant_for_short_vectors_makes_the_same_additions(name, size):
    for n in (1, size, 3 * size + 1):
        for element in range(n):
            assert tree(name, size, element, n, short=True) == tree(name, size, element, n)


@scheduled
@sizes
@short_or_long
def test_totals_are_those_of_the_tree_for_any_length(name, size, short):
    rng = np.random.default_rng(size)
    schedule = get(name).schedule(size, short)
    for n in lengths(size):
        vectors = rng.standard_normal((size, n))
        first, *others = simulate_schedule(schedule, [[v] for v in vectors])
        assert all(other.tobytes() == first.tobytes() for other in others)
        for element in {0, n // 2, n - 1} & set(range(n)):
            text = expression(trees(schedule, element, n)[0])
            assert eval(text, {"x": vectors[:, element]}).tobytes() == first[element].tobytes()


# Trees


@pytest.mark.parametrize(
    "name, size, expected",
    [
        ("reverse", 4, "(((x[3] + x[2]) + x[1]) + x[0])"),
        ("binomial", 4, "((x[0] + x[1]) + (x[2] + x[3]))"),
        ("binomial", 7, "(((x[0] + x[1]) + (x[2] + x[3])) + ((x[4] + x[5]) + x[6]))"),
        ("binomial", 5, "(((x[0] + x[1]) + (x[2] + x[3])) + x[4])"),
    ],
)
def test_trees_are_those_of_the_literature(name, size, expected):
    assert tree(name, size) == expected


@given(seed=st.integers(-(2**70), 2**70), size=st.sampled_from(SIZES))
def test_a_permuted_order_is_a_function_of_seed_and_size(seed, size):
    name = f"permuted:seed={seed}"
    order = leaves(trees(get(name).schedule(size), 0, 1)[0])
    assert sorted(order) == list(range(size))
    assert leaves(trees(get(name).schedule(size), 0, 1)[0]) == order


def test_permuted_orders_are_the_same_everywhere_and_differ_by_seed():
    assert tree("permuted:seed=3", 5) == "((((x[0] + x[4]) + x[2]) + x[3]) + x[1])"
    assert len({tree(f"permuted:seed={seed}", 4) for seed in range(200)}) == 24


# Block tree


def aligned(count):
    """The aligned binary tree, as the loop that defines it."""
    p = [f"x[{block}]" for block in range(count)]
    s = 1
    while s < count:
        for i in range(0, count - s, 2 * s):
            p[i] = f"({p[i]} + {p[i + s]})"
        s *= 2
    return p[0]


ownerships = st.tuples(st.integers(1, 8), st.integers(1, 40)).flatmap(
    lambda drawn: st.tuples(
        st.just(drawn[0]), st.lists(st.integers(0, drawn[0] - 1), min_size=drawn[1], max_size=drawn[1])
    )
)


@settings(max_examples=200)
@given(ownerships, st.booleans())
def test_the_tree_over_blocks_knows_neither_ranks_nor_owners(drawn, short):
    size, owners = drawn
    schedule = get("block-tree").schedule(size, short, owners=owners)
    for element in range(size):
        assert {expression(t) for t in trees(schedule, element, size)} == {aligned(len(owners))}


@pytest.mark.parametrize("count", [1, 2, 3, 5, 8, 21])
@pytest.mark.parametrize("dtype", ["float64", "float32", "float16"])
def test_block_sums_have_one_set_of_bits_for_all_sizes_and_owners(count, dtype):
    rng = np.random.default_rng(count)
    blocks = (rng.standard_normal((count, 13)) * 10.0 ** rng.integers(-2, 3, (count, 1))).astype(dtype)
    found = set()
    for size in range(1, 9):
        for owners in (np.arange(count) * size // count, rng.integers(0, size, count)):
            dealt = [blocks[owners == rank] for rank in range(size)]
            for short in (False, True):
                totals = simulate("block-tree", dealt, short=short, owners=owners.tolist())
                found |= {total.tobytes() for total in totals}
    assert len(found) == 1


def test_ranks_without_blocks_get_the_total():
    dealt = [np.empty((0, 2)), np.array([[1.0, 2.0], [3.0, 4.0]]), np.empty((0, 2))]
    assert [t.tolist() for t in simulate("block-tree", dealt, owners=[1, 1])] == [[4.0, 6.0]] * 3


def test_a_contribution_that_is_sent_is_not_copied_before():
    for size in SIZES[1:]:
        for current in (r for rank in get("block-tree").schedule(size).ranks() for r in rank):
            assert all(len(s.sources) == 2 for s in current.sums)


@pytest.mark.parametrize("count", [2, 3, 8, 9, 64, 1000])
def test_partial_sums_over_blocks_take_as_many_slots_as_the_tree_is_deep(count):
    (only,) = get("block-tree").schedule(1, owners=[0] * count).program(0)
    assert len({s.into for s in only.sums if s.into != TOTAL}) <= (count - 1).bit_length()
    # Of the eight ranks each sums its subtree of eight blocks, and gets the seven other subtrees.
    first, *_ = get("block-tree").schedule(8, owners=[rank for rank in range(8) for _ in range(8)]).program(3)
    assert len({s.into for s in first.sums}) <= 3


def test_block_tree_moves_no_more_than_direct_where_ranks_own_subtrees():
    for size in (2, 4, 8):
        for each in (1, 4):
            owners = [rank for rank in range(size) for _ in range(each)]
            for short in (False, True):
                tree_cost = cost(get("block-tree").schedule(size, short, owners=owners), 16 * size, 8)
                direct = cost(get("direct").schedule(size, short), 16 * size, 8)
                assert tree_cost.bytes == direct.bytes
                assert tree_cost.critical_messages == direct.critical_messages


@pytest.mark.parametrize(
    "owners, message",
    [
        ((), "no rank has a block"),
        ((0, 3), r"block 1 is owned by rank 3; ranks are 0 \.\.\. 1"),
        ((-1,), "block 0"),
    ],
)
def test_blocks_without_an_owner_are_refused(owners, message):
    with pytest.raises(ChoiceError, match=message):
        get("block-tree").schedule(2, owners=owners)


# Costs


@pytest.mark.parametrize("size", [2, 4, 8, 16])
def test_costs_for_powers_of_two(size):
    n, item = 16 * size, 8
    steps = size.bit_length() - 1
    expected = {  # critical messages, bytes, additions
        "reverse": (2 * (size - 1), 2 * (size - 1) * n * item, (size - 1) * n),
        "permuted": (2 * (size - 1), 2 * (size - 1) * n * item, (size - 1) * n),
        "binomial": (2 * steps, 2 * steps * n * item, steps * n),
        "block-tree": (2 * (size - 1), 2 * (size - 1) * n * item // size, (size - 1) * n // size),
    }
    for name, counts in expected.items():
        c = cost(get(name).schedule(size), n, item)
        assert (c.critical_messages, c.critical_bytes, c.critical_additions) == counts


@pytest.mark.parametrize("size", [2, 3, 5, 8])
def test_a_binomial_tree_sends_each_partial_sum_and_each_total_once(size):
    c = cost(get("binomial").schedule(size), 10, 8)
    assert (c.messages, c.bytes) == (2 * (size - 1), 2 * (size - 1) * 80)
