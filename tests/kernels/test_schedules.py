"""What every schedule must do, whatever its ordering, and what each of the trees is."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kernels.allreduce import orderings
from kernels.allreduce.catalog import get
from kernels.allreduce.cost import cost
from kernels.allreduce.simulator import simulate_schedule
from kernels.allreduce.tree import trees
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


# Costs


@pytest.mark.parametrize("size", [2, 4, 8, 16])
def test_costs_for_powers_of_two(size):
    n, item = 16 * size, 8
    steps = size.bit_length() - 1
    expected = {  # critical messages, bytes, additions
        "reverse": (2 * (size - 1), 2 * (size - 1) * n * item, (size - 1) * n),
        "permuted": (2 * (size - 1), 2 * (size - 1) * n * item, (size - 1) * n),
        "binomial": (2 * steps, 2 * steps * n * item, steps * n),
    }
    for name, counts in expected.items():
        c = cost(get(name).schedule(size), n, item)
        assert (c.critical_messages, c.critical_bytes, c.critical_additions) == counts


@pytest.mark.parametrize("size", [2, 3, 5, 8])
def test_a_binomial_tree_sends_each_partial_sum_and_each_total_once(size):
    c = cost(get("binomial").schedule(size), 10, 8)
    assert (c.messages, c.bytes) == (2 * (size - 1), 2 * (size - 1) * 80)
