"""Contributions that are handed over one by one: what a rank adds before its first message, and what it keeps."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kernels import _native, exact
from kernels.allreduce import accumulate, collectives
from kernels.allreduce.accumulate import marked
from kernels.allreduce.catalog import get
from kernels.allreduce.execution.handover import PARTS, Expanded, Merged
from kernels.allreduce.local import ahead, left_to_right
from kernels.allreduce.simulator import carry_out
from kernels.allreduce.tree import trees
from tests.order_free import defined

COLLECTIVES = {
    "allreduce": lambda schedule: schedule,
    "reduce": lambda schedule: collectives.reduce(schedule, schedule.size - 1),
    "reduce-scatter": collectives.reduce_scatter,
}
owners = st.integers(1, 5).flatmap(
    lambda size: st.tuples(st.just(size), st.lists(st.integers(0, size - 1), min_size=1, max_size=20))
)


def pairs(sources):
    total = sources[0]
    for source in sources[1:]:
        total = (total, source)
    return total


def leaves_named(tree, names):
    return tuple(leaves_named(child, names) for child in tree) if isinstance(tree, tuple) else names[tree]


@given(owners, st.booleans(), st.sampled_from([*COLLECTIVES]))
def test_what_is_added_ahead_leaves_every_total_the_tree_that_it_had(owned, short, collective):
    size, owner = owned
    schedule = COLLECTIVES[collective](get("block-tree").schedule(size, short, owners=owner))
    handovers = [ahead(schedule, rank) for rank in range(size)]
    own = [[[leaf] * schedule.chunks for leaf in schedule.leaves(rank)] for rank in range(size)]
    sums = [
        [[leaves_named(tree, schedule.leaves(rank))] * schedule.chunks for tree in handovers[rank][0]]
        for rank in range(size)
    ]
    rest = replace(schedule, program=lambda rank: handovers[rank][1])
    wanted, totals = carry_out(schedule, own, pairs), carry_out(rest, sums, pairs)
    each = schedule.chunks // size
    for rank in range(size - 1 if collective == "reduce" else 0, size):
        asked = slice(rank * each, (rank + 1) * each) if collective == "reduce-scatter" else slice(None)
        assert totals[rank][asked] == wanted[rank][asked]


def test_blocks_in_a_row_become_one_tree_on_every_rank():
    schedule = get("block-tree").schedule(4, owners=[block // 16 for block in range(64)])
    assert [len(ahead(schedule, rank)[0]) for rank in range(4)] == [1, 1, 1, 1]


def held_at_once(added, order, x):
    """The most arrays that were kept at any time."""
    most = 0
    for block in order:
        added.add(int(block), x[block])
        most = max(most, len(added._waiting) + len(added._sums))
    return most


@given(st.integers(1, 70), st.sampled_from(["working", "float64", "compensated"]), st.randoms())
def test_any_order_of_arrival_gives_the_bits_of_left_to_right(k, accumulation, random):
    x = np.random.default_rng(k).standard_normal((k, 3)).astype(np.float32)
    held = accumulate.get(accumulation, np.float32)
    expected = np.empty(3 * held.width, held.travels)
    held.load(x, expected)
    added = Merged("it", range(k), (3,), held, left_to_right(k))
    order = list(range(k))
    for _ in range(2):  # the second time in memory of the first
        random.shuffle(order)
        held_at_once(added, order, x)
        assert added.sums[0].tobytes() == expected.tobytes()
        added.reset()


@pytest.mark.parametrize("k", [1, 2, 64, 1000])
def test_in_order_few_sums_are_kept(k):
    x = np.ones((k, 2))
    held = accumulate.get("working", np.float64)
    (tree,) = trees(get("block-tree").schedule(1, owners=[0] * k), 0, 2)
    aligned = Merged("it", range(k), (2,), held, [tree])
    assert held_at_once(aligned, range(k), x) <= k.bit_length()
    assert held_at_once(Merged("it", range(k), (2,), held, left_to_right(k)), range(k), x) == 1
    assert aligned.sums[0].tolist() == [k, k]


@given(st.lists(st.floats(width=64), min_size=1, max_size=40))
def test_expanded_sums_are_exact(numbers):
    x = np.array(numbers).reshape(-1, 1)
    added = Expanded("it", range(len(x)), (1,), x.dtype)
    for block, row in enumerate(x):
        added.add(block, row)
    rows, total = added.sum.rows(), np.empty(1)
    assert len(rows) <= PARTS
    _native.exact_sum(rows, total, marks=True)
    if len(marked(total)):
        total = exact.round(added.sum.words_of(np.array([0])))
    assert total.tobytes() == defined(x).tobytes()
