"""Order discovery finds any order from results alone, and recognises sums without an order."""

import math
from itertools import pairwise

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kernels import progress, registry
from kernels.guarantees import ChoiceError
from kernels.sums import emulated
from kernels.sums.black_box import black_box
from kernels.sums.discover import DoesNotRepeat, NotATree, discover
from kernels.sums.orders import ORDERS
from kernels.sums.outline import outline
from kernels.sums.trees import NO_TREE, declared, lanes
from kernels.tree import COMPENSATED, ORDER_FREE, NoOrder, canonical, evaluate, expression, fold, leaves, same

from .hard import bits
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
def test_any_tree_is_found(dtype, tree, seed):
    n = len(expression(tree).split("x[")) - 1
    accumulator = np.float64 if dtype is np.float64 else np.float32
    assert discover(by(tree, accumulator), n, dtype, seed=seed) == canonical(tree)


@given(tree=trees(ways=5), seed=st.integers(0, 2**32))
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
    tree = discover(lambda x: np.cumsum(x.astype(np.float32))[-1].astype(dtype), n, dtype)
    assert same(tree, chain(n))


def test_a_sum_in_a_wider_type_is_found_all_the_same():
    tree = chain(50)
    for accumulator in (np.float64, np.longdouble):
        assert same(discover(lambda x, a=accumulator: by(tree, a)(x), 50, np.float32), tree)


@pytest.mark.parametrize("name", ["exact", "fixed-point"])
@pytest.mark.parametrize("n", [3, 4, 20, 4200])
def test_sums_without_order_are_recognised(name, n):
    assert discover(registry.get("sum", name), n) == NoOrder(ORDER_FREE, tuple(range(n)))


def in_blocks(x):
    """Sums of two, added exactly."""
    return math.fsum(np.cumsum(pair)[-1] for pair in x.reshape(-1, 2))


@pytest.mark.parametrize(
    ("f", "n", "dtype", "said"),
    [
        (math.fsum, 3, np.float64, "no order: the exact sum of 3 terms, rounded once to float64"),
        (lambda x: np.float32(math.fsum(x)), 40, np.float32, "no order: the exact sum of 40 terms, rounded once to"),
        (lambda x: float(np.float32(math.fsum(x))), 9, np.float64, "the exact sum of 9 terms, rounded once to float32"),
        (math.fsum, 9, ml_dtypes.bfloat16, "no order: the exact sum of 9 terms, rounded once to float64"),
        (registry.get("sum", "exact"), 300, np.float64, "the exact sum of 300 terms, rounded once to float64"),
        (registry.get("sum", "fixed-point"), 300, np.float64, "every permutation of 300 terms gives the same bits"),
        (in_blocks, 6, np.float64, "of 3 partial sums gives the same bits: (x[0] + x[1]), (x[2] + x[3]), (x[4]"),
        (registry.get("sum", "neumaier"), 9, np.float64, "no expression: the rounding errors of 9 terms are carried"),
        (lambda x: kahan(x), 5, np.float64, "errors of this order are carried along: ((((x[0] + x[1]) + x[2])"),
    ],
)  # fmt: skip
@pytest.mark.filterwarnings("ignore:overflow encountered in cast")  # of a function that narrows
def test_a_sum_without_an_order_is_told_in_a_sentence(f, n, dtype, said):
    found = discover(f, n, dtype)
    assert said in expression(found)
    assert outline(found)[0].removesuffix(":") == str(found)


@pytest.mark.parametrize("n", [5, 20, 4200])
def test_errors_added_up_apart_are_recognised(n):
    assert discover(registry.get("sum", "neumaier"), n) == NoOrder(COMPENSATED, tuple(range(n)))


@pytest.mark.parametrize("n", [5, 10, 300])
def test_errors_handed_on_are_recognised_with_the_order_of_the_sum(n):
    order = discover(kahan, n)
    assert order.kind == COMPENSATED
    assert [expression(part) for part in order.parts] == [expression(chain(n))]


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
    with pytest.raises(DoesNotRepeat, match="does not repeat"):
        discover(lambda x: np.cumsum(rng.permutation(x))[-1], 100)


def test_a_sum_whose_order_depends_on_the_values_is_no_tree():
    with pytest.raises(NotATree, match="order depends on the values"):
        discover(lambda x: np.cumsum(x if x[0] >= 0 else x[::-1])[-1], 30)


def test_partial_sums_of_several_types_are_told():
    def f(x):
        halves = [np.cumsum(half)[-1].astype(ml_dtypes.bfloat16) for half in np.split(x, 2)]
        return halves[0].astype(np.float32) + halves[1].astype(np.float32)

    with pytest.raises(NotATree, match="partial sums are rounded to several types"):
        discover(f, 50, np.float32)


@pytest.mark.parametrize("f", [lambda x: x.max(), lambda x: 1.5, lambda x: np.nan])
def test_what_is_no_sum_is_no_tree(f):
    with pytest.raises(NotATree, match=r"whole number of units|no tree has such counts|beyond the range"):
        discover(f, 10)


def test_other_types_and_lengths_are_refused():
    with pytest.raises(TypeError, match="no masks for int64: choose one of float64, float32"):
        discover(np.sum, 4, np.int64)
    with pytest.raises(ValueError, match="n = 0"):
        discover(np.sum, 0)


# Declared trees

SHAPES = [{"block": 32, "items": 1, "grid": 3}, {"block": 64, "items": 2, "grid": 4096}, {"block": 256}]
VARIANTS = [v for operation in ("sum", "dot") for v in registry.variants(operation) if v.guarantee != "none"]


def each(variants):
    """Parametrise by variants; those on a GPU are marked."""
    return pytest.mark.parametrize(
        "variant",
        [pytest.param(v, marks=[pytest.mark.cuda] if v.backend == "cupy" else []) for v in variants],
        ids=[f"{v.operation}-{v.name}-{v.backend}" for v in variants],
    )


fixed = each([v for v in VARIANTS if v.name not in NO_TREE])


def choices(variant, threads):
    """Launch shapes and the number of threads, where the variant has them."""
    shapes = SHAPES if "block" in variant.parameters else [{}]
    return [shape | ({"threads": threads} if "threads" in variant.parameters else {}) for shape in shapes]


def test_every_order_states_its_tree_or_why_it_has_none():
    for name, order in ORDERS.items():
        if name in NO_TREE:
            assert declared(name, 100) is None
        else:
            arrival = [0, 1, 2, 3] if order.guarantee == "none" else None
            tree = declared(name, 100, block=32, items=1, order=arrival)
            assert sorted(leaves(tree)) == list(range(100))


@fixed
@pytest.mark.parametrize("dtype", [np.float64, np.float32, ml_dtypes.bfloat16], ids=lambda t: t.__name__)
def test_what_is_discovered_is_what_is_declared(variant, dtype):
    if variant.unavailable():
        pytest.skip(variant.unavailable())
    lengths = (1, 2, 3, 7, 64, 65, 130, 1025) if dtype is np.float64 else (3, 65, 300)
    longer = 2100 if (variant.operation, dtype) == ("sum", np.float64) else 700
    longer *= 2 if variant.name == "block-tree" else 1  # whose blocks are longer than those of the others
    precision = np.float64 if dtype is np.float64 else np.float32
    for k, parameters in enumerate(choices(variant, threads=1)):
        for n in (*lengths, longer) if k == 0 else lengths[-3:]:
            tree = discover(black_box(variant, **parameters), n, dtype, precision)
            assert same(tree, declared(variant.name, n, **parameters)), (n, parameters)


@fixed
def test_the_bits_are_those_of_the_declared_tree_also_where_discovery_would_take_long(variant):
    if variant.unavailable():
        pytest.skip(variant.unavailable())
    n = 6_007
    for dtype in (np.float64, np.float32):
        x = np.random.default_rng(n).standard_normal(n).astype(dtype)
        for parameters in choices(variant, threads=3):
            value = evaluate(declared(variant.name, n, **parameters), x)[0]
            assert bits(black_box(variant, **parameters)(x)) == bits(value), parameters


@each([v for v in VARIANTS if v.name in NO_TREE])
def test_what_states_no_tree_is_recognised_for_what_it_is(variant):
    if variant.unavailable():
        pytest.skip(variant.unavailable())
    order = discover(black_box(variant), 300)
    if variant.name in ("numpy", "torch", "cu"):
        assert sorted(leaves(order)) == list(range(300))
    elif variant.name == "kahan":
        assert order.kind == COMPENSATED and same(order.parts[0], chain(300))
    elif variant.name == "sp-neumaier":
        order = discover(black_box(variant, block=32, items=1), 300)
        blocks = [lanes(range(start, min(start + 32, 300)), 32) for start in range(0, 300, 32)]
        assert order == NoOrder(COMPENSATED, canonical(tuple(blocks)))
    else:
        kind = COMPENSATED if variant.guarantee == "run" else ORDER_FREE
        assert order == NoOrder(kind, tuple(range(300)))


@pytest.mark.parametrize("resident", [0, 2])
@pytest.mark.parametrize("seed", [0, 7])
def test_the_tree_of_an_injected_order_of_arrival_is_found(seed, resident):
    order = emulated.arrivals(5, resident, seed)
    ao, spa = registry.get("sum", "ao", "emulated"), registry.get("sum", "spa", "emulated")
    tree = discover(lambda x: ao(x, seed=seed, resident=resident), 150)
    assert same(tree, declared("ao", 150, order=order))
    shape = {"block": 32, "items": 2}
    tree = discover(lambda x: spa(x, seed=seed, resident=resident, **shape), 300)
    assert same(tree, declared("spa", 300, order=order, **shape))


def test_wrong_declarations_are_refused():
    with pytest.raises(ChoiceError, match="unknown order of additions 'sptrr': choose one of reference"):
        declared("sptrr", 10)
    with pytest.raises(ValueError, match=r"of 4 units must be a permutation of 0 \.\.\. 3"):
        declared("ao", 100, order=[0, 1, 2])
    with pytest.raises(ValueError, match="block 48: choose a power of two"):
        declared("sptr", 10, block=48)
    with pytest.raises(ValueError, match="n = 0"):
        declared("lanes", 0)
    with pytest.raises(ValueError, match="threads 0"):
        declared("omp-ordered", 5, threads=0)
    assert declared("ao", 5) is None and declared("spa", 5) is None


def test_a_sum_in_a_narrower_type_is_told_how_to_be_asked():
    with np.errstate(all="ignore"), pytest.raises(NotATree, match=r"dtype=np\.float32"):
        discover(lambda x: x.astype(np.float32).sum(), 16)
    assert discover(lambda x: x.astype(np.float32).sum(), 4, np.float32) == (((0, 1), 2), 3)


def test_progress_counts_the_sums_that_are_asked_for(monkeypatch, capsys):
    monkeypatch.setattr(progress, "LINE_S", 0.0)
    discover(np.sum, 9, progress=True)
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) > 64 and all(line.startswith("discover: sum ") for line in lines)
