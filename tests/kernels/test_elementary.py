"""Elementary functions: their errors, the edges of their ranges, and bits that no setting of a library changes."""

import os
import shutil
import statistics
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from kernels import draws, elementary
from tests.launch import ROOT

mpmath = pytest.importorskip("mpmath")

N = 4000
REST = elementary.WHOLE_LN2


def numbers(name):
    """Drawn arguments of a function, and those next to where it changes."""
    rng = np.random.default_rng(5)
    if name in ("sine", "cosine"):
        n = np.concatenate([np.arange(1, 500), rng.integers(1, 2**22, 500), [2**k for k in range(22)]])
        edges = np.concatenate([n * np.pi / 2, n * np.pi / 4])
        edges = np.concatenate([edges, np.nextafter(edges, 1e9), np.nextafter(edges, -1e9)])
        drawn = rng.uniform(-1, 1, N) * 10.0 ** rng.uniform(-300, 7, N)
        x = np.concatenate([edges, drawn, rng.uniform(-7, 7, N), nearest(), -nearest()])
        return x[np.abs(x) <= elementary.LARGEST]
    if name == "exponential":
        edges = (np.arange(-1020, 1022) + 0.5) * REST
        return np.concatenate([edges, rng.uniform(-708, 709.7, N), rng.uniform(-1, 1, N), tiny(rng)])
    if name == "exponential2":
        return np.concatenate([rng.uniform(-1021, 1023, N), rng.uniform(-1, 1, N), tiny(rng)])
    about = np.sqrt(0.5) * (1 + np.arange(-50, 50) * 2.0**-53)
    positive = [10.0 ** rng.uniform(-323, 308, N), 1 + rng.uniform(-0.5, 1, N), about, 2 * about]
    return np.concatenate([*positive, 1 + tiny(rng), np.ldexp(about, 600)])


def tiny(rng):
    return rng.uniform(-1, 1, N) * 10.0 ** rng.uniform(-18, -1, N)


def nearest():
    """The floats nearest to multiples of pi / 2, by the continued fractions of pi / 2 over powers of two."""
    with mpmath.workprec(400):
        found = []
        for e in range(-30, 24):
            ulp = mpmath.mpf(2) ** (e - 52)
            value, (p, before), (q, last) = (mpmath.pi / 2) / ulp, (1, 0), (0, 1)
            for _ in range(60):
                whole = int(mpmath.floor(value))
                p, before, q, last = whole * p + before, p, whole * q + last, q
                if p >= 2**53:
                    break
                if p * ulp < elementary.LARGEST:
                    found.append(float(p * ulp))
                value = 1 / (value - whole)
        return np.array(found)


EXACT = {
    "sine": lambda x: mpmath.sin(x),
    "cosine": lambda x: mpmath.cos(x),
    "exponential": lambda x: mpmath.exp(x),
    "logarithm": lambda x: mpmath.log(x),
    "exponential2": lambda x: mpmath.power(2, x),
    "logarithm2": lambda x: mpmath.log(x, 2),
}


def errors(name, x):
    """The errors of a function, in units in the last place of the exact value."""
    found = getattr(elementary, name)(x)
    with mpmath.workprec(300):
        exact = [EXACT[name](mpmath.mpf(a)) for a in x.tolist()]
        units = [float(np.spacing(abs(float(value)))) for value in exact]
        return np.array(
            [float(abs(mpmath.mpf(f) - e) / u) for f, e, u in zip(found.tolist(), exact, units, strict=True)]
        )


@pytest.mark.parametrize("name", EXACT)
def test_errors_are_below_one_unit_in_the_last_place_and_two_to_base_2(name):
    x = numbers(name)
    worst = errors(name, x)
    at = int(worst.argmax())
    assert worst[at] < (2.0 if name.endswith("2") else 1.0), (x[at].hex(), worst[at])


def test_numbers_next_to_multiples_of_a_right_angle_are_among_the_tried():
    """The hardest arguments: the reduced angle has few of the bits of a float."""
    assert np.abs(np.stack([elementary.sine(nearest()), elementary.cosine(nearest())])).min() < 1e-16


def test_special_values_of_sine_and_cosine():
    sine, cosine = elementary.sine, elementary.cosine
    x = np.array([0.0, -0.0, 5e-324, -5e-324, 1e-310])
    assert sine(x).tobytes() == x.tobytes() and (cosine(x) == 1.0).all()
    drawn = np.random.default_rng(0).uniform(0, 1e7, 500)
    assert sine(-drawn).tobytes() == (-sine(drawn)).tobytes()
    assert cosine(-drawn).tobytes() == cosine(drawn).tobytes()
    for beyond in (np.nan, np.inf, -np.inf, 1.0000001e7, -1e300):
        for function in (sine, cosine):
            with pytest.raises(ValueError, match="an angle is not finite or beyond 1e"):
                function(np.array([0.5, beyond]))


def test_special_values_of_exponentials():
    inf, nan = np.inf, np.nan
    x = np.array([0.0, -0.0, inf, -inf, nan, 709.79, -745.2, 1e308, -1e308, 5e-324, 1e-17])
    found = elementary.exponential(x)
    np.testing.assert_array_equal(found, [1, 1, inf, 0, nan, inf, 0, inf, 0, 1, 1])
    assert not np.signbit(found).any()
    assert elementary.exponential(709.782) < inf and elementary.exponential(-745.13) == 5e-324
    subnormal = np.random.default_rng(1).uniform(-745.1, -708.4, 500)
    assert errors("exponential", subnormal).max() < 2.0
    whole = np.arange(-1100, 1101)
    with np.errstate(over="ignore"):
        assert elementary.exponential2(whole).tobytes() == np.ldexp(1.0, whole).tobytes()
    for beyond in (nan, inf, 1100.5):
        with pytest.raises(ValueError, match="outside -1100 to 1100"):
            elementary.exponential2([0.0, beyond])


def test_special_values_of_logarithms():
    x = np.array([0.0, -0.0, -1.0, -5e-324, np.inf, -np.inf, np.nan, 1.0])
    expected = [-np.inf, -np.inf, np.nan, np.nan, np.inf, np.nan, np.nan, 0.0]
    for function in (elementary.logarithm, elementary.logarithm2):
        found = function(x)
        np.testing.assert_array_equal(found, expected)
        assert not np.signbit(found[np.isnan(found)]).any()
    powers = np.arange(-1074, 1024)
    assert (elementary.logarithm2(np.ldexp(1.0, powers)) == powers).all()


def test_arrays_of_any_shape_have_the_bits_of_their_numbers():
    """Also without a warning and where the program makes errors of them: numbers below the normal ones occur within."""
    x = np.random.default_rng(2).uniform(0.001, 0.999, (7, 11, 13))
    with np.errstate(all="raise"):
        for name in (*EXACT, "quantile"):
            function = getattr(elementary, name)
            whole = function(x)
            assert whole.shape == x.shape and function(x[:, ::2].T).tobytes() == whole[:, ::2].T.tobytes()
            assert [float(function(a)) for a in x[:, 0, 0].tolist()] == whole[:, 0, 0].tolist()


def test_powers_are_products():
    assert elementary.power(3.0, 33) == 3.0**33 and elementary.power(0.5, 0) == 1.0
    for x, n in ((0.999, 12345), (1.0001, 77), (0.9, 1)):
        with mpmath.workprec(200):
            assert abs(mpmath.mpf(elementary.power(x, n)) / mpmath.mpf(x) ** n - 1) < 1e-11


def test_quantiles_are_those_of_the_normal_distribution():
    rng = np.random.default_rng(3)
    p = np.concatenate(
        [rng.uniform(0, 1, 300), 0.5 + rng.uniform(-0.4251, 0.4251, 200), 2.0**-53 * np.arange(1, 50)]
    )
    p = np.concatenate(
        [p, 10.0 ** rng.uniform(-300, -1, 200), [np.nextafter(1.0, 0.0), 5e-324, 0.075, 0.925]]
    )
    found = elementary.quantile(p)
    with mpmath.workprec(200):
        for a, x in zip(p.tolist(), found.tolist(), strict=True):
            # One step of Newton's method gives the distance to the exact quantile.
            exact = mpmath.mpf(x)
            side = mpmath.erfc(abs(exact) / mpmath.sqrt(2)) / 2
            over = (side if x < 0 else 1 - side) - mpmath.mpf(a)
            density = mpmath.exp(-exact * exact / 2) / mpmath.sqrt(2 * mpmath.pi)
            assert abs(over / density) <= 1e-15 * abs(exact), a
    assert elementary.quantile(0.5) == 0.0
    p = rng.integers(1, 2**53, 500) * 2.0**-53
    assert elementary.quantile(p).tobytes() == (-elementary.quantile(1 - p)).tobytes()
    for beyond in (0.0, 1.0, np.nan, -0.1):
        with pytest.raises(ValueError, match="not between 0 and 1"):
            elementary.quantile([0.5, beyond])


def test_normal_numbers_are_normal_and_end_where_their_words_end():
    rng = np.random.Generator(np.random.Philox(key=1))
    x = draws.normal(rng, (100, 2000))
    assert x.shape == (100, 2000)
    ordered, own = np.sort(x.reshape(-1)), statistics.NormalDist()
    n = ordered.size
    cumulated = np.array([own.cdf(a) for a in ordered[::100].tolist()])
    assert np.abs(cumulated - np.arange(0, n, 100) / n).max() < 2.0 / np.sqrt(
        n
    )  # Kolmogorov: beyond it once in 1500
    ends = draws.normal_of(np.array([0, 2**64 - 1], np.uint64))
    assert ends[0] == -ends[1] and 8.2 < ends[1] < 8.3
    assert draws.normal(np.random.default_rng(0), 0).shape == (0,)
    one = np.random.Generator(np.random.Philox(key=1)), np.random.Generator(np.random.Philox(key=1))
    assert (
        draws.lognormal(one[0], 2.0, 9000).tobytes()
        == elementary.exponential(2 * draws.normal(one[1], 9000)).tobytes()
    )


PROGRAM = """
import hashlib, numpy as np
from kernels import draws, elementary
digest = hashlib.sha256()
for length in (1, 3, 16, 17, 4000):
    rng = np.random.Generator(np.random.Philox(key=length))
    x = draws.uniform(rng, -40.0, 40.0, length)
    for function in (elementary.sine, elementary.cosine, elementary.exponential, elementary.exponential2):
        digest.update(function(x).tobytes())
    for function in (elementary.logarithm, elementary.logarithm2):
        digest.update(function(np.abs(x)).tobytes())
    digest.update(draws.normal(rng, length).tobytes())
    digest.update(draws.lognormal(rng, 3.0, length).tobytes())
print(digest.hexdigest())
"""
FIXED = "43472514fbfab1b011cc4578a81718cc7c9a787864863bfa153a45e917b82913"
HELD = {
    "no setting": {},
    "glibc without FMA": {
        "GLIBC_TUNABLES": "glibc.cpu.hwcaps=-AVX512F,-AVX2,-FMA,-AVX,-FMA4,-AVX2_Usable,-FMA_Usable"
    },
    "NumPy's oldest loops": {"NPY_DISABLE_CPU_FEATURES": "X86_V3 X86_V4 AVX512_ICL"},
}


def printed(command, env):
    done = subprocess.run(
        command, capture_output=True, text=True, cwd=ROOT, env=os.environ | env, timeout=500
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


@pytest.mark.parametrize("held", HELD)
def test_bits_are_fixed_whatever_the_libraries_choose(held):
    assert printed([sys.executable, "-c", PROGRAM], HELD[held]) == FIXED


def test_the_c_library_hears_its_setting():
    if " fma " not in Path("/proc/cpuinfo").read_text():
        pytest.skip("no processor with FMA, without which the C library has nothing to leave out")
    program = "import math; print(hash(tuple(math.sin(k * 0.1) for k in range(100000))))"
    plain, held = (printed([sys.executable, "-c", program], HELD[name]) for name in list(HELD)[:2])
    assert plain != held


@pytest.mark.slow
@pytest.mark.parametrize("cpu", ["Nehalem", "Haswell", "EPYC-Rome"])
def test_bits_are_fixed_on_emulated_processors(cpu):
    if not shutil.which("qemu-x86_64"):
        pytest.skip("no qemu-x86_64: apt-get install qemu-user")
    assert printed(["qemu-x86_64", "-cpu", cpu, sys.executable, "-c", PROGRAM], {}) == FIXED
