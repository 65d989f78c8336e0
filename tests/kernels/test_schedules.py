"""Properties of every schedule, for every ordering, and the tree of each."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kernels.allreduce import orderings
from kernels.allreduce.catalog import get
from kernels.allreduce.cost import cost
from kernels.allreduce.schedule import TOTAL
from kernels.allreduce.schedules.double_tree import pair
from kernels.allreduce.simulator import simulate, simulate_schedule
from kernels.allreduce.tree import of_chunks, trees
from kernels.guarantees import ChoiceError
from kernels.tree import expression, leaves

SIZES = (1, 2, 3, 5, 8, 16)
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
    for first, *others in zip(*of_chunks(schedule), strict=True):
        assert sorted(leaves(first)) == every
        assert all(expression(other) == expression(first) for other in others)


@scheduled
@sizes
def test_the_variant_for_short_vectors_makes_the_same_additions(name, size):
    long, short = (get(name).schedule(size, short) for short in (False, True))
    of_long, of_short = (list(map(expression, of_chunks(schedule)[0])) for schedule in (long, short))
    for n in (1, size, 3 * size + 1):
        for element in range(n):
            assert of_short[short.chunk_of(element, n)] == of_long[long.chunk_of(element, n)]


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


@given(seed=st.integers(0, 2**63 - 1), size=st.sampled_from(SIZES))
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
    assert {expression(t) for chunks in of_chunks(schedule) for t in chunks} == {aligned(len(owners))}


@pytest.mark.parametrize("count", [1, 2, 3, 5, 8, 21])
@pytest.mark.parametrize("dtype", ["float64", "float32", "float16"])
def test_block_sums_have_one_set_of_bits_for_all_sizes_and_owners(count, dtype):
    rng = np.random.default_rng(count)
    blocks = (rng.standard_normal((count, 13)) * 10.0 ** rng.integers(-2, 3, (count, 1))).astype(dtype)
    patterns = set()
    for size in range(1, 9):
        for owners in (np.arange(count) * size // count, rng.integers(0, size, count)):
            dealt = [blocks[owners == rank] for rank in range(size)]
            for short in (False, True):
                totals = simulate("block-tree", dealt, short=short, owners=owners.tolist())
                patterns |= {total.tobytes() for total in totals}
    assert len(patterns) == 1


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
            tree_cost = cost(get("block-tree").schedule(size, owners=owners), 16 * size, 8)
            direct = cost(get("direct").schedule(size), 16 * size, 8)
            assert tree_cost.bytes == direct.bytes
            assert tree_cost.critical_messages == direct.critical_messages


@pytest.mark.parametrize("each", [1, 4, 3])  # 3: subtrees of ranks cross
def test_short_vectors_over_whole_subtrees_move_as_in_recursive_doubling(each):
    for size in (4, 8, 16):
        owners = [rank for rank in range(size) for _ in range(each)]
        tree_cost = cost(get("block-tree").schedule(size, True, owners=owners), 16, 8)
        doubling = cost(get("recursive-doubling").schedule(size), 16, 8)
        assert (tree_cost.bytes == doubling.bytes) == (each != 3)


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


# Two levels


@pytest.mark.parametrize(
    "nodes, expected",
    [
        ("aabb", "((x[0] + x[1]) + (x[2] + x[3]))"),
        ("abab", "((x[0] + x[2]) + (x[1] + x[3]))"),
        ("baab", "((x[0] + x[3]) + (x[1] + x[2]))"),
        ("aaba", "(((x[0] + x[1]) + x[3]) + x[2])"),
        ("abcab", "(((x[0] + x[3]) + (x[1] + x[4])) + x[2])"),
        ("aaaa", "(((x[0] + x[1]) + x[2]) + x[3])"),
        ("abcd", "(((x[0] + x[1]) + x[2]) + x[3])"),
    ],
)
@pytest.mark.parametrize("short", [False, True])
def test_nodes_add_in_rank_order_and_stand_in_the_order_of_their_first_ranks(nodes, expected, short):
    schedule = get("two-level").schedule(len(nodes), short, nodes=nodes)
    for element in range(7):
        assert {expression(t) for t in trees(schedule, element, 7)} == {expected}


placements = st.sampled_from(SIZES).flatmap(lambda p: st.lists(st.integers(0, 3), min_size=p, max_size=p))


@given(placements)
def test_any_placement_is_carried_out_long_and_short_alike(nodes):
    size = len(nodes)
    groups = [[rank for rank in range(size) if nodes[rank] == label] for label in dict.fromkeys(nodes)]
    values = np.random.default_rng(size).standard_normal(size)
    partial = [added(values[group]) for group in groups]
    for short in (False, True):
        schedule = get("two-level").schedule(size, short, nodes=nodes)
        totals = simulate_schedule(schedule, [[np.full(9, value)] for value in values])
        assert {t.tobytes() for t in totals} == {np.full(9, added(partial)).tobytes()}


def added(values):
    total = values[0]
    for value in values[1:]:
        total = total + value
    return total


def between_nodes(schedule, nodes, n):
    """Elements that travel from one node to another."""
    travelling = 0
    for rank, rounds in enumerate(schedule.ranks()):
        for m in (m for r in rounds for m in r.sends):
            start, stop = schedule.bounds(n, m.chunk)
            travelling += (stop - start) * (nodes[rank] != nodes[m.peer])
    return travelling


@pytest.mark.parametrize("nodes", ["aaabbb", "ababab", "aaaaab", "aabbccdd", "abbcccddddeeeee"])
def test_nodes_exchange_no_more_than_one_rank_each_would(nodes):
    count = len(set(nodes))
    n = 60 * count
    long, short = (get("two-level").schedule(len(nodes), s, nodes=nodes) for s in (False, True))
    assert between_nodes(long, nodes, n) == 2 * (count - 1) * n
    assert between_nodes(short, nodes, n) == count * (count - 1) * n


@pytest.mark.parametrize("count, each", [(1, 4), (4, 1), (2, 4), (4, 4), (3, 5)])
def test_all_ranks_of_equal_nodes_share_the_work(count, each):
    n = 16 * count * each
    nodes = [rank // each for rank in range(count * each)]
    c = cost(get("two-level").schedule(count * each, nodes=nodes), n, 1)
    assert c.critical_bytes == 2 * n * (each - 1) // each + 2 * n * (count - 1) // (count * each)
    assert c.critical_additions == n * (each - 1) // each + n * (count - 1) // (count * each)
    assert c.critical_messages == 2 * (each - 1) + 2 * (count - 1)


@pytest.mark.parametrize("size", [2, 5, 8])
def test_one_node_and_one_rank_per_node_cost_what_direct_does(size):
    for short in (False, True):
        direct = cost(get("direct").schedule(size), 10 * size, 8)
        assert cost(get("two-level").schedule(size), 10 * size, 8) == direct
        apart = get("two-level").schedule(size, short, nodes=range(size))
        assert cost(apart, 10 * size, 8) == cost(get("direct").schedule(size, short), 10 * size, 8)


def test_nodes_of_other_ranks_are_refused():
    with pytest.raises(ChoiceError, match="the nodes of 2 ranks; there are 3"):
        get("two-level").schedule(3, nodes=(0, 0))


# Double tree


@pytest.mark.parametrize("size", range(1, 70))
def test_a_rank_with_children_in_one_tree_is_a_leaf_of_the_other(size):
    inner = []
    for one in pair(size):
        inner.append({rank for rank in range(size) if one.children[rank] != (None, None)})
        assert [rank for rank in range(size) if one.parent[rank] is None] == [one.depth.index(0)]
        for rank in range(size):
            for child, side in zip(one.children[rank], (-1, 1), strict=True):
                if child is not None:
                    assert one.parent[child] == rank and (child - rank) * side > 0
                    assert one.depth[child] == one.depth[rank] + 1
    assert not inner[0] & inner[1]
    # As flat as a binary tree can be; of a size 2^k - 1 the second is one step deeper.
    flattest = size.bit_length() - 1
    assert [max(one.depth) for one in pair(size)] == [
        flattest,
        (size + 1).bit_length() - 1 if size > 1 else 0,
    ]


@pytest.mark.parametrize(
    "size, first, second",
    [
        (2, "(x[0] + x[1])", "(x[0] + x[1])"),
        (3, "((x[0] + x[1]) + x[2])", "((x[0] + x[1]) + x[2])"),
        (5, "((((x[0] + x[1]) + x[2]) + x[3]) + x[4])", "(((x[0] + x[1]) + x[2]) + (x[3] + x[4]))"),
        (
            7,
            "((((x[0] + x[1]) + x[2]) + x[3]) + ((x[4] + x[5]) + x[6]))",
            "((((x[0] + x[1]) + x[2]) + ((x[3] + x[4]) + x[5])) + x[6])",
        ),
    ],
)
def test_each_half_of_the_vector_has_a_tree_of_its_own(size, first, second):
    assert [tree("double-tree", size, element, 2) for element in (0, 1)] == [first, second]
    for segments in (1, 3, 8):
        for n in (1, 2, 5, 12):
            expressions = [tree(f"double-tree:segments={segments}", size, e, n) for e in range(n)]
            assert expressions == [first] * (n // 2) + [second] * (n - n // 2)


@pytest.mark.parametrize("size", SIZES[1:])
@pytest.mark.parametrize("segments", [1, 4, 16])
def test_segments_follow_each_other_through_both_trees(size, segments):
    n = 32 * segments
    schedule = get(f"double-tree:segments={segments}").schedule(size)
    c = cost(schedule, n, 1)
    height = max(max(one.depth) for one in pair(size))
    assert c.rounds == 2 * height + segments - 1
    assert c.critical_bytes <= c.rounds * 2 * n // segments
    assert c.bytes == 2 * (size - 1) * n
    for rounds in schedule.ranks():
        sent = [m for r in rounds for m in r.sends]
        received = [m for r in rounds for m in r.receives]
        assert max(len(sent), len(received)) * n // (2 * segments) <= 2 * n


def test_no_segments_are_refused():
    with pytest.raises(ChoiceError, match="segments: choose 1 to 1024, not '0'"):
        get("double-tree:segments=0").schedule(4)


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
