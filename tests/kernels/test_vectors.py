"""Fused vector updates: C++ has the bits of NumPy, for any length, blocks and threads."""

import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kernels.guarantees import ChoiceError
from kernels.vectors import backend, native, reference

from .vectors import CG, CG_DOTS, GHOSTS, NAMES, outcome, same, same_bits, starts, vectors

LENGTHS = [0, 1, 63, 64, 65, 1000, 4097, 20_000]
TYPES = [np.float64, np.float32]
both_types = pytest.mark.parametrize("dtype", TYPES)
EVERYTHING = "p = 2*u*p - x + u*x - alpha*r; s = -s; w = beta*u*w; x = .5*p + 1e-3*p - p + p; " + CG


@pytest.mark.parametrize("n", LENGTHS)
@both_types
@pytest.mark.parametrize("threads", [1, 2, 3, 4])
def test_native_has_the_bits_of_the_definition(n, dtype, threads):
    given, scalars = vectors(n, dtype), dict(alpha=0.3, beta=-1.7)
    expected = outcome(reference, given, EVERYTHING, CG_DOTS, starts(n), **scalars)
    assert same(outcome(native, given, EVERYTHING, CG_DOTS, starts(n), threads, **scalars), expected)
    without = outcome(native, given, EVERYTHING, "", starts(n), threads, **scalars)
    assert all(same_bits(without[name], expected[name]) for name in NAMES)


@pytest.mark.parametrize("module", [reference, native])
@both_types
def test_the_definition_is_one_rounding_for_each_operation(module, dtype):
    """By rational numbers: r - alpha*s*w as a program of three roundings."""
    given, alpha = vectors(40, dtype), dtype(0.3)

    def rounded(value):
        return dtype(float(value)) if dtype is np.float64 else _nearest_float32(value)

    got = outcome(module, given, "r = r - alpha*s*w", alpha=0.3)["r"]
    for r, s, w, element in zip(*(given[name] for name in "rsw"), got, strict=True):
        product = rounded(Fraction(float(-alpha)) * Fraction(float(s)))
        product = rounded(Fraction(float(product)) * Fraction(float(w)))
        assert element == rounded(Fraction(float(r)) + Fraction(float(product)))


def _nearest_float32(value: Fraction) -> np.float32:
    near = np.float32(float(value))  # maybe rounded twice: one of the neighbours then is nearer
    around = [np.nextafter(near, np.float32(side)) for side in (-math.inf, math.inf)] + [near]
    return min(around, key=lambda x: (abs(Fraction(float(x)) - value), int(x.view(np.uint32)) & 1))


@pytest.mark.parametrize("module", [reference, native])
@both_types
def test_fused_steps_are_the_steps_one_after_the_other(module, dtype):
    given, scalars = vectors(5000, dtype), dict(alpha=0.3, beta=-1.7)
    apart = given
    for step in CG.split(";"):
        used = {name: value for name, value in scalars.items() if name in step}
        apart = outcome(module, apart, step, blocks=starts(5000), **used)
        del apart["partials"]
    fused = outcome(module, given, CG, CG_DOTS, starts(5000), **scalars)
    assert all(same_bits(fused[name], apart[name]) for name in NAMES)
    assert same_bits(fused["partials"], outcome(module, apart, "", CG_DOTS, starts(5000))["partials"])


@both_types
def test_ghosts_are_not_touched(dtype):
    given = vectors(1000, dtype)
    after = outcome(native, given, CG, blocks=starts(1000), alpha=0.3, beta=0.1)
    assert all(same_bits(after[name][-GHOSTS:], given[name][-GHOSTS:]) for name in NAMES)
    assert not same_bits(after["p"][:1000], given["p"][:1000])


def test_a_block_has_the_same_bits_wherever_it_lies():
    given = vectors(3000)
    together = outcome(native, given, "", CG_DOTS, starts(3000), threads=3)["partials"]
    for block, (begin, end) in enumerate(zip(starts(3000)[:-1], starts(3000)[1:], strict=True)):
        alone = {name: array[begin:end] for name, array in given.items()}
        assert same_bits(outcome(native, alone, "", CG_DOTS)["partials"][0], together[block])


@pytest.mark.parametrize("module", [reference, native])
def test_no_block_and_empty_blocks(module):
    nothing = outcome(module, vectors(0), CG, CG_DOTS, np.zeros(1, np.int64), alpha=1.0, beta=1.0)
    assert nothing["partials"].shape == (0, 3)
    empty = outcome(module, vectors(0), CG, CG_DOTS, np.zeros(4, np.int64), alpha=1.0, beta=1.0)
    assert same_bits(empty["partials"], np.zeros((3, 3)))


@pytest.mark.parametrize("module", [reference, native])
def test_products_of_float32_are_exact_in_dot_products(module):
    """Where all sums of the products are exact too, the dot product is."""
    x = np.float32([1 + 2**-20, 3.0, -(1 - 2**-22)])
    exact = sum(Fraction(float(a)) ** 2 for a in x)
    assert Fraction(outcome(module, {"x": x}, "", "x.x")["partials"][0, 0]) == exact


@both_types
@pytest.mark.parametrize("scalar", [-0.0, 0.0, math.inf, -math.inf, math.nan, 1e300, 1e-320])
def test_scalars_and_elements_that_are_zero_or_not_finite(dtype, scalar):
    values = np.array([-0.0, 0.0, math.inf, -math.inf, math.nan, 1.0, -1.0, 1e-38, 3e38], dtype)
    x, y = (np.ascontiguousarray(a.reshape(-1)) for a in np.meshgrid(values, values))
    steps, dots = "y = x - a*y; z = a*x; x = a*x*y - x", "x.y z.z"
    outcomes = [outcome(m, dict(x=x, y=y, z=y), steps, dots, a=scalar) for m in (reference, native)]
    assert same(*outcomes)
    if scalar == 0.0:
        assert math.copysign(1.0, outcomes[1]["z"][5]) == math.copysign(1.0, scalar)


@pytest.mark.parametrize("module", [reference, native])
def test_two_names_of_one_vector_are_one_vector(module):
    r = vectors(2000)["r"]
    other = r.copy()
    f = module.fuse(dict(r=r, z=r, q=other), "z = r + a*q; r = z - a*q", "r.z", None)
    f(np.zeros((1, 1)), a=0.3)
    assert same_bits(r, (other + 0.3 * other) - 0.3 * other)
    assert f.nbytes == 3 * 8 * 2005


def test_what_must_be_moved_and_computed():
    f = native.fuse(vectors(1000), CG, CG_DOTS, starts(1000))
    assert f.scalars == ("beta", "alpha")
    assert (f.nbytes, f.flops) == ((6 + 4) * 8000, (4 * 2 + 3 * 2) * 1000)
    g = native.fuse(vectors(1000, np.float32), "u = 2*p - p + p*p - 3*p*p; w = u", "w.s", starts(1000))
    assert (g.nbytes, g.flops) == ((2 + 2) * 4000, (1 + 0 + 1 + 2 + 3 + 2) * 1000)


@pytest.mark.parametrize(
    "steps, dots, message",
    [
        (
            "x = r; p = u + beta*q",
            "",
            r"step 'p = u \+ beta\*q': 'q' is not a vector; there are: p, u, s, w, x, r",
        ),
        ("x = r; q = u", "", r"step 'q = u': 'q' is not a vector"),
        ("x = alpha", "", "step 'x = alpha': 'alpha' is not a vector"),
        ("x = alpha*beta*r", "", "'beta' is not a vector"),
        ("x = 2*alpha*r", "", "'alpha' is not a vector"),
        ("x = 2", "", "'2' needs one or two vectors"),
        ("x = r*u*w", "", r"'r\*u\*w' needs one or two vectors"),
        ("x = r*2", "", r"cannot read '\*2'"),
        ("x = 2r", "", "'2' needs one or two vectors"),
        ("x = r u", "", "cannot read 'u'"),
        ("x = r + ", "", r"cannot read '\+'"),
        ("x = r / u", "", "cannot read '/ u'"),
        ("x == r", "", "cannot read '= r'"),
        ("x", "", "expected TARGET"),
        ("x + r = u", "", "expected TARGET"),
        ("x = 1e999*r", "", "1e999 is too large"),
        ("x = r + r + r + r + r", "", "5 terms, and at most 4"),
        ("", "r.u r", "dot product 'r': expected VECTOR.VECTOR"),
        ("", "r.u r.q", "dot product 'r.q': 'q' is not a vector"),
        (" ; ", " ", "nothing to do"),
    ],
)
def test_wrong_steps_are_named(steps, dots, message):
    with pytest.raises(ValueError, match=message):
        native.fuse(vectors(10), steps, dots)


@pytest.mark.parametrize("module", [reference, native])
@pytest.mark.parametrize(
    "change, error, message",
    [
        (dict(u=np.zeros(105, np.float32)), TypeError, "vector 'u': float32, but others are float64"),
        (dict(u=np.zeros(105, np.int64)), TypeError, "vector 'u': expected float64 or float32"),
        (dict(u=[0.0] * 105), TypeError, "vector 'u': expected float64 or float32"),
        (dict(u=np.zeros(99)), ValueError, "vector 'u': 99 elements, but the blocks have 100"),
        (dict(u=np.zeros(210)[::2]), ValueError, "vector 'u': expected one dimension, contiguous"),
        (dict(u=np.zeros((105, 1))), ValueError, "vector 'u': expected one dimension, contiguous"),
        (dict(starts=np.array([0, 100.0])), TypeError, "starts: expected int64"),
        (dict(starts=np.array([1, 100])), ValueError, "starts: expected ascending numbers"),
        (dict(starts=np.array([0, 60, 50, 100])), ValueError, "starts: expected ascending numbers"),
        (dict(starts=None, u=np.zeros(104)), ValueError, r"vectors of \[104, 105\] elements"),
        (dict(threads=0), ValueError, "threads: expected 1 to 1024, got 0"),
    ],
)
def test_what_does_not_fit_is_refused(module, change, error, message):
    rest = dict(starts=starts(100), threads=1) | {
        k: v for k, v in change.items() if k in ("starts", "threads")
    }
    arrays = vectors(100) | {k: v for k, v in change.items() if k in NAMES}
    with pytest.raises(error, match=message):
        module.fuse(arrays, CG, CG_DOTS, **rest)


def test_a_target_that_overlaps_another_vector_is_refused_and_operands_that_do_are_not():
    memory, out = np.arange(20.0), np.zeros(10)
    with pytest.raises(ValueError, match="vector 'a', which a step writes, and 'b' overlap"):
        native.fuse(dict(a=memory[:10], b=memory[5:15]), "a = b")
    native.fuse(dict(a=memory[:10], b=memory[5:15], c=out), "c = a + b")()
    assert out.tolist() == (memory[:10] + memory[5:15]).tolist()
    native.fuse(dict(a=memory[:10], b=memory[10:]), "a = b")()
    assert memory[:10].tolist() == memory[10:].tolist()


def test_a_target_that_is_read_only_is_refused():
    given = vectors(10)
    given["p"].flags.writeable = given["u"].flags.writeable = False
    native.fuse(given, "x = p + u")
    with pytest.raises(ValueError, match="vector 'p': a step writes it"):
        native.fuse(given, "p = u")


@pytest.mark.parametrize("module", [reference, native])
def test_calls_that_do_not_fit_the_plan_are_refused(module):
    f = module.fuse(vectors(100), CG, CG_DOTS, starts(100))
    right = np.zeros((5, 3))
    for scalars in (dict(alpha=1.0), dict(alpha=1.0, beta=1.0, gamma=1.0), {}):
        with pytest.raises(TypeError, match="scalars: expected beta, alpha, got"):
            f(right, **scalars)
    for partials in (None, [0.0], right.astype(np.float32)):
        with pytest.raises(TypeError, match="partials: expected float64"):
            f(partials, alpha=1.0, beta=1.0)
    for partials in (np.zeros((4, 3)), np.zeros(15), np.zeros((3, 5)).T):
        with pytest.raises(ValueError, match=r"partials: expected shape \(5, 3\)"):
            f(partials, alpha=1.0, beta=1.0)


def test_an_unknown_backend_lists_the_known():
    with pytest.raises(ChoiceError, match="reference, native, cupy"):
        backend("fortran")


names = st.sampled_from(NAMES)
term = st.tuples(
    st.sampled_from(["+", "-"]), st.sampled_from(["", "a*", "b*", "0.7*", "3e-2*"]), names, st.none() | names
).map(lambda t: f"{t[0]} {t[1]}{t[2]}" + (f"*{t[3]}" if t[3] else ""))
step = st.tuples(names, st.lists(term, min_size=1, max_size=4)).map(lambda s: f"{s[0]} = {' '.join(s[1])}")
programs = st.tuples(
    st.lists(step, min_size=1, max_size=6).map("; ".join),
    st.lists(st.tuples(names, names).map(".".join), max_size=4).map(" ".join),
)


@given(programs, st.integers(0, 700), st.sampled_from(TYPES), st.data())
@settings(deadline=None, max_examples=150)
def test_any_program_has_the_bits_of_the_definition(program, n, dtype, data):
    cuts = sorted(data.draw(st.lists(st.integers(0, n), max_size=4)))
    blocks = np.array([0, *cuts, n], np.int64)
    scalars = {name: data.draw(st.floats(-1e3, 1e3)) for name in "ab" if f"{name}*" in program[0]}
    outcomes = [outcome(m, vectors(n, dtype), *program, blocks, **scalars) for m in (reference, native)]
    assert same(*outcomes)
