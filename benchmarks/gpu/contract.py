"""Products, convolutions and their gradients on the device: bits, and time against cuBLAS."""

from statistics import median

import numpy as np

from benchmarks.gpu.timing import against, rounds
from kernels import registry
from kernels.contract import conv, conv_input, conv_weight, matmul
from kernels.threads import cores

SHAPES = [("square", 4096, 4096, 4096), ("few rows", 32, 4096, 4096), ("long", 512, 16384, 512)]
CHECKED = 96  # rows of a large product that are compared with the CPU's


def contract_rows(asked) -> list[dict]:
    """A row per shape, type and variant, and one for a convolution and each of its gradients. Their times include the
    kernel, the padding, and the tables of offsets."""
    rows = []
    for dtype in ("float32", "float64"):
        for name, *sizes in SHAPES:
            rows += _product(name, dtype, *(n // 32 if asked.quick else n for n in sizes), asked)
        rows += _convolutions(dtype, 8 if asked.quick else 64, asked)
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


def _convolutions(dtype: str, side: int, asked) -> list[dict]:
    import cupy as xp

    x, w, gradient = (
        _normal(dtype, *shape) for shape in ((4, 32, side, side), (64, 32, 3, 3), (4, 64, side, side))
    )
    rows = []
    for call, operands, size in [
        (conv, (x, w), ()),
        (conv_input, (gradient, w), ((side, side),)),
        (conv_weight, (x, gradient), ((3, 3),)),
    ]:
        name = call.__name__
        own, on_device = registry.get(name, "own", "cupy"), [xp.asarray(array) for array in operands]

        def on_gpu(own=own, on_device=on_device, size=size):
            return own(*on_device, *size, padding=1)

        expected = call(*operands, *size, padding=1, threads=cores())
        same = on_gpu().get().tobytes() == expected.tobytes()
        times = rounds({"own": on_gpu}, asked)
        rows.append(
            {
                "what": f"{name} 3x3 (4, 32, {side}) to 64, {dtype}, own",
                "check": "bits of the CPU" if same else "FAIL: not the bits of the CPU",
                "ms": 1e3 * median(times["own"]),
                "GF/s": 2e-9 * gradient.size * 32 * 9 / median(times["own"]),
                "to own": "-",
                "raw": times["own"],
            }
        )
    return rows
