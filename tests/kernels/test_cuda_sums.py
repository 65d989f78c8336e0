"""Sums on the GPU: the bits of their definition, whatever the order of blocks and threads.

They need a device; `test_cuda_on_host.py` runs this file without one.
"""

import ml_dtypes
import numpy as np
import pytest

from kernels import registry
from kernels.sums import cupy as gpu

pytestmark = [pytest.mark.cuda, pytest.mark.skipif(bool(gpu.missing()), reason=gpu.missing() or "")]

TREES = ["sptr", "sprg", "tprc", "sp-pairwise", "sp-neumaier"]
SHAPES = [
    {"block": 32, "items": 1, "grid": 7},
    {"block": 64, "items": 2},
    {},
    {"block": 1024, "items": 1, "grid": 3},
]
LENGTHS = [0, 1, 31, 63, 64, 65, 255, 257, 1000, 4097, 100_003]


def on_device(x):
    import cupy

    return cupy.asarray(x)


def sample(n, dtype=np.float64, decades=8, seed=0):
    rng = np.random.default_rng(seed)
    return (rng.standard_normal(n) * 10.0 ** rng.integers(-decades, decades + 1, n)).astype(dtype)


def on_gpu(operation, name, *arrays, **how):
    return registry.get(operation, name, "cupy")(*arrays, **how)


def twin(operation, name, *arrays, **shape):
    """The same order on the CPU, which tests of its own compare with the definition."""
    return registry.get(operation, name, "native")(*arrays, **shape)


def same_bits(result, expected):
    return result.dtype == expected.dtype and result.tobytes() == expected.tobytes()


@pytest.mark.parametrize("name", TREES)
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("shape", SHAPES)
def test_the_bits_are_those_of_the_twin_on_the_cpu(name, dtype, shape):
    variant = registry.get("sum", name, "cupy")
    for n in LENGTHS:
        x = sample(n, dtype)
        assert same_bits(variant(on_device(x), **shape), twin("sum", name, x, **shape)), n


@pytest.mark.parametrize("name", ["ao", "spa"])
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_atomic_additions_add_every_element_once(name, dtype):
    """Integers, whose sums are exact in any order."""
    variant = registry.get("sum", name, "cupy")
    for n in LENGTHS:
        x = np.random.default_rng(n).integers(-9, 10, n).astype(dtype)
        assert same_bits(variant(on_device(x), block=64, items=3), x.sum())


NARROW = ["float16", "bfloat16"]


@pytest.mark.parametrize("name", TREES)
@pytest.mark.parametrize("dtype", NARROW)
def test_narrow_types_have_the_bits_of_the_twin(name, dtype):
    x = sample(4097, np.float32, decades=3).astype(getattr(ml_dtypes, dtype, np.float16))
    total = registry.get("sum", name, "cupy")(on_device(x.view(np.uint16)), dtype=dtype)
    assert same_bits(total, twin("sum", name, x))


@pytest.mark.parametrize("name", [*TREES, "spa", "ao", "cu"])
@pytest.mark.parametrize("dtype", NARROW)
def test_narrow_types_are_widened_to_float32_whether_they_come_as_numbers_or_as_bits(name, dtype):
    import ml_dtypes

    x = np.random.default_rng(3).integers(-9, 10, 1000).astype(getattr(ml_dtypes, dtype, np.float16))
    variant = registry.get("sum", name, "cupy")
    expected = x.astype(np.float32).sum()
    assert same_bits(variant(on_device(x.view(np.uint16)), dtype=dtype), expected)
    if dtype == "float16":
        assert same_bits(variant(on_device(x)), expected)


@pytest.mark.parametrize("name", [*TREES, "spa", "ao"])
@pytest.mark.parametrize(
    "x", [[np.inf, 1.0], [np.inf, -np.inf], [np.nan, 1.0], [1e308, 1e308], [-0.0] * 3, [5e-324] * 3]
)
def test_ieee_rules(name, x):
    x = np.array(x)
    with np.errstate(all="ignore"):
        total, expected = registry.get("sum", name, "cupy")(on_device(x)), 0.0 + x.sum()
    assert np.isnan(total) if np.isnan(expected) else same_bits(total, expected)


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_dot_products_have_the_bits_of_their_twin_and_atomic_ones_add_all_products(dtype):
    for n in LENGTHS:
        x, y = sample(n, dtype), sample(n, dtype, decades=2, seed=1)
        for shape in SHAPES:
            product = registry.get("dot", "sptr", "cupy")(on_device(x), on_device(y), **shape)
            assert same_bits(product, twin("dot", "sptr", x, y, **shape))
        whole = np.random.default_rng(n).integers(-9, 10, n).astype(dtype)
        for name in ("spa", "cu"):
            assert (
                registry.get("dot", name, "cupy")(on_device(whole), on_device(whole)) == (whole * whole).sum()
            )


def test_strided_and_misaligned_arrays_are_summed_like_their_copies():
    import cupy

    x = sample(5000)
    for view in (slice(None, None, 2), slice(None, None, -1), slice(7, None, 3)):
        assert same_bits(on_gpu("sum", "sptr", on_device(x)[view]), twin("sum", "sptr", x[view]))
    raw = cupy.zeros(8 * 100 + 1, cupy.uint8)
    raw[1:] = on_device(x[:100]).view(cupy.uint8)
    misaligned = raw[1:].view(cupy.float64)
    assert same_bits(on_gpu("sum", "sptr", misaligned), twin("sum", "sptr", x[:100]))
    assert same_bits(on_gpu("sum", "sptr", misaligned[::3]), twin("sum", "sptr", x[:100:3]))


@pytest.mark.parametrize(
    "call, message",
    [
        (
            lambda x: on_gpu("sum", "sptr", x.get()),
            r"sum 'sptr' \(cupy\): expected an array of CuPy.*cupy.asarray",
        ),
        (
            lambda x: on_gpu("sum", "binned", x.astype(np.int64)),
            r"sum 'binned' \(cupy\): cannot sum int64: convert it to one of",
        ),
        (
            lambda x: on_gpu("sum", "ao", x, dtype="bfloat16"),
            r"sum 'ao' \(cupy\): cannot sum float64 as bfloat16",
        ),
        (
            lambda x: on_gpu("sum", "exact", x.reshape(2, 50)),
            r"sum 'exact' \(cupy\): one dimension is expected.*\(2, 50\)",
        ),
        (
            lambda x: on_gpu("dot", "sptr", x, x[1:]),
            r"dot 'sptr' \(cupy\): the arrays have 100 and 99 elements",
        ),
        (lambda x: on_gpu("dot", "cu", x, x.astype(np.float32)), r"dot 'cu' \(cupy\): .*float32 and float64"),
        (lambda x: on_gpu("sum", "spa", x, block=48), "block 48: choose a power of two"),
    ],
)
def test_what_no_kernel_takes_is_refused(call, message):
    with pytest.raises((TypeError, ValueError), match=message):
        call(on_device(sample(100)))


def test_a_device_without_atomic_additions_of_float64_is_said_to_lack_them(monkeypatch):
    import cupy

    class Old:
        compute_capability = "52"

    monkeypatch.setattr(cupy.cuda.runtime, "is_hip", False)
    monkeypatch.setattr(cupy.cuda, "Device", Old)
    assert "5.2" in gpu.missing() and "6.0" in gpu.missing()
    with pytest.raises(registry.ChoiceError, match=r"sum 'spa' cannot run here: cupy: .*5\.2"):
        registry.get("sum", "spa", "cupy")
