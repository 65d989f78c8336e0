"""Order discovery: from its values alone, any order is found, and what has none is told apart."""

from itertools import pairwise

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kernels import registry
from kernels.sums.discover import COMPENSATED, ORDER_FREE, NoOrder, NotATree, discover
from kernels.tree import canonical, evaluate, expression, fold, same

from .test_tree import chain, mirrored, trees

TYPES = [np.float64, np.float32, np.float16, ml_dtypes.bfloat16]


def by(tree, accumulator=np.float64):
    """The sum by a tree, as a black box."""
    return lambda x: evaluate(tree, x.astype(accumulator))[0]


def fused(tree, bits=24):
    """As by(tree), where nodes of several terms align all with the largest and cut off what sticks out."""

    def node(children):
        if len(children) == 2:
            return children[0] + children[1]
        unit = 2.0 ** (np.frexp(max(map(abs, children)))[1] - bits)
        return sum(np.trunc(child / unit) * unit for child in children)

    return lambda x: fold(tree, x.__getitem__, node)


def kahan(x):
    total = carried = 0.0
    for v in x.tolist():
        v -= carried
        new = total + v
        carried = (new - total) - v
        total = new
    return total


@pytest.mark.parametrize("dtype", TYPES, ids=lambda t: t.__name__)
@given(tree=trees(), seed=st.integers(0, 2**32))
@settings(max_examples=30, deadline=None)
def test_any_tree_is_found(dtype, tree, seed):
    n = len(expression(tree).split("x[")) - 1
    accumulator = np.float64 if dtype is np.float64 else np.float32
    assert discover(by(tree, accumulator), n, dtype, seed=seed) == canonical(tree)


@given(tree=trees(ways=5), seed=st.integers(0, 2**32))
@settings(max_examples=60, deadline=None)
def test_terms_added_at_once_are_found(tree, seed):
    n = len(expression(tree).split("x[")) - 1
    assert discover(fused(tree), n, np.float32, seed=seed) == canonical(tree)


@pytest.mark.parametrize("make", [chain, mirrored])
def test_deep_trees_cost_no_more_than_n_log_n_questions(make):
    n, asked = 2000, 0

    def f(x):
        nonlocal asked
        asked += 1
        x = x if make is chain else x[::-1]
        return np.cumsum(x)[-1]

    assert same(discover(f, n), make(n))
    assert asked < n * np.log2(n)


@pytest.mark.parametrize("dtype", [np.float16, ml_dtypes.bfloat16], ids=lambda t: t.__name__)
def test_narrow_types_count_more_units_than_they_hold_in_several_questions(dtype):
    """bfloat16 holds 256 units exactly, and a total in float16 2048."""
    n = 600 if dtype is ml_dtypes.bfloat16 else 2500
    found = discover(lambda x: np.cumsum(x.astype(np.float32))[-1].astype(dtype), n, dtype)
    assert same(found, chain(n))


def test_a_sum_in_a_wider_type_is_found_all_the_same():
    tree = chain(50)
    for accumulator in (np.float64, np.longdouble):
        assert same(discover(lambda x, a=accumulator: by(tree, a)(x), 50, np.float32), tree)


@pytest.mark.parametrize("name", ["exact", "fixed-point"])
@pytest.mark.parametrize("n", [3, 4, 20, 200])
def test_sums_without_order_are_recognised(name, n):
    assert discover(registry.get("sum", name), n) == NoOrder(ORDER_FREE, tuple(range(n)))


@pytest.mark.parametrize("n", [5, 20, 1000])
def test_errors_added_up_apart_are_recognised(n):
    assert discover(registry.get("sum", "neumaier"), n) == NoOrder(COMPENSATED, tuple(range(n)))


@pytest.mark.parametrize("n", [5, 10, 300])
def test_errors_handed_on_are_recognised_with_the_order_of_the_sum(n):
    found = discover(kahan, n)
    assert found.kind == COMPENSATED
    assert [expression(part) for part in found.parts] == [expression(chain(n))]


@pytest.mark.parametrize(
    "sizes", [(4, 4, 4), (4, 4, 8), (8, 4, 4), (1, 1, 2), (3, 5, 7, 9), (1, 6, 1), (2, 2, 2, 2), (5,) * 6]
)
@pytest.mark.parametrize("name", ["exact", "neumaier"])
def test_partial_sums_that_are_combined_without_order_are_found(sizes, name):
    edges = np.cumsum((0, *sizes))
    blocks = [range(a, b) for a, b in pairwise(edges)]
    combine = registry.get("sum", name)

    def f(x):
        return combine(np.array([np.cumsum(x[b])[-1] for b in blocks]))

    expected = tuple(fold(chain(len(b)), lambda i, b=b: b[i], tuple) for b in blocks)
    for seed in range(5):
        kind = COMPENSATED if name == "neumaier" and len(sizes) > 4 else ORDER_FREE
        assert discover(f, sum(sizes), seed=seed) == NoOrder(kind, expected)


def test_a_sum_in_an_order_of_chance_is_no_tree():
    rng = np.random.default_rng(1)
    with pytest.raises(NotATree, match="does not repeat"):
        discover(lambda x: np.cumsum(rng.permutation(x))[-1], 100)


def test_a_sum_whose_order_depends_on_the_values_is_no_tree():
    with pytest.raises(NotATree, match="order depends on the values"):
        discover(lambda x: np.cumsum(x if x[0] >= 0 else x[::-1])[-1], 30)


@pytest.mark.parametrize("f", [lambda x: x.max(), lambda x: 1.5, lambda x: np.nan])
def test_what_is_no_sum_is_no_tree(f):
    with pytest.raises(NotATree, match=r"whole number of units|no tree has such counts"):
        discover(f, 10)


def test_other_types_and_lengths_are_refused():
    with pytest.raises(TypeError, match="no masks for int64: choose one of float64, float32"):
        discover(np.sum, 4, np.int64)
    with pytest.raises(ValueError, match="n = 0"):
        discover(np.sum, 0)
