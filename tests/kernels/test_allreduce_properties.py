"""The dependencies of every ordering's bits: on the serial simulator, and the verdict on observations."""

import re
import shlex
from functools import reduce
from itertools import chain, pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kernels.allreduce import orderings
from kernels.allreduce.instruments.properties import (
    BLOCKS,
    COUNT,
    INTEGERS,
    PLACEMENT,
    PROPERTIES,
    RANK,
    RUN,
    SIZE,
    Observation,
    assigned_blocks,
    broken,
    counterexamples,
    every,
    lengths_at,
    library_key,
    packed,
    replaced,
    scales,
    sentence,
    shown,
    stronger,
    table,
    values,
)
from kernels.allreduce.reduction import Reduction
from kernels.allreduce.simulator import simulate
from kernels.commands.allreduce import parser
from kernels.commands.properties import understood
from kernels.guarantees import ChoiceError, meets
from tests.properties_table import DOCS, documented, rows

SIZES = (1, 2, 3, 4, 5, 7, 8, 16)
SIMULATED = [r for r in map(Reduction.named, every()) if r.entry.scheduled]
DOCUMENTED = rows(documented("mpich"))

simulated = pytest.mark.parametrize("reduction", SIMULATED, ids=lambda r: r.label)
seeds = st.integers(0, 2**32 - 1)
dtypes = st.sampled_from(("float64", "float32"))
lengths = st.one_of(st.integers(0, 40), st.sampled_from((257, 1000)))


@st.composite
def layouts(draw, size=None):
    """The blocks of every rank, and the node of every rank."""
    size = size or draw(st.sampled_from(SIZES))
    owners = draw(st.lists(st.integers(0, size - 1), min_size=BLOCKS, max_size=BLOCKS))
    nodes = draw(st.lists(st.integers(0, size - 1), min_size=size, max_size=size))
    return [[block for block in range(BLOCKS) if owners[block] == rank] for rank in range(size)], nodes


def contributions(seed, n, dtype):
    """Of all blocks, (BLOCKS, n)."""
    return np.stack([values(seed, block, n, dtype) for block in range(BLOCKS)])


def totals(reduction, x, layout):
    """The total on every rank."""
    blocks, nodes = layout
    owners = {block: rank for rank, own in enumerate(blocks) for block in own}
    context = {"nodes": tuple(nodes), "owners": tuple(owners[block] for block in range(BLOCKS))}
    own = [x[np.array(b, int)] for b in blocks]
    return simulate(reduction.ordering, own, accumulation=reduction.accumulation, **context)


def total(reduction, x, layout):
    return totals(reduction, x, layout)[0].tobytes()


# Orderings on the simulator


@simulated
@given(seed=seeds, n=lengths, dtype=dtypes, layout=layouts())
def test_all_ranks_hold_the_same_bits(reduction, seed, n, dtype, layout):
    assert len({t.tobytes() for t in totals(reduction, contributions(seed, n, dtype), layout)}) == 1


@simulated
@given(seed=seeds, n=lengths, layout=layouts())
def test_sums_of_integers_are_those_of_any_order(reduction, seed, n, layout):
    if reduction.accumulation != "working":
        pytest.skip("floating-point numbers only")
    x = contributions(seed, n, "int64")
    assert total(reduction, x, layout) == x.sum(axis=0).tobytes()


def rank_count_shows(reduction, x, one, other):
    """Whether two layouts, of any number of ranks, give different bits."""
    return total(reduction, x, one) != total(reduction, x, other)


def placement_shows(reduction, x, one, other):
    """Whether the nodes of `other`, of as many ranks, give other bits."""
    return total(reduction, x, one) != total(reduction, x, (one[0], other[1]))


def message_size_shows(reduction, x, layout, start, stop):
    """Whether elements [start, stop) of the vector get other bits alone."""
    whole = totals(reduction, x, layout)[0][start:stop]
    return whole.tobytes() != total(reduction, np.ascontiguousarray(x[:, start:stop]), layout)


def documented_as(cell, property, among=SIMULATED):
    chosen = [r for r in among if DOCUMENTED.get(r.label, {}).get(property) == cell]
    return pytest.mark.parametrize("reduction", chosen, ids=lambda r: r.label)


@pytest.mark.parametrize(
    "reduction", [r for r in SIMULATED if meets(r.guarantee, "layout")], ids=lambda r: r.label
)
@given(seed=seeds, n=lengths, dtype=dtypes, layout=layouts())
def test_what_promises_so_gives_every_layout_the_bits_of_one_rank(reduction, seed, n, dtype, layout):
    alone = [list(range(BLOCKS))], [0]
    assert not rank_count_shows(reduction, contributions(seed, n, dtype), layout, alone)


@documented_as("no", SIZE)
@given(seed=seeds, dtype=dtypes, layout=layouts(), ends=st.lists(st.integers(0, 100), min_size=3, max_size=3))
def test_documented_independence_of_message_size(reduction, seed, dtype, layout, ends):
    start, stop, n = sorted(ends)
    x = contributions(seed, n, dtype) * scales(seed, n, dtype)
    assert not message_size_shows(reduction, x, layout, start, stop)


@documented_as("yes", SIZE)
def test_documented_dependence_on_message_size(reduction):
    assert any(
        message_size_shows(
            reduction, contributions(seed, 40, dtype) * scales(seed, 40, dtype), five(seed), 20, 30
        )
        for seed in range(10)
        for dtype in ("float64", "float32")
    )


@documented_as("no", PLACEMENT, [r for r in SIMULATED if "nodes" in r.entry.needs])
@given(seed=seeds, n=lengths, dtype=dtypes, data=st.data())
def test_documented_independence_of_placement(reduction, seed, n, dtype, data):
    one = data.draw(layouts())
    other = data.draw(layouts(len(one[0])))
    assert not placement_shows(reduction, contributions(seed, n, dtype), one, other)


@documented_as("yes", PLACEMENT, [r for r in SIMULATED if "nodes" in r.entry.needs])
def test_documented_dependence_on_placement(reduction):
    one = five(0)
    assert any(
        placement_shows(reduction, contributions(seed, 40, "float64"), one, (one[0], [0, 1, 0, 1, 0]))
        for seed in range(10)
    )


@documented_as("yes", COUNT)
def test_documented_dependence_on_rank_count(reduction):
    alone = [list(range(BLOCKS))], [0]
    assert rank_count_shows(reduction, contributions(1, 40, "float64"), five(1), alone)


def five(seed):
    """A layout of five ranks."""
    return assigned_blocks(BLOCKS, 5, seed), [0, 0, 0, 1, 1]


# The verdict


def observation(property=RUN, digest=b"a", **more):
    fields = dict(ordering="ring", dtype="float64", seed=1, p=4, n=5, part="the total", how="once")
    return Observation(**{**fields, "property": property, "digest": digest, **more})


@pytest.mark.parametrize("property", [*PROPERTIES, INTEGERS])
def test_two_hashes_of_what_should_be_equal_are_a_counterexample(property):
    same = [observation(property), observation(property, how="again")]
    assert counterexamples(same) == {}
    other = observation(property, b"b", how="at last")
    assert counterexamples([*same, other]) == {("ring", property): (same[0], other)}


@pytest.mark.parametrize(
    ("property", "field", "value", "comparable"),
    [(p, "ordering", "direct", False) for p in PROPERTIES]
    + [(p, "dtype", "float32", False) for p in PROPERTIES]
    + [(p, "seed", 2, False) for p in PROPERTIES]
    + [(p, "part", "elements 0:1 of 5", False) for p in PROPERTIES]
    + [(p, "p", 8, p == COUNT) for p in PROPERTIES]
    + [(p, "n", 1, p == SIZE) for p in PROPERTIES],
)
def test_only_what_a_property_says_is_equal_is_compared(property, field, value, comparable):
    pair = [observation(property), observation(property, b"b", **{field: value})]
    assert bool(counterexamples(pair)) == comparable


def test_the_counterexample_on_the_fewest_ranks_and_elements_is_shown():
    pairs = [
        observation(RUN, digest, p=p, n=n, how=how)
        for p, n in ((8, 1), (3, 1000), (3, 5))
        for digest, how in ((b"a", "once"), (b"b", "again"))
    ]
    (pair,) = counterexamples(pairs).values()
    assert [(o.p, o.n) for o in pair] == [(3, 5), (3, 5)]
    assert sentence(*pair) == (
        "depends on the run: float64, seed 1, the total: p 3, n 5, once, and p 3, n 5, again, differ in bits "
        "(--orderings ring --dtype float64 --seeds 1 --ranks 3 --lengths 5)"
    )


@pytest.mark.parametrize(
    ("level", "promised"),
    [
        ("none", []),
        ("run", [RUN, RANK]),
        ("layout", [RUN, RANK, SIZE, PLACEMENT, COUNT]),
        ("exact", [RUN, RANK, SIZE, PLACEMENT, COUNT]),
    ],
)
def test_a_level_is_broken_by_what_it_promises_and_nothing_else(level, promised):
    subject = next(r for r in map(Reduction.named, every()) if r.guarantee == level)
    pair = observation(), observation(digest=b"b")
    for property in PROPERTIES:
        failures = broken([subject], {(subject.label, property): pair})
        assert bool(failures) == (property in promised)
        assert all(f"'{subject.label}' is declared '{level}'" in failure for failure in failures)
    assert broken([subject], {(subject.label, INTEGERS): pair})
    assert broken([subject], {("another", RUN): pair}) == []


@pytest.mark.parametrize(
    ("failed", "level"),
    [
        ([], "layout"),
        ([SIZE], "run"),
        ([COUNT], "run"),
        ([PLACEMENT], "run"),
        ([RANK, COUNT], "none"),
        ([RUN, SIZE, PLACEMENT, COUNT], "none"),
        ([INTEGERS], "less than none"),
    ],
)
def test_the_level_that_was_shown(failed, level):
    failures = {("ring", property): () for property in failed}
    assert shown("ring", failures) == level
    named = [f"ring (declared run) shows {level}"] if level == "layout" else []
    assert stronger([Reduction("ring")], failures) == named


def test_a_table_says_yes_where_bits_were_seen_to_depend():
    text = table(
        [Reduction("ring"), Reduction.named("direct in exact")],
        {("ring", SIZE): (), ("ring", COUNT): ()},
        "Some library",
    )
    lines = text.splitlines()
    assert lines[0] == "Some library"
    assert [cell.strip() for cell in lines[2].strip("|").split("|")] == [
        *("ordering", "declared", "depends on run"),
        *("on rank", "on message size", "on placement", "on rank count"),
    ]
    no = dict.fromkeys(PROPERTIES, "no")
    assert rows(text) == {
        "ring": {"declared": "run", **no, SIZE: "yes", COUNT: "yes"},
        "direct in exact": {"declared": "exact", **no},
    }


def test_wrong_sums_of_integers_are_no_dependence():
    text = sentence(observation(INTEGERS), observation(INTEGERS, b"b"))
    assert text.startswith("gives wrong sums of integers: float64, seed 1, ")


@pytest.mark.parametrize(
    ("version", "key"),
    [
        ("MPICH Version: 5.0.2", "mpich"),
        ("Open MPI v5.0.11", "openmpi"),
        ("Intel(R) MPI Library 2021.13 for Linux* OS", "intelrmpilibrary"),
        ("MVAPICH Version : 4.0", "mvapich"),
        ("CRAY MPICH version 8.1.30.8", "craympich"),
    ],
)
def test_the_marker_of_a_library(version, key):
    assert library_key(version) == key


def test_a_table_replaces_what_is_between_its_markers():
    page = "a\n<!-- properties:mpich -->\nold\n<!-- /properties:mpich -->\nb <!-- properties:x -->"
    assert replaced(page, "mpich", "new") == page.replace("old", "new")
    for library in ("x", "openmpi"):
        with pytest.raises(ChoiceError, match=f"write <!-- properties:{library} --> and <!-- /properties"):
            replaced(page, library, "new")


@pytest.mark.parametrize("library", ["mpich", "openmpi"])
def test_the_docs_have_every_ordering_as_it_is_declared(library):
    listing = rows(documented(library))
    assert {name: row["declared"] for name, row in listing.items()} == {
        name: Reduction.named(name).guarantee for name in every()
    }


# What is tried


@given(count=st.integers(0, 40), size=st.integers(1, 16), seed=st.one_of(st.none(), seeds))
def test_every_block_is_dealt_to_one_rank(count, size, seed):
    blocks = assigned_blocks(count, size, seed)
    assert len(blocks) == size and sorted(chain(*blocks)) == list(range(count))
    assert all(own == sorted(own) for own in blocks)
    assert sum(map(bool, blocks)) == min(count, size)
    if seed is None:
        assert list(chain(*blocks)) == list(range(count))
        assert max(map(len, blocks)) - min(map(len, blocks)) <= 1


def test_lengths_are_numbers_for_a_number_of_ranks():
    assert lengths_at(("1000", "p", "0", "p-1", "5"), 5) == [0, 4, 5, 1000]


@given(st.lists(st.integers(1, 16), unique=True), st.integers(16, 40))
def test_communicators_are_measured_beside_each_other_where_they_fit(sizes, room):
    groups = packed(sizes, room)
    assert sorted(chain(*groups)) == sorted(sizes) and all(sum(group) <= room for group in groups)
    assert all(sum(a) + min(b) > room for a, b in pairwise(groups))


def test_shorter_vectors_are_the_beginning_of_longer_ones():
    for dtype in ("float64", "float32", "int64"):
        assert values(1, 3, 1000, dtype)[:5].tobytes() == values(1, 3, 5, dtype).tobytes()
        assert values(1, 3, 5, dtype).dtype == dtype


def test_another_order_has_other_bits_in_many_elements():
    for dtype in ("float64", "float32"):
        x = contributions(1, 1000, dtype)
        assert ((x[0] + x[1]) + x[2] != x[0] + (x[1] + x[2])).mean() > 0.2
        assert (reduce(np.add, x) != reduce(np.add, x[::-1])).mean() > 0.7


# The command


def choice(arguments, size=8):
    return understood(
        parser("properties").parse_args(["properties", *arguments]), "MPICH Version: 5.0.2", size
    )


def test_by_default_everything_is_tried_that_there_are_ranks_for():
    tried, dtypes, seeds, lengths, sizes = choice([], size=4)
    assert [r.label for r in tried] == [
        *(o.name for o in orderings()),
        "direct in exact",
    ]
    assert (list(dtypes), list(seeds), list(sizes)) == (["float64", "float32", "int64"], [1, 2], [1, 2, 3, 4])
    assert list(lengths) == ["0", "1", "p-1", "p", "5", "1000", "100003"]


def test_what_is_tried_can_be_chosen():
    arguments = "--orderings 'ring in exact,k-nomial:k=3,tree=far' --dtype float32 --seeds 7 --lengths p,3 --ranks 2,6"
    tried, *rest = choice(shlex.split(arguments))
    assert [r.label for r in tried] == ["ring in exact", "k-nomial:k=3,tree=far"]
    assert [list(part) for part in rest] == [["float32"], [7], ["p", "3"], [2, 6]]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ("--orderings rnig", "unknown all-reduce ordering 'rnig'"),
        ("--dtype float128", "unknown dtype 'float128'"),
        ("--lengths 1,q", "--lengths 1,q: give numbers up to 100000000, p or p-1"),
        ("--ranks 0", "--ranks 0: choose 1 or more"),
        ("--ranks 4,9", "--ranks 9: there are 8 ranks"),
        ("--seeds=-1", "argument --seeds: choose 0 to 2147483647, not '-1'"),
        ("--lengths 10000000000", "--lengths 10000000000: give numbers up to 100000000, p or p-1"),
        ("--write nowhere.md", "--write nowhere.md: No such file"),
        (f"--write {DOCS.with_name('sums.md')}", "no place for the table: write <!-- properties:mpich -->"),
        (f"--write {DOCS} --seeds 1", "leave out --orderings"),
    ],
)
def test_what_cannot_be_tried_is_refused(arguments, message):
    before = DOCS.read_bytes()
    with pytest.raises(ChoiceError, match=re.escape(message)):
        choice(arguments.split())
    assert DOCS.read_bytes() == before


def test_measuring_shows_how_far_it_is(monkeypatch):
    from mpi4py import MPI

    from kernels.allreduce.instruments import measuring

    shown = []

    class Recorded(measuring.Progress):
        def show(self, done, text):
            shown.append((done, text))

    monkeypatch.setattr(measuring, "Progress", Recorded)
    tried = [Reduction("ring"), Reduction("direct")]
    measuring.measure(MPI.COMM_SELF, tried, ["float64", "float32"], [1], ["5"], [1])
    assert shown == [
        (0.0, "ring, float64, seed 1, p = 1"),
        (0.25, "direct, float64, seed 1, p = 1"),
        (0.5, "ring, float32, seed 1, p = 1"),
        (0.75, "direct, float32, seed 1, p = 1"),
    ]
