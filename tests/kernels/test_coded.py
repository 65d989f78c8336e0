"""All-reduce over lossy wires: valid combinations, guarantees, and agreement of all ranks."""

import numpy as np
import pytest

from kernels.allreduce import Reduction, coding, orderings
from kernels.allreduce.levels import Levels
from kernels.allreduce.reduction import labels
from kernels.allreduce.simulator import simulate
from kernels.guarantees import ChoiceError
from kernels.wires import LOSSY, cells_of, codec

CODECS = [f"{name}:n=3" if name == "table" else name for name in LOSSY] + [
    "table:n=1",
    "table:n=2,cell=tensor",
    "e4m3:scale=tensor",
    "sign:scale=match",
]
SCHEDULED = [o for o in orderings() if o.scheduled]
TENSORS = [(40, 50), (70,), (3, 4, 200), (5,)]
N = 4475


def every(wire):
    return f"{wire}{',' if ':' in wire else ':'}hops=every"


def normal(seed, *shape):
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def context_of(ordering, size):
    context = {}
    if "nodes" in ordering.needs:
        context["nodes"] = [rank * 2 // (size + 1) for rank in range(size)]
    if "owners" in ordering.needs:
        context["owners"] = [(3 * block + 1) % size for block in range(size + 2)]
    return context


@pytest.mark.parametrize("ordering", SCHEDULED, ids=lambda o: o.name)
@pytest.mark.parametrize("wire", ["fp8", "table:n=3", "table:n=3,cell=tensor", "sign", "int8:scale=match"])
def test_all_ranks_agree_whatever_the_ordering(ordering, wire):
    for size in (1, 2, 3, 4, 6, 7, 9):
        context = context_of(ordering, size)
        count = (
            [context.get("owners", range(size)).count(rank) for rank in range(size)]
            if "owners" in context
            else [1] * size
        )
        contributions = [normal(rank, k, N) for rank, k in enumerate(count)]
        totals = simulate(ordering.name, contributions, wire=every(wire), tensors=TENSORS, **context)
        assert len({total.tobytes() for total in totals}) == 1, size


def test_no_loss_gives_the_bits_of_no_wire():
    contributions = [normal(rank, 2, N) for rank in range(5)]
    for ordering in SCHEDULED:
        # Those of which every part is added alike: others add the same numbers in parts that end where cells do.
        if "owners" not in ordering.needs and ordering.schedule(5, **context_of(ordering, 5)).uniform:
            context = context_of(ordering, 5)
            plain = simulate(ordering.name, contributions, **context)
            coded = simulate(ordering.name, contributions, wire=every("float32"), tensors=TENSORS, **context)
            assert [a.tobytes() for a in plain] == [a.tobytes() for a in coded], ordering.name
    assert (
        simulate("direct", contributions, wire="float32")[0].tobytes()
        == simulate("direct", contributions)[0].tobytes()
    )


@pytest.mark.parametrize("wire", CODECS)
def test_the_total_does_not_depend_on_who_holds_which_block(wire):
    blocks = normal(1, 8, N) * np.float32(10.0) ** np.arange(-4, 4, dtype=np.float32)[:, None]
    layouts = (
        [[0, 1, 2, 3, 4, 5, 6, 7]],
        [[7, 0], [3], [], [6, 5, 4, 2, 1]],
        [[i] for i in (4, 2, 7, 1, 0, 3, 6, 5)],
    )
    totals = {
        simulate("direct", [blocks[own] for own in layout], accumulation="exact", wire=wire, tensors=TENSORS)[
            0
        ].tobytes()
        for layout in layouts
    }
    assert len(totals) == 1


def test_once_is_what_its_definition_says():
    contributions, cells = normal(2, 3, 1, N), cells_of(N, TENSORS)
    fp8 = codec("fp8")
    a, b, c = (fp8.over(x[0], cells) for x in contributions)
    assert (
        simulate("direct", contributions, wire="fp8", tensors=TENSORS)[0].tobytes()
        == fp8.over((a + b) + c, cells).tobytes()
    )


TWO_LEVELS = ("int4:rotate=on,inner=int8,group=4", "e3m0:inner=fp8,group=3", "table:n=4,inner=int8,group=1")


def test_two_levels_are_what_their_definition_says():
    contributions, cells = normal(2, 5, 1, N), cells_of(N, TENSORS)
    inner, outer = codec("int8"), codec("int4:rotate=on")
    a, b, c, d, e = (inner.over(x[0], cells) for x in contributions)
    groups = [outer.over(x, cells) for x in ((a + b), (c + d), e)]
    expected = outer.over((groups[0] + groups[1]) + groups[2], cells)
    (total, *_) = simulate("direct", contributions, wire="int4:rotate=on,inner=int8,group=2", tensors=TENSORS)
    assert total.tobytes() == expected.tobytes()


@pytest.mark.parametrize("wire", TWO_LEVELS)
def test_groups_follow_the_numbers_of_blocks_and_not_their_owners(wire):
    blocks = normal(1, 8, N) * np.float32(10.0) ** np.arange(-4, 4, dtype=np.float32)[:, None]
    totals = set()
    for owners in ([0] * 8, [0, 0, 1, 1, 2, 2, 3, 3], [3, 1, 0, 3, 2, 1, 0, 0], [5, 5, 5, 5, 1, 1, 1, 1]):
        own = [[block for block, owner in enumerate(owners) if owner == rank] for rank in range(6)]
        found = simulate(
            "direct", [blocks[own_] for own_ in own], accumulation="exact", wire=wire, tensors=TENSORS,
            owners=owners,
        )  # fmt: skip
        totals |= {total.tobytes() for total in found}
    assert len(totals) == 1


@pytest.mark.parametrize(
    "owners", [[0, 0, 1, 1, 2, 2, 3, 3], [3, 1, 0, 3, 2, 1, 0, 0], [1, 1, 1, 1, 1, 1, 1, 1], [0]]
)
@pytest.mark.parametrize("group", [1, 2, 3, 8])
@pytest.mark.parametrize("cells", [0, 1, 7, 100])
def test_over_two_levels_every_cell_is_added_once_and_comes_to_all(owners, group, cells):
    size = 5
    own = [[block for block, owner in enumerate(owners) if owner == rank] for rank in range(size)]
    levels = Levels(own, group, cells)
    ranks = range(size)
    for block in range(len(owners)):
        covered = [
            cell
            for q in ranks
            for of, number, at in levels.inside(owners[block], q)
            if number == block
            for cell in range(*at)
        ]
        assert sorted(covered) == list(range(cells))
    for of in {block // group for block in range(len(owners))}:
        covered = [
            cell
            for a in ranks
            for b in ranks
            for group_, _, at in levels.across(a, b)
            if group_ == of
            for cell in range(*at)
        ]
        assert sorted(covered) == list(range(cells))
    for rank in ranks:
        came = {cell for q in ranks for cell in range(*levels.back(q, rank))}
        assert came == set(range(*levels.passed_on(rank)))
        came |= {cell for q in ranks if q != rank for cell in range(*levels.onward(q, rank))}
        assert came == set(range(cells))


def test_two_levels_send_the_sum_of_a_node_once_to_other_nodes():
    n, size, of_node = 4096 * 64, 8, 4
    cells = cells_of(n)

    def leaving(wire, of):
        code = coding.coding(wire)
        pairs = coding.sent(code, cells, Reduction("direct", n, "float32").schedule(size))
        return sum(b for (q, r), b in pairs.items() if q // of_node != r // of_node) / (size // of_node) / of

    whole = codec("int4").nbytes(cells)
    # Half of the sum of a node there, and half of the total back; without groups, of each rank.
    assert leaving("int4:inner=int8,group=4", whole) == pytest.approx(1.0)
    assert leaving("int4", whole) == pytest.approx(of_node)


def test_labels_come_back():
    for label in (
        "direct in exact over int4:rotate=on,inner=int8,group=4",
        "direct in exact over table:n=4,scale=match,feedback=on",
        "direct over sign:feedback=on",
        "ring over fp8:hops=every",
        "k-nomial:k=3 over int8:hops=every",
    ):
        assert Reduction.named(label, N, "float32").label == label
        assert labels(f"linear,{label},ring") == ["linear", label, "ring"]


def test_what_is_promised():
    for label, guarantee in (
        ("direct over fp8", "run"),
        ("direct in float64 over fp8", "run"),
        ("direct in exact over fp8", "layout"),
        ("ring over fp8:hops=every", "run"),
        ("block-tree over sign:hops=every", "layout"),
        ("direct in exact over int4:inner=int8,group=4", "layout"),
        ("direct over int4:inner=int8,group=4", "run"),
    ):
        assert Reduction.named(label, N, "float32").guarantee == guarantee, label


@pytest.mark.parametrize(
    ("label", "message"),
    [
        ("ring over fp8", "choose ordering direct, or add hops=every"),
        ("library over fp8", "schedule"),
        ("arrival over fp8", "schedule"),
        ("ring in float64 over fp8:hops=every", "leave hops=every"),
        ("direct over fp8:hops=every,feedback=on", "belong to no block"),
        ("direct over fp8:hops=twice", "twice"),
        ("direct over morse", "morse"),
        ("direct over table", "bits of an element"),
        ("direct over table:n=9", "1, 2, 3, 4, 5, 6, 7, 8"),
        ("direct over table:n=0", "not '0'"),
        ("direct over sign:n=2", "not a parameter of sign"),
        ("direct over packed:hops=once", "has no parameters"),
        ("direct over int4:inner=int8", "both inner=CODEC and group=N"),
        ("direct over int4:group=4", "both inner=CODEC and group=N"),
        ("direct over int4:inner=table,group=4", "inner of wire"),
        ("direct over int4:inner=int9,group=4", "int9"),
        ("direct over int4:inner=int8,group=0", "from 1 on"),
        ("direct over int4:inner=int8,group=-1", "from 1 on"),
        ("direct over int4:inner=int8,group=two", "from 1 on"),
        ("direct over int4:inner=int8,group=4,feedback=on", "no place for the errors"),
        ("ring over int4:inner=int8,group=4,hops=every", "not of groups"),
        ("ring over int4:inner=int8,group=4", "choose ordering direct"),
        ("direct over table:n=4,cell=tensor,inner=int8,group=4", "of tables alone"),
    ],
)
def test_what_does_not_go_together_is_refused(label, message):
    with pytest.raises(ChoiceError, match=message):
        Reduction.named(label, N, "float32")


def test_only_sums_of_float32_are_carried():
    for axes in ({"dtype": "float64"}, {"collective": "reduce"}, {"operation": "max"}):
        with pytest.raises(ChoiceError, match="sum float32"):
            Reduction("direct", N, **{"dtype": "float32", "wire": "fp8"} | axes)
    with pytest.raises(ValueError, match=r"tensors of 4 elements in a vector of 4475"):
        Reduction("direct", N, "float32", wire="fp8", tensors=[(4,)])
    with pytest.raises(ChoiceError, match="tensors"):
        Reduction("direct", N, "float32", tensors=TENSORS)


def test_bytes_that_travel_are_known_beforehand():
    cells = cells_of(N, TENSORS)
    for label in ("direct over fp8", "ring over sign:hops=every", "rabenseifner over table:n=4,hops=every"):
        reduction = Reduction.named(label, N, "float32", tensors=TENSORS)
        pairs = coding.sent(reduction.coding, cells, reduction.schedule(4))
        # Whatever the ordering, these three send every byte once each way, but for one part of four.
        assert (
            sum(pairs.values())
            == 4 * 2 * reduction.total_bytes * 3 / 4
            == pytest.approx(6 * reduction.total_bytes)
        )
