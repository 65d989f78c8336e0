"""Sums of which rational numbers say the right bits, through the C, C++ and Fortran interfaces of the library, in
surroundings that break programs: traps, other rounding modes, objects built with -ffast-math, threads."""

import math
from fractions import Fraction
from functools import cache

import numpy as np
import pytest

from tests.floating import HERE
from tests.launch import LIBRARIES
from tests.mpi.sectioned import PROGRAMS
from tests.mpi.test_library_mpi import DEBIAN, builder, need, start
from tests.rational import FORMATS, nearest, rational_sum

RUN, LAYOUT, EXACT = 1, 2, 3
INF, NAN = math.inf, math.nan
MOST, MOST_SINGLE = float(np.finfo("d").max), float(np.finfo("f").max)
TYPES = {"s": np.dtype("f"), "d": np.dtype("d"), "c": np.dtype("F"), "z": np.dtype("D")}
LEVEL = 40  # bits, of `layout`

# name: (letter, elements; an element of several fields is a list)
KNOWN = {
    "subnormals of float": ("s", [1e-39] * 3),
    "subnormals": ("d", [5e-324] * 3),
    "the smallest below one": ("d", [1.0, 2.0**-1060, -1.0]),
    "the smallest of float below one": ("s", [1.0, 2.0**-149, -1.0]),
    "beyond the largest": ("d", [1e308, 1e308, -1e308]),
    "beyond the largest float": ("s", [3e38, 3e38, -3e38]),
    "infinite and one": ("d", [INF, 1.0]),
    "infinite of both signs": ("d", [INF, 1.0, -INF]),
    "no number": ("d", [NAN, 1.0, 2.0, 3.0]),
    "no number beside infinite": ("s", [INF, NAN, -INF]),
    "minus infinite": ("s", [1.0, 2.0, -INF, 3.0]),
    "cancelled": ("d", [1.0, 1e16, -1e16, 1.0]),
    "cancelled in pairs": ("d", [1e17, 1.0, -1e17, 1.0]),
    "cancelled in float": ("s", [1.0, 1e8, -1e8, 1.0]),
    "tenths": ("d", [0.1] * 10),
    "a tie to even": ("d", [1.0, 2.0**-53]),
    "a tie to odd": ("d", [1.0 + 2.0**-52, 2.0**-53]),
    "above a tie": ("d", [1.0, 2.0**-53, 5e-324]),
    "below a tie": ("d", [1.0, 2.0**-53, -5e-324]),
    "a tie of float": ("s", [1.0, 2.0**-24]),
    "above a tie of float": ("s", [1.0, 2.0**-24, 2.0**-149]),
    "rounded to infinite": ("d", [MOST, 2.0**970]),
    "rounded to the largest": ("d", [MOST, 2.0**970, -5e-324]),
    "rounded to infinite float": ("s", [MOST_SINGLE, 2.0**103]),
    "rounded to the largest float": ("s", [MOST_SINGLE, 2.0**103, -(2.0**-149)]),
    "the least normal number": ("d", [2.0**-1022, -5e-324]),
    "zeros": ("d", [-0.0, -0.0, -0.0]),
    "a difference of nothing": ("s", [1.5, -1.5]),
    "nothing": ("d", []),
    "nothing of complex": ("c", []),
    "fields beside huge ones": ("d", [list(np.resize([1e30, 1e-6], 64))] * 3),
    "fields beside an infinite one": ("s", [[INF] + [1.0] * 16] * 4),
    "fields beside no number": ("d", [[NAN, INF, -INF, 1.0, -0.0]] * 2),
    "complex, infinite": ("z", [complex(INF, 1), complex(1, 2), complex(2, -0.0)]),
    "complex, cancelled": ("z", [complex(1e17, 1), complex(1, 1e17), complex(-1e17, -1e17), complex(1, 1)]),
    "complex of float": ("c", [complex(1e-39, -1e-39)] * 3),
    "fields of complex": ("c", [[complex(3e38, NAN), complex(1, 1)]] * 3),
    "many of one": ("s", [0.1] * 3000),
    "many, wide": ("d", [(-1.0) ** k * 2.0 ** (k % 1900 - 950) for k in range(3000)]),
}


def of_layout(column):
    """Finite elements as `layout` rounds them: to a unit that the largest fixes."""
    values = [Fraction(float(value)) for value in column]
    largest = max(map(abs, values), default=0)
    if not largest:
        return values
    exponent = math.frexp(float(largest))[1]  # the least with |x| < 2^exponent
    unit = Fraction(2) ** max(LEVEL * (exponent // LEVEL - 2), -1074)
    return [round(value / unit) * unit for value in values]


def right(column, guarantee):
    """The bits of the sum of real numbers, of their type."""
    if guarantee == LAYOUT and np.isfinite(column).all():
        total = nearest(sum(of_layout(column), Fraction(0)), *FORMATS[column.dtype.name])
        with np.errstate(over="ignore"):
            return column.dtype.type(total)  # infinite beyond the largest
    return rational_sum(column)[0]


def elements(letter, values):
    """values[element, number] as real numbers."""
    kind = TYPES[letter]
    rows = np.array([np.ravel(value) for value in values], kind)
    rows = rows.reshape(len(values), -1) if values else np.empty((0, 1), kind)
    return np.ascontiguousarray(rows).view(rows.real.dtype)


def ordered(column):
    """Whether every order of additions, with every rounding, has one result: no sum rounds or overflows."""
    values = [Fraction(float(value)) for value in column if np.isfinite(value)]
    size = sum(map(abs, values), Fraction(0))
    if size > Fraction(float(np.finfo(column.dtype).max)) / 2:
        return False
    if len(values) < len(column):  # infinities decide
        return True
    digits, least = (24, -149) if column.dtype == np.float32 else (53, -1074)
    lowest = [(value.numerator & -value.numerator) / value.denominator for value in values if value]
    unit = Fraction(min(lowest, default=1.0))
    return size < unit * 2**digits and unit >= Fraction(2) ** least


@cache
def table():
    """(text of the file for the programs, {name: the right bits of the totals})."""
    lines, answers = [], {}
    for what, (letter, values) in KNOWN.items():
        rows = elements(letter, values)
        whole = np.uint32 if rows.dtype == np.float32 else np.uint64
        width = 2 if letter in "cz" else 1
        for guarantee in (RUN, LAYOUT, EXACT):
            if guarantee == RUN and not all(ordered(column) for column in rows.T):
                continue
            name = f"{what}, {guarantee}".replace(" ", "_").replace(",", "")
            lines.append(f"{name} {letter} {guarantee} {rows.shape[1] // width} {len(rows)}")
            lines += [" ".join(f"{word:x}" for word in row) for row in rows.view(whole).tolist()]
            totals = np.array([right(column, guarantee) for column in rows.T], rows.dtype)
            answers[name] = [value_of(word, rows.dtype) for word in totals.view(whole).tolist()]
    return "\n".join(lines) + "\n", answers


def value_of(word, kind):
    """Bits with which numbers are compared; every NaN is one."""
    number = np.array([word], np.uint32 if kind == np.float32 else np.uint64).view(kind)[0]
    return "NaN" if np.isnan(number) else word


def found(printed):
    """{name: the bits of the totals} of what a program printed."""
    totals = {}
    for line in printed.splitlines():
        name, *words = line.split()
        kind = np.dtype("f") if KNOWN_TYPE[name] in "sc" else np.dtype("d")
        totals[name] = [value_of(int(word, 16), kind) for word in words]
    return totals


KNOWN_TYPE = {
    f"{what}, {guarantee}".replace(" ", "_").replace(",", ""): letter
    for what, (letter, _) in KNOWN.items() for guarantee in (RUN, LAYOUT, EXACT)
}  # fmt: skip


def test_the_table_has_the_answers_that_are_known_by_hand():
    _, answers = table()
    bits = {name: [hex(word) if word != "NaN" else word for word in words] for name, words in answers.items()}
    by_hand = {
        "subnormals_of_float_3": hex(int(np.float32(1e-39).view("u4")) * 3),
        "subnormals_2": "0x3",
        "the_smallest_below_one_3": hex(2**14),
        "the_smallest_below_one_2": "0x0",
        "beyond_the_largest_3": hex(int(np.float64(1e308).view("u8"))),
        "infinite_and_one_1": "0x7ff0000000000000",
        "cancelled_3": "0x4000000000000000",
        "a_tie_to_even_3": "0x3ff0000000000000",
        "above_a_tie_3": "0x3ff0000000000001",
        "rounded_to_infinite_3": "0x7ff0000000000000",
        "rounded_to_the_largest_3": "0x7fefffffffffffff",
        "zeros_1": "0x0",
    }
    assert {name: bits[name][0] for name in by_hand} == by_hand
    assert len(answers) > 90


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    return builder(tmp_path_factory.mktemp("known"))


@pytest.fixture(scope="module")
def file(tmp_path_factory):
    path = tmp_path_factory.mktemp("table") / "sums"
    path.write_text(table()[0])
    return path


def check(library, program, *words, ranks=(1, 3), threads=2):
    for size in ranks:
        run = start(library, size, program, *words, threads=threads)
        assert run.returncode == 0, run.stdout + run.stderr
        assert found(run.stdout) == table()[1]


SURROUNDINGS = ["plain", "traps", "1", "2", "3", "4"]


@pytest.mark.skipif(not HERE, reason="registers of x86-64")
@pytest.mark.parametrize("flags", [(), ("-ffast-math",)], ids=["", "fast-math"])
def test_known_sums_in_c(flags, made, file):
    program = made(LIBRARIES[0], PROGRAMS / "library_vectors.c", "-lm", *flags)
    for surroundings in SURROUNDINGS:
        check(LIBRARIES[0], program, file, surroundings, ranks=(1, 3) if surroundings == "plain" else (3,))


def test_known_sums_in_c_under_open_mpi(made, file):
    check(LIBRARIES[1], made(LIBRARIES[1], PROGRAMS / "library_vectors.c", "-lm"), file, "traps", ranks=(2,))


STRICT = ("-Wextra", "-pedantic", "-Wconversion", "-O3", "-ffast-math")


@pytest.mark.parametrize("standard", ["-std=c++17", "-std=c++20"])
@pytest.mark.parametrize("compiler", ["g++", "clang++"])
def test_known_sums_in_cpp_with_fast_math(compiler, standard, made, file):
    need(compiler)
    # Without OpenMP, which clang may lack and the header does not need.
    flags = (
        *STRICT,
        standard,
        *(("-Wno-unused-command-line-argument", "-fno-openmp") if compiler != "g++" else ()),
    )
    check(LIBRARIES[0], made(LIBRARIES[0], PROGRAMS / "library_vectors.cpp", *flags, compiler=compiler), file)


@pytest.mark.parametrize("library", [LIBRARIES[0], DEBIAN])
def test_known_sums_in_fortran_with_traps(library, made, file):
    check(library, made(library, PROGRAMS / "library_vectors.f90", "-ffpe-trap=invalid,zero,overflow"), file)


@pytest.mark.skipif(not HERE, reason="registers of x86-64")
@pytest.mark.parametrize("library", [LIBRARIES[0], pytest.param(LIBRARIES[1], marks=pytest.mark.slow)])
def test_calls_do_not_depend_on_the_floating_point_environment(library, made):
    """Rounding modes, flushed subnormals, traps and flags, drawn for each rank; known answers, and no flags raised."""
    program = made(library, PROGRAMS.parent / "preload" / "environments.c", "-DFPNA_CALLS", "-lm")
    for ranks, threads in ((1, 4), (3, 2)):
        run = start(library, ranks, program, "7", "120", threads=threads)
        assert "120 cases, 0 differ, 0 changed, 0 flagged" in run.stdout, run.stdout + run.stderr
    answers = [line.split()[0] for line in run.stdout.splitlines() if " flags 0" in line]
    assert answers == ["inf", "0x1.1ccf385ebc8ap+1023", "0x0.0000000004p-1022", "0x0.0000000000003p-1022"]


@pytest.mark.skipif(not HERE, reason="registers of x86-64")
@pytest.mark.parametrize("library", LIBRARIES)
def test_threads_call_at_the_same_time_on_their_own_communicators(library, made):
    program = made(library, PROGRAMS / "library_threads.c", "-pthread", "-lm")
    for ranks in (1, 2):
        run = start(library, ranks, program, "10", threads=2)
        if run.stdout == "no threads\n":
            pytest.skip(f"{library} has no MPI_THREAD_MULTIPLE")
        assert (run.returncode, run.stdout) == (0, "0 wrong\n"), run.stdout + run.stderr
