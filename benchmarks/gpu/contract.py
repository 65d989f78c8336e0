"""Products and convolutions on the device: bits, and time against cuBLAS."""

from statistics import median

import numpy as np

from benchmarks.gpu.timing import against, rounds
from kernels import registry
from kernels.contract import conv, matmul

SHAPES = [("square", 4096, 4096, 4096), ("few rows", 32, 4096, 4096), ("long", 512, 16384, 512)]
CHECKED = 96  # rows of a large product that are compared with the CPU's


def contract_rows(asked) -> list[dict]:
    """One row per shape, type and variant; one for a convolution, whose time is that of the kernel and the padding."""
    rows = []
    for dtype in ("float32", "float64"):
        for name, *sizes in SHAPES:
            rows += _product(name, dtype, *(n // 32 if asked.quick else n for n in sizes), asked)
        rows.append(_convolution(dtype, 8 if asked.quick else 64, asked))
    return rows


def _normal(dtype: str, *shape: int) -> np.ndarray:
    return np.random.default_rng(0).standard_normal(shape, np.float32).astype(dtype)


def _product(name: str, dtype: str, m: int, k: int, n: int, asked) -> list[dict]:
    import cupy as xp

    a, b = _normal(dtype, m, k), _normal(dtype, k, n)
    left, right = xp.asarray(a), xp.asarray(b)
    own = registry.get("matmul", "own", "cupy")
    calls = {"own": lambda: own(left, right)}
    if hasattr(xp, "matmul"):  # the stand-in of the tests has no library
        calls["cuBLAS"] = lambda: xp.matmul(left, right)
    times = rounds(calls, asked)
    same = own(left, right).get()[:CHECKED].tobytes() == matmul(a[:CHECKED], b).tobytes()
    return [
        {
            "what": f"{name} ({m}, {k}, {n}), {dtype}, {variant}",
            "check": ("bits of the CPU" if same else "FAIL: not the bits of the CPU")
            if variant == "own"
            else "-",
            "ms": 1e3 * median(times[variant]),
            "GF/s": 2e-9 * m * k * n / median(times[variant]),
            "to own": against(times, variant, "own"),
            "raw": times[variant],
        }
        for variant in times
    ]


def _convolution(dtype: str, side: int, asked) -> dict:
    import cupy as xp

    x, w = _normal(dtype, 4, 32, side, side), _normal(dtype, 64, 32, 3, 3)
    images, weights = xp.asarray(x), xp.asarray(w)
    own = registry.get("conv", "own", "cupy")
    times = rounds({"own": lambda: own(images, weights, padding=1)}, asked)
    y = conv(x, w, padding=1)
    same = own(images, weights, padding=1).get().tobytes() == y.tobytes()
    return {
        "what": f"3x3 (4, 32, {side}) to 64, {dtype}, own",
        "check": "bits of the CPU" if same else "FAIL: not the bits of the CPU",
        "ms": 1e3 * median(times["own"]),
        "GF/s": 2e-9 * y.size * 32 * 9 / median(times["own"]),
        "to own": "-",
        "raw": times["own"],
    }
