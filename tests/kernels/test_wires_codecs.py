"""Codecs: casts are those of ml_dtypes, the C++ code has the bits of the definition, and errors are of known size."""

import doctest
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kernels import wires
from kernels.guarantees import ChoiceError
from kernels.wires import CELL, Cells, cells_of, codec, quality, reference

from .wire_cases import (
    ALL,
    EDGES,
    KINDS,
    MATCHED,
    SCALED,
    SHAPES,
    TABLES,
    WHOLE,
    decoded,
    encoded,
    numbers,
    same,
    there_and_back,
)

PAGE = Path(__file__).parents[2] / "docs" / "explanation" / "wires.md"
every = pytest.mark.parametrize("text", ALL)
SIZES = [0, 1, 7, 8, 31, 1000, 4095, 4096, 4097, 3 * 4096 + 17]
ORACLES = {
    "float16": np.dtype(np.float16),
    "bfloat16": np.dtype(ml_dtypes.bfloat16),
    "e4m3": np.dtype(ml_dtypes.float8_e4m3fn),
    "e5m2": np.dtype(ml_dtypes.float8_e5m2),
}


def choice(text: str) -> tuple[str, int, str]:
    one = codec(text)
    return one.name, one.block or int(one.parameters.get("n", 0)), one.parameters.get("scale", "none")


def rotates(text: str) -> bool:
    return "rotate" in codec(text).parameters


def defined(text: str, x: np.ndarray, cells: Cells) -> tuple[bytes, np.ndarray]:
    """What the definition makes of x: its bytes, and the elements that these stand for."""
    data, back = [], []
    for start, stop, plain in zip(cells.starts[:-1], cells.starts[1:], cells.plain, strict=True):
        of_cell = ("float32", 0, "none") if plain else choice(text)
        with np.errstate(all="ignore"):
            data.append(reference.encode_cell(*of_cell, x[start:stop], rotates(text)))
            back.append(reference.decode_cell(*of_cell, data[-1], stop - start, rotates(text)))
    return b"".join(data), np.concatenate([np.empty(0, np.float32), *back])


# Casts


@pytest.mark.parametrize("name", ORACLES)
def test_casts_are_those_of_ml_dtypes(name):
    rng = np.random.default_rng(1)
    x = rng.integers(0, 2**32, 10**6, dtype=np.uint32).view(np.float32)
    near = x[::4].view(np.uint32) & 0xFFFFE000  # ties, and numbers beside them
    x = np.concatenate(
        [x, (near + rng.integers(0, 3, len(near), dtype=np.uint32) - 1).view(np.float32), EDGES]
    )
    with np.errstate(all="ignore"):
        expected = x.astype(ORACLES[name])
        codes = encoded(name, x).view(f"u{ORACLES[name].itemsize}")
        nan = np.isnan(expected.astype(np.float32))
    assert (codes == expected.view(codes.dtype))[~nan].all()
    assert np.isnan(codes[nan].view(ORACLES[name]).astype(np.float32)).all()
    assert (np.signbit(codes.view(ORACLES[name]).astype(np.float32)) == np.signbit(x))[~np.isnan(x)].all()


@pytest.mark.parametrize("name", ORACLES)
def test_every_pattern_is_decoded_as_by_ml_dtypes(name):
    bits = 8 * ORACLES[name].itemsize
    patterns = np.arange(2**bits).astype(f"u{bits // 8}")
    back = decoded(name, patterns.view(np.uint8), cells_of(len(patterns)))
    assert same(back, patterns.view(ORACLES[name]).astype(np.float32))
    assert same(reference.widen(patterns, reference.FORMATS[name]), back)


def test_fp8_is_e5m2_that_saturates():
    x = np.concatenate([numbers("bits", 10**6), EDGES])
    saturated = np.where(np.isinf(x), x, np.clip(x, -57344, 57344))  # NaN stays
    assert encoded("fp8", x).tobytes() == encoded("e5m2", saturated).tobytes()
    codes = np.arange(256, dtype=np.uint8)
    assert same(decoded("fp8", codes, cells_of(256)), decoded("e5m2", codes, cells_of(256)))
    finite = np.isfinite(decoded("fp8", codes, cells_of(256)))
    back = decoded("fp8", codes, cells_of(256))[finite]
    assert encoded("fp8", back).tobytes() == codes[finite].tobytes()


@pytest.mark.parametrize("name", reference.FORMATS)
def test_a_value_that_was_decoded_is_encoded_without_loss(name):
    once = there_and_back(name, numbers("bits", 10_000))
    assert same(there_and_back(name, once), once)


# What the definition is, and that C++ has its bits


@every
@pytest.mark.parametrize("kind", KINDS)
def test_cpp_has_the_bits_of_the_definition(text, kind):
    for n in SIZES if kind == "normal" else (4097,):
        x, cells = numbers(kind, n), cells_of(n)
        expected, back = defined(text, x, cells)
        data = encoded(text, x)
        assert data.tobytes() == expected
        assert same(decoded(text, data, cells), back)
        total = numbers("wide", n).copy()
        codec(text).decode_add(data, cells, total)
        with np.errstate(all="ignore"):
            assert same(total, numbers("wide", n) + back)


@pytest.mark.parametrize("text", WHOLE)
def test_a_tensor_as_one_cell_has_one_table(text):
    shapes = [(2, 3 * 4096 + 17), (100,), (3, 5), (1, 70_001)]  # more than 65,535 of one magnitude, too
    sizes = [int(np.prod(shape)) for shape in shapes]
    for kind in ("normal", "few", "edges"):
        x = np.concatenate([numbers(kind, sum(sizes[:3])), numbers("few", 1).repeat(sizes[3])])
        cells = cells_of(len(x), shapes, whole=True)
        assert cells.starts.tolist() == np.cumsum([0, *sizes]).tolist()
        expected, back = defined(text, x, cells)
        data = encoded(text, x, cells)
        assert data.tobytes() == expected and len(data) == codec(text).nbytes(cells)
        assert same(decoded(text, data, cells), back)


@pytest.mark.parametrize("text", WHOLE)
@pytest.mark.parametrize(
    "factors", [(2.0**-149, 2.0**-60, 1e-3, 1.0, 3.0, 2.0**60), (1.0, 2.0**-30, 2.0**9, np.inf)]
)
def test_the_table_of_a_tensor_whose_numbers_rise_is_that_of_the_largest(text, factors):
    with np.errstate(invalid="ignore"):
        x = np.concatenate([numbers("normal", 4096) * np.float32(factor) for factor in factors])
    for rising in (x, x[::-1].copy()):
        cells = cells_of(len(x), [(len(factors), 4096)], whole=True)
        expected, back = defined(text, rising, cells)
        data = encoded(text, rising, cells)
        assert data.tobytes() == expected and same(decoded(text, data, cells), back)


@every
@pytest.mark.parametrize("offset", [1, 2, 3])
def test_the_address_changes_nothing(text, offset):
    x, cells = numbers("normal", 5000), cells_of(5000)
    data = encoded(text, x)
    moved_x = np.empty(5000 + offset, np.float32)[offset:]
    moved = np.empty(len(data) + offset, np.uint8)[offset:]
    moved_x[:] = x
    codec(text).encode(moved_x, cells, moved)
    assert moved.tobytes() == data.tobytes()
    codec(text).decode(moved, cells, moved_x)
    assert same(moved_x, decoded(text, data, cells))


@every
def test_tensors_are_encoded_each_by_itself_and_small_ones_travel_as_they_are(text):
    n = sum(int(np.prod(shape)) for shape in SHAPES)
    x, cells = numbers("normal", n), cells_of(n, SHAPES)
    data = encoded(text, x, cells)
    expected, back = defined(text, x, cells)
    assert data.tobytes() == expected and same(decoded(text, data, cells), back)
    assert back[5000:5116].tobytes() == x[5000:5116].tobytes()
    assert encoded(text, x[:5000]).tobytes() == data[: codec(text).nbytes(cells_of(5000))].tobytes()
    offsets = codec(text).offsets(cells)
    assert offsets.dtype == np.int64 and offsets[0] == 0 and offsets[-1] == len(data)
    for first, last in [(0, 2), (1, 4), (2, 2), (3, len(cells))]:
        part = cells.part(first, last)
        start, stop = cells.starts[first], cells.starts[last]
        assert encoded(text, x[start:stop], part).tobytes() == data[offsets[first] : offsets[last]].tobytes()


@given(
    text=st.sampled_from(ALL),
    x=st.lists(st.floats(width=32) | st.sampled_from([0.0, 1.0, -0.5]), max_size=60),
    into=st.integers(0, 2**32),
)
@settings(max_examples=150, deadline=None)
def test_any_floats_have_the_bytes_of_the_definition(text, x, into):
    x = np.array(x, np.float32)
    expected, back = defined(text, x, cells_of(len(x)))
    assert encoded(text, x).tobytes() == expected
    assert same(decoded(text, encoded(text, x), cells_of(len(x))), back)


@given(text=st.sampled_from(ALL), n=st.integers(1, 50), seed=st.integers(0, 2**32))
@settings(max_examples=100, deadline=None)
def test_any_bytes_are_decoded_as_defined(text, n, seed):
    data = np.random.default_rng(seed).integers(0, 256, codec(text).nbytes(cells_of(n)), dtype=np.uint8)
    with np.errstate(all="ignore"):
        back = reference.decode_cell(*choice(text), data.tobytes(), n, rotates(text))
    assert same(decoded(text, data, cells_of(n)), back)


def test_sums_over_a_cell_have_one_order():
    x = numbers("wide", 1000).astype(np.float64)
    lanes = [0.0] * 16
    for i, value in enumerate(x):
        lanes[i % 16] += value
    for w in (8, 4, 2, 1):
        lanes = [lanes[i] + lanes[i + w] for i in range(w)]
    assert reference.in_lanes(x) == lanes[0] != sum(x.tolist())


@pytest.mark.parametrize("kind", ["normal", "sparse", "few", "wide"])
@pytest.mark.parametrize("n", [1, 7, 100, 4096])
@pytest.mark.parametrize("entries", [1, 2, 8, 128])
def test_the_percentiles_are_those_of_numpy_within_a_bin(kind, n, entries):
    x = numbers(kind, n)
    points = 99 * np.arange(1, entries + 1) / entries
    exactly = np.percentile(np.abs(x), points, method="inverted_cdf")
    table = reference.widen(reference.percentiles(x, entries), reference.FORMATS["bfloat16"])
    small = exactly < np.abs(x).max() * 2**-15
    assert (np.abs(table - exactly)[~small] <= exactly[~small] / 64).all()
    assert (table[small] <= np.abs(x).max() * 2**-15).all()
    assert (np.diff(table) >= 0).all()


@pytest.mark.parametrize("n", range(1, 9))
def test_a_table_gives_each_element_the_nearest_entry(n):
    x = numbers("normal", 4096)
    entries = 2 ** (n - 1)
    table = reference.widen(reference.percentiles(x, entries), reference.FORMATS["bfloat16"]).astype(
        np.float64
    )
    apart = np.abs(np.abs(x.astype(np.float64))[:, None] - table)
    back = there_and_back(f"table:n={n}", x)
    assert (np.abs(x.astype(np.float64) - back) == apart.min(1)).all()


def test_signs_are_decoded_to_means():
    x = np.array([1, 2, 6, -0.5, -1.5, 0, -0.0, -0.0], np.float32)
    assert there_and_back("sign", x).tolist() == [2.25, 2.25, 2.25, -0.5, -0.5, 2.25, -0.5, -0.5]
    assert there_and_back("sign", np.array([3, 5], np.float32)).tolist() == [4, 4]
    assert np.isclose(there_and_back("sign", numbers("normal", 4096)).max(), np.sqrt(2 / np.pi), rtol=0.05)


@pytest.mark.parametrize("name", reference.INTEGERS)
def test_integers_take_the_power_of_two_with_which_the_largest_fits(name):
    most = 2 ** reference.INTEGERS[name] - 1
    x = np.array([most, 0.5, 1.5, 2.5, -1, 0, -0.0, -most], np.float32)
    for e in (-100, 0, 90):
        expected = np.array([most, 0, 2, 2, -1, 0, 0, -most], np.float32) * np.float32(2.0**e)
        assert there_and_back(name, x * np.float32(2.0**e)).tobytes() == expected.tobytes()
    almost = np.array([np.nextafter(np.float32(most + 1), np.float32(0))])
    assert there_and_back(name, almost).tolist() == [most]


@pytest.mark.parametrize("text", SCALED)
def test_a_scale_keeps_what_the_format_alone_would_lose(text):
    name = codec(text).name
    x = numbers("normal", 4096)
    expected = quality(x, there_and_back(name, x))
    for e in (-60, 60):
        at = (x * np.float32(2.0**e)).astype(np.float32)
        error, _, _ = quality(at, there_and_back(text, at))
        assert error <= 1.01 * expected[0]
        if name != "bfloat16":
            lost = there_and_back(name, at)
            assert not (np.isfinite(lost).all() and lost.any()) or quality(at, lost)[0] > 0.99


@pytest.mark.parametrize("text", MATCHED)
def test_matched_cells_keep_their_length(text):
    x = numbers("normal", 4096)
    before, after = (
        quality(x, there_and_back(t, x)) for t in (text.replace(",scale", ":scale").split(":scale")[0], text)
    )
    assert abs(after[2] - 1) < 1e-6 and after[1] == pytest.approx(before[1], abs=1e-6)


# NaN, infinity and what is too large

NAN, INF = np.float32(np.nan), np.float32(np.inf)
LARGE = np.float32(3e38)
SPECIAL = {  # NaN, infinity and a number too large become
    "float32": (NAN, INF, LARGE),
    "float16": (NAN, INF, INF),
    "bfloat16": (NAN, INF, np.float32(ml_dtypes.bfloat16(3e38))),
    "e4m3": (NAN, NAN, NAN),
    "e5m2": (NAN, INF, INF),
    "fp8": (NAN, np.float32(np.inf), np.float32(57344)),
}


@pytest.mark.parametrize("name", SPECIAL)
def test_what_a_cast_makes_of_numbers_outside_its_range(name):
    x = np.array([NAN, INF, LARGE, -INF, -LARGE, 1], np.float32)
    nan, infinity, large = SPECIAL[name]
    assert same(there_and_back(name, x), np.array([nan, infinity, large, -infinity, -large, 1], np.float32))


@pytest.mark.parametrize("text", SCALED)
def test_a_scale_is_that_of_the_finite_elements(text):
    x = np.array([NAN, INF, 1e-20, -INF, 0], np.float32)
    back = there_and_back(text, x)
    assert np.isnan(back[0]) and back[2] == pytest.approx(1e-20, rel=0.1) and back[4] == 0
    assert not np.isfinite(back[1]) and not np.isfinite(back[3])


@pytest.mark.parametrize(
    "text", [*TABLES, "sign", "int8", "int16", "sign:scale=match", "table:n=4,scale=match"]
)
@pytest.mark.parametrize("bad", [NAN, INF, -INF])
@pytest.mark.parametrize("at", [0, 17, 4095])
def test_a_cell_with_a_nan_or_an_infinity_is_decoded_to_nan_and_its_neighbours_are_not(text, bad, at):
    x = numbers("normal", 3 * CELL).copy()
    x[CELL + at] = bad
    back = there_and_back(text, x)
    assert (
        np.isnan(back[CELL : 2 * CELL]).all()
        and np.isfinite(back[:CELL]).all()
        and np.isfinite(back[2 * CELL :]).all()
    )


@pytest.mark.parametrize("text", [t for t in ALL if not t.startswith("sign")])
def test_zeros_stay_zeros(text):
    assert not there_and_back(text, np.zeros(100, np.float32)).any()
    sparse = numbers("sparse", 4096)
    back = there_and_back(text, sparse)
    if not text.startswith("table:n=1") and not rotates(text):
        assert not back[sparse == 0].any()


# Blocks


def test_e2m1_is_that_of_ml_dtypes():
    """The largest magnitude of each block is 6, so that its scale is 1."""
    x = np.random.default_rng(3).uniform(-6, 6, 4096).astype(np.float32)
    x[: len(EDGES)] = np.clip(np.nan_to_num(EDGES), -6, 6)
    ties = np.array([0.25, 0.75, 1.25, 1.75, 2.5, 3.5, 5, 6], np.float32)
    x[64:72], x[96:104] = ties, -ties
    x[::32] = 6
    expected = x.astype(ml_dtypes.float4_e2m1fn).astype(np.float32)
    assert there_and_back("e2m1", x).tobytes() == expected.tobytes()


def test_powers_of_two_have_no_mantissa_and_ties_go_to_even_codes():
    x = np.array([16, 13, 12, 11, 6, 3, 1.5, 0.75, 0.375, 0.25, 0.126, 0.125, -0.0, -5.9], np.float32)
    assert there_and_back("e3m0", x).tolist() == [16, 16, 8, 8, 8, 2, 2, 0.5, 0.5, 0.25, 0.25, 0, -0.0, -4]


@pytest.mark.parametrize("name", reference.BLOCKED)
def test_no_element_of_a_block_is_further_from_its_code_than_half_a_step(name):
    x = numbers("normal", 4096)
    step = {"int4": 1 / 7 * 1.01, "e2m1": 2 / 6, "e3m0": 8 / 16}[name]
    most = np.abs(x.reshape(-1, codec(name).block)).max(1, keepdims=True)
    apart = np.abs(there_and_back(name, x) - x).reshape(-1, codec(name).block)
    assert (apart <= step / 2 * most * (4 / 3 if name != "int4" else 1)).all()


@pytest.mark.parametrize("text", [*reference.BLOCKED, *(f"{name}:rotate=on" for name in reference.BLOCKED)])
def test_blocks_scale_apart_and_powers_of_two_change_no_code(text):
    x = numbers("normal", 1024).copy()
    back = there_and_back(text, x)
    for e in (-60, 60):
        assert there_and_back(text, x * np.float32(2.0**e)).tobytes() == (back * np.float32(2.0**e)).tobytes()
    block = codec(text).block
    x[:block] *= 1000
    assert there_and_back(text, x)[block:].tobytes() == back[block:].tobytes()
    x[:block] *= np.float32(2.0**-126)
    x[:block] *= np.float32(2.0**-10)
    assert not there_and_back(text, x)[:block].any()


@pytest.mark.parametrize("text", [*reference.BLOCKED, *(f"{name}:rotate=on" for name in reference.BLOCKED)])
@pytest.mark.parametrize("bad", [NAN, INF, -INF])
def test_a_block_with_a_nan_or_an_infinity_is_decoded_to_nan_and_its_neighbours_are_not(text, bad):
    x, block = numbers("normal", 4096).copy(), codec(text).block
    x[block + 3] = bad
    back = there_and_back(text, x)
    assert (
        np.isnan(back[block : 2 * block]).all()
        and np.isfinite(np.delete(back, slice(block, 2 * block))).all()
    )


def test_a_rotation_twice_is_32_times_the_vector_and_spreads_large_elements():
    x = np.arange(100, dtype=np.float32)
    assert reference.rotated(reference.rotated(x))[:96].tolist() == (32 * x[:96]).tolist()
    assert reference.rotated(x)[96:].tolist() == x[96:].tolist()
    sparse = numbers("normal", 4096).copy()
    sparse[::64] *= 30
    plain, turned = (quality(sparse, there_and_back(text, sparse))[0] for text in ("int4", "int4:rotate=on"))
    assert turned < 0.8 * plain


# Errors, on normal data


@pytest.mark.parametrize(
    "text, error",
    [
        ("float16", 2.1e-4), ("bfloat16", 0.00165), ("e4m3:scale=tensor", 0.0266), ("fp8", 0.0526), ("int8", 0.0127),
        ("int16", 4.95e-5), ("table:n=8", 0.0465), ("table:n=4", 0.1305), ("table:n=2", 0.458), ("table:n=1", 1.88),
        ("table:n=1,scale=match", 0.635), ("sign", 0.603), ("sign:scale=match", 0.635), ("int4", 0.1178),
        ("int4:rotate=on", 0.1179), ("e2m1", 0.112), ("e3m0", 0.1945),
    ],
)  # fmt: skip
def test_errors_on_normal_numbers(text, error):
    x = numbers("normal", 50 * CELL)
    assert quality(x, there_and_back(text, x))[0] == pytest.approx(error, rel=0.02)


def test_quality():
    assert quality([3.0, 4.0], [3.0, 4.0]) == (0, pytest.approx(1), 1)
    assert quality([3.0, 4.0], [6.0, 8.0]) == (1, pytest.approx(1), 2)
    assert quality([1.0, 0.0], [0.0, 1.0]) == (pytest.approx(2**0.5), 0, 1)
    assert quality([1.0], [0.0]) == (1, 0, 0)
    assert quality([0.0], [0.0]) == (0, 1, 1)
    assert quality([0.0], [1.0]) == (np.inf, 0, np.inf)


# Names, cells and mistakes


@every
def test_texts_are_canonical_and_sizes_are_as_stated(text):
    one = codec(text)
    assert one.text == text and codec(one.text) == one and hash(codec(text)) == hash(one)
    heads = one.head + one.of_block * (-(-1000 // one.block) if one.block else 0)
    assert one.nbytes(cells_of(1000)) == heads + -(-one.bits * 1000 // 8)


def test_parameters_in_any_order_and_defaults_have_one_text():
    assert codec("table:scale=match,n=4").text == "table:n=4,scale=match"
    assert codec("table:cell=tensor,n=4").text == "table:n=4,cell=tensor"
    assert codec("table:cell=4096,n=4") == codec("table:n=4")
    assert codec("fp8:scale=none").text == "fp8" and codec("fp8:scale=none") == codec("fp8")
    assert set(wires.LOSSY).isdisjoint(wires.SUMMARIES)


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("fp7", "float16, bfloat16"),
        ("", "float32"),
        ("table", "table:n=4"),
        ("table:n=0", "1, 2, 3, 4, 5, 6, 7, 8"),
        ("table:n=9", "1, 2, 3, 4, 5, 6, 7, 8"),
        ("table:n=04", "not '04'"),
        ("table:m=4", "it has n and cell and scale"),
        ("table:n=4,cell=8", "choose one of 4096, tensor"),
        ("table:n=4,cell=tensor,scale=match", "leave cell=tensor out"),
        ("fp8:cell=tensor", "it has scale"),
        ("fp8:n=4", "it has scale"),
        ("fp8:", "'' is not a parameter"),
        ("fp8:scale", "none, tensor, match"),
        ("fp8:scale=cell", "none, tensor, match"),
        ("int8:scale=tensor", "choose one of none, match"),
        ("float32:scale=match", "choose one of none"),
        ("int4:block=48", "32, 64, 128"),
        ("e3m0:rotate=yes", "choose one of off, on"),
        ("fp8:rotate=on", "it has scale"),
    ],
)
def test_a_wrong_text_is_refused_with_what_there_is(text, named):
    with pytest.raises(ChoiceError) as error:
        codec(text)
    assert named in str(error.value)


def test_cells():
    whole = cells_of(10_000)
    assert whole.starts.tolist() == [0, 4096, 8192, 10_000] and not whole.plain.any()
    assert len(whole) == 3 and whole.n == 10_000 and whole.starts.dtype == np.int64
    mixed = cells_of(2048 + 5000 + 10, [(2, 1024), (5000,), (10, 1)])
    assert mixed.starts.tolist() == [0, 2048, 6144, 7048, 7058]
    assert mixed.plain.tolist() == [False, True, True, True]
    part = mixed.part(1, 3)
    assert part.starts.tolist() == [0, 4096, 5000] and part.plain.tolist() == [True, True]
    assert len(cells_of(0)) == 0 and cells_of(0).n == 0 and mixed.part(2, 2).n == 0
    for wrong in (
        lambda: cells_of(-1),
        lambda: cells_of(10, [(3, 3)]),
        lambda: mixed.part(3, 5),
        lambda: mixed.part(2, 1),
    ):
        with pytest.raises(ValueError):
            wrong()
    with pytest.raises(ValueError):
        whole.starts[0] = 1


@pytest.mark.parametrize("method", ["encode", "decode", "decode_add"])
def test_arrays_that_do_not_fit_are_refused(method):
    one, cells = codec("fp8"), cells_of(100)
    x, data = np.zeros(100, np.float32), np.zeros(100, np.uint8)

    def call(x, data, cells=cells):
        getattr(one, method)(*((x, cells, data) if method == "encode" else (data, cells, x)))

    call(x, data)
    for wrong in (
        (x.astype(np.float64), data),
        (x, data.view(np.int8)),
        (x[:99], data),
        (x, data[:99]),
        (np.zeros(200, np.float32)[::2], data),
        (x, np.zeros(200, np.uint8)[::2]),
        (x.reshape(10, 10), data),
        (x, data, cells_of(99)),
        (x, data, Cells(np.array([0, 50, 40, 100]), np.zeros(3, bool))),
        (x, data, Cells(np.array([0, 100]), np.zeros(2, bool))),
    ):
        with pytest.raises(ValueError):
            call(*wrong)
    long = np.zeros(5000, np.float32), np.zeros(5000, np.uint8), Cells(np.array([0, 5000]), np.zeros(1, bool))
    with pytest.raises(ValueError, match="4096"):
        call(*long)
    written = data if method == "encode" else x
    written.flags.writeable = False
    with pytest.raises(ValueError):
        call(x, data)


def test_the_example_of_the_page():
    assert doctest.testfile(str(PAGE), module_relative=False) == (0, 8)
