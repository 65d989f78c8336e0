"""The orderings of the MPI libraries: their trees on the serial simulator, with all parameters."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kernels.allreduce.catalog import get
from kernels.allreduce.cost import cost
from kernels.allreduce.schedules import ring
from kernels.allreduce.schedules.k_nomial import SHAPES
from kernels.allreduce.schedules.rabenseifner import rest_last
from kernels.allreduce.simulator import simulate_schedule
from kernels.allreduce.tree import trees
from kernels.guarantees import ChoiceError
from kernels.tree import expression, leaves, same

NAMES = [
    *(f"ring:start={start},cut={cut}" for start in (-1, 0, 1) for cut in ring.CUTS),
    *(f"segmented-ring:segments={segments},start={start}" for segments in (1, 2, 3) for start in (0, 1)),
    *(f"recursive-multiplying:k={k},fold={fold}" for k in (2, 3, 4, 5) for fold in ("wrap", "neighbours")),
    *(f"rabenseifner:k={k}" for k in (2, 3, 4, 5)),
    *(f"k-nomial:k={k},tree={shape}" for k in (2, 3, 4) for shape in SHAPES),
]
named = pytest.mark.parametrize("name", NAMES)


def tree(name, size, element=0, n=1):
    return trees(get(name).schedule(size), element, n)[0]


@named
def test_every_rank_gets_the_tree_of_every_element_for_any_size_and_length(name):
    rng = np.random.default_rng(0)
    for size in (1, 2, 3, 5, 6, 9, 11, 17):
        schedule = get(name).schedule(size)
        for n in (0, 1, size - 1, 3 * size + 2):
            vectors = rng.standard_normal((size, n))
            first, *others = simulate_schedule(schedule, [[v] for v in vectors])
            assert all(other.tobytes() == first.tobytes() for other in others)
            for element in {0, n // 2, n - 1} & set(range(n)):
                order = trees(schedule, element, n)[0]
                assert sorted(leaves(order)) == list(range(size))
                assert (
                    eval(expression(order), {"x": vectors[:, element]}).tobytes() == first[element].tobytes()
                )


@pytest.mark.parametrize(
    "name, size, element, n, expected",
    [
        # Of 13 elements on 5 ranks balanced chunks have 3, 3, 3, 2, 2, full ones 3, 3, 3, 3, 1.
        ("ring", 5, 10, 13, "((((x[3] + x[4]) + x[0]) + x[1]) + x[2])"),
        ("ring:start=1,cut=full", 5, 10, 13, "((((x[4] + x[0]) + x[1]) + x[2]) + x[3])"),
        ("ring:start=-1", 5, 10, 13, "((((x[2] + x[3]) + x[4]) + x[0]) + x[1])"),
        ("segmented-ring:segments=2", 5, 10, 13, "((((x[3] + x[4]) + x[0]) + x[1]) + x[2])"),
        ("recursive-multiplying:k=3", 7, 0, 1, "((((x[3] + x[6]) + x[0]) + (x[4] + x[1])) + (x[5] + x[2]))"),
        (
            "recursive-multiplying:k=3,fold=neighbours",
            7,
            0,
            1,
            "(((x[0] + (x[1] + x[2])) + (x[3] + (x[4] + x[5]))) + x[6])",
        ),
        ("recursive-multiplying:k=8", 4, 0, 1, "(((x[1] + x[2]) + x[3]) + x[0])"),
        ("recursive-multiplying:k=8,fold=neighbours", 4, 0, 1, "(((x[0] + x[1]) + x[2]) + x[3])"),
        ("rabenseifner", 6, 3, 13, "(((x[0] + x[1]) + (x[2] + x[3])) + (x[4] + x[5]))"),
        ("rabenseifner:k=4", 4, 5, 13, "(((x[0] + x[1]) + x[2]) + x[3])"),
        ("rabenseifner:k=4", 4, 6, 13, "(((x[0] + x[2]) + x[1]) + x[3])"),
        ("k-nomial:k=3", 8, 0, 1, "((((x[0] + x[1]) + x[2]) + ((x[3] + x[4]) + x[5])) + (x[6] + x[7]))"),
        ("k-nomial:k=2,tree=far", 5, 0, 1, "(((x[0] + x[4]) + (x[2] + x[3])) + x[1])"),
        (
            "k-nomial:k=2,tree=depth",
            8,
            0,
            1,
            "(((x[0] + ((x[1] + (x[2] + x[3])) + x[4])) + (x[5] + x[6])) + x[7])",
        ),
        ("k-nomial:k=2,tree=heap", 7, 0, 1, "((x[0] + ((x[1] + x[3]) + x[4])) + ((x[2] + x[5]) + x[6]))"),
        ("k-nomial:k=2,tree=levels", 7, 0, 1, "((x[0] + ((x[1] + x[3]) + x[5])) + ((x[2] + x[4]) + x[6]))"),
    ],
)
def test_trees_are_those_that_the_libraries_build(name, size, element, n, expected):
    assert expression(tree(name, size, element, n)) == expected


@pytest.mark.parametrize("size", range(1, 20))
def test_some_orderings_are_others_under_another_name(size):
    for one, other in [
        ("recursive-multiplying:k=2,fold=neighbours", "recursive-doubling"),
        ("rabenseifner", "recursive-doubling"),
        ("k-nomial:k=2", "binomial"),
        (f"k-nomial:k={size + 1},tree=heap", "linear"),
    ]:
        for element in range(5):
            assert same(tree(one, size, element, 5), tree(other, size, element, 5))


@pytest.mark.parametrize("size", [2, 3, 5, 8])
@given(
    segments=st.integers(1, 5),
    start=st.integers(-9, 9),
    cut=st.sampled_from(list(ring.CUTS)),
    n=st.integers(1, 40),
)
def test_segments_change_no_addition_of_the_ring(size, segments, start, cut, n):
    for element in {0, n // 3, n - 1}:
        segmented = tree(f"segmented-ring:segments={segments},start={start},cut={cut}", size, element, n)
        assert same(segmented, tree(f"ring:start={start},cut={cut}", size, element, n))


@pytest.mark.parametrize("cut", [ring.balanced, ring.full, rest_last])
@given(n=st.integers(0, 100), chunks=st.integers(1, 20))
def test_cuts_cover_the_vector_without_gaps(cut, n, chunks):
    bounds = [cut(n, chunks, chunk) for chunk in range(chunks)]
    assert bounds[0][0] == 0 and bounds[-1][1] == n
    assert all(left[0] <= left[1] == right[0] for left, right in pairwise(bounds))


@pytest.mark.parametrize(
    "cut, lengths",
    [(ring.balanced, [3, 3, 3, 2, 2]), (ring.full, [3, 3, 3, 3, 1]), (rest_last, [2, 2, 2, 2, 5])],
)
def test_cuts_of_thirteen_elements_into_five(cut, lengths):
    assert [stop - start for start, stop in (cut(13, 5, chunk) for chunk in range(5))] == lengths


@pytest.mark.parametrize("k, steps", [(2, 4), (4, 2), (16, 1)])
def test_costs_on_a_power_of_k_ranks(k, steps):
    size, n, item = 16, 160, 8
    given = n * item * (size - 1) // size
    expected = {  # critical messages, bytes and additions
        f"recursive-multiplying:k={k}": (steps * (k - 1), steps * (k - 1) * n * item, steps * (k - 1) * n),
        f"rabenseifner:k={k}": (2 * steps * (k - 1), 2 * given, n * (size - 1) // size),
        f"k-nomial:k={k}": (2 * steps * (k - 1), 2 * steps * (k - 1) * n * item, steps * (k - 1) * n),
    }
    for name, counts in expected.items():
        c = cost(get(name).schedule(size), n, item)
        assert (c.critical_messages, c.critical_bytes, c.critical_additions) == counts


@named
def test_lone_ranks_send_nothing_and_trees_send_each_sum_and_total_once(name):
    assert cost(get(name).schedule(1), 10, 8).messages == 0
    if name.startswith("k-nomial"):
        assert cost(get(name).schedule(11), 10, 8).messages == 2 * 10


@pytest.mark.parametrize(
    "name, message",
    [
        ("ring:cut=odd", "unknown cut 'odd': choose one of balanced, full"),
        ("segmented-ring:segments=0", "segments: choose 1 to 1024, not '0'"),
        ("recursive-multiplying:k=1", "k: choose 2 to 65536, not '1'"),
        ("recursive-multiplying:fold=up", "unknown fold 'up': choose one of neighbours, wrap"),
        ("rabenseifner:k=0", "k: choose 2 to 65536, not '0'"),
        ("k-nomial:k=1", "k: choose 2 to 65536, not '1'"),
        ("k-nomial:tree=oak", "unknown tree 'oak': choose one of near, far, depth, heap, levels"),
    ],
)
def test_parameters_that_mean_nothing_are_refused(name, message):
    with pytest.raises(ChoiceError, match=message):
        get(name).schedule(4)
