"""Trees of sums: text, canonical form, depth, values and error bounds, also where the tree is as deep as n."""

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kernels.tree import canonical, depth, error_bound, evaluate, expression, leaves, same

from .hard import bits


@st.composite
def trees(draw, ways=2):
    """Trees over 0 ... n-1 in any order, of nodes with 2 ... `ways` operands."""
    forest = draw(st.permutations(range(draw(st.integers(1, 40)))))
    while len(forest) > 1:
        k = draw(st.integers(2, max(2, min(ways, len(forest)))))
        picked = [forest.pop(draw(st.integers(0, len(forest) - 1))) for _ in range(k)]
        forest.append(tuple(picked))
    return forest[0]


def chain(n):
    tree = 0
    for i in range(1, n):
        tree = (tree, i)
    return tree


def mirrored(n):
    tree = n - 1
    for i in reversed(range(n - 1)):
        tree = (i, tree)
    return tree


def test_a_tree_is_written_as_python_would_add_and_several_terms_as_one_call():
    assert expression(((0, 1), (2, 3))) == "((x[0] + x[1]) + (x[2] + x[3]))"
    assert expression(((2, 0, 1), 3)) == "(add(x[2], x[0], x[1]) + x[3])"
    assert expression(5) == "x[5]"


@given(trees(), st.integers(0, 2**32))
def test_the_value_is_that_of_the_expression_in_float64_and_float32(tree, seed):
    x = np.random.default_rng(seed).standard_normal(len(leaves(tree)))
    assert bits(evaluate(tree, x)[0]) == bits(np.float64(eval(expression(tree), {"x": x.tolist()})))
    x = x.astype(np.float32)
    assert bits(evaluate(tree, x)[0]) == bits(eval(expression(tree), {"x": x}))


@given(trees(ways=4), st.randoms())
def test_exchanging_operands_leaves_the_canonical_form(tree, random):
    def exchanged(tree):
        if isinstance(tree, int):
            return tree
        parts = [exchanged(part) for part in tree]
        random.shuffle(parts)
        return tuple(parts)

    assert canonical(exchanged(tree)) == canonical(tree)
    assert same(exchanged(tree), tree)
    assert canonical(canonical(tree)) == canonical(tree)


def test_other_brackets_are_another_sum():
    assert not same(((0, 1), 2), (0, (1, 2)))
    assert not same(((0, 1), 2), (0, 1, 2))
    assert same(((0, 1), 2), (2, (1, 0)))


def test_depth_counts_the_additions_that_a_term_goes_through():
    assert [depth(tree) for tree in (0, (0, 1), ((0, 1), (2, 3)), ((0, 1, 2, 3), 4))] == [0, 1, 2, 2]


@given(trees(), st.integers(0, 2**32))
def test_the_error_is_within_both_bounds(tree, seed):
    rng = np.random.default_rng(seed)
    n = len(leaves(tree))
    x = (rng.standard_normal(n) * 10.0 ** rng.integers(-8, 9, n)).astype(np.float32)
    total, running = evaluate(tree, x)
    error = abs(Fraction(float(total)) - sum(map(Fraction, x.astype(np.float64).tolist())))
    assert error <= Fraction(float(running)) * (1 + Fraction(1, 2**40))
    assert error <= Fraction(error_bound(depth(tree), x)) * (1 + Fraction(n, 2**20))


def test_the_bound_of_a_case_done_by_hand():
    x = np.array([1.0, 2.0, -4.0])
    assert error_bound(2, x) == 2 * 2.0**-53 * 7
    assert evaluate(((0, 1), 2), x) == (-1.0, 2.0**-53 * (3 + 1))


@pytest.mark.parametrize("make", [chain, mirrored])
def test_trees_as_deep_as_long_are_no_trouble(make):
    n = 20_000
    tree = make(n)
    assert depth(canonical(tree)) == n - 1
    assert same(tree, canonical(tree))
    assert sorted(leaves(tree)) == list(range(n))
    assert evaluate(tree, np.ones(n))[0] == n


def test_terms_added_at_once_have_no_value_of_their_own():
    with pytest.raises(ValueError, match="3 terms are added at once"):
        evaluate((0, 1, 2), np.ones(3))
