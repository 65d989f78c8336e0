"""Sparse products on the device: bits, and bandwidth against a copy and against cuSPARSE."""

from statistics import median

import numpy as np

from benchmarks.gpu.timing import against, rounds
from benchmarks.kernels.spmv import box
from kernels import registry
from kernels.sparse import Csr, native

BOX = 160  # points along an edge: 1.3 GB of float64
RUNS = 10  # calls of a variant without a guarantee, to count its different results
VARIANTS = ("csr", "merge", "coo-atomic")


def spmv_rows(asked) -> list[dict]:
    """A row per variant and type, for the 27-point matrix of a box with random entries, so that orders change bits."""
    return [
        row
        for dtype in ("float64", "float32")
        for row in _rows(_matrix(8 if asked.quick else BOX, dtype), asked)
    ]


def _matrix(n: int, dtype: str) -> Csr:
    a = box(n, dtype)
    a.data[:] = np.random.default_rng(0).standard_normal(a.nnz)
    return a


def _rows(a: Csr, asked) -> list[dict]:
    import cupy as xp

    x = np.random.default_rng(1).standard_normal(a.columns).astype(a.dtype)
    products = {name: registry.get("spmv", name, "cupy")(a) for name in VARIANTS}
    on_device, y = xp.asarray(x), xp.zeros(a.m, a.dtype)
    calls = {name: (lambda product=product: product(on_device, y)) for name, product in products.items()}
    nbytes = products["csr"].nbytes
    half = xp.zeros(nbytes // 16), xp.zeros(nbytes // 16)
    calls["copy of as many bytes"] = lambda: xp.copyto(*half)
    times = rounds(calls | _cusparse(a, on_device), asked)
    return [
        {
            "what": f"spmv {a.m} rows, {a.nnz} entries, {a.dtype}, {name}",
            "check": _check(name, products[name], a, x) if name in products else "-",
            "ms": 1e3 * median(times[name]),
            "GB/s": nbytes / median(times[name]) / 1e9,
            "to csr": against(times, name, "csr"),
            "raw": times[name],
        }
        for name in times
    ]


def _check(name: str, product, a: Csr, x) -> str:
    import cupy as xp

    results, y = set(), xp.zeros(a.m, a.dtype)
    for _ in range(RUNS if name == "coo-atomic" else 3):
        product(xp.asarray(x), y)
        results.add(y.get().tobytes())
    if name == "coo-atomic":
        return f"{len(results)} results in {RUNS} runs"
    if len(results) > 1:
        return "FAIL repeats differ"
    if name == "merge":
        return "repeats agree"
    expected = np.zeros(a.m, a.dtype)
    native.csr(a)(x, expected)
    return "same bits" if results == {expected.tobytes()} else "FAIL bits differ"


def _cusparse(a: Csr, x) -> dict:
    """CuPy's product, which calls cuSPARSE and allocates its result."""
    try:
        import cupyx.scipy.sparse as sparse
    except ImportError:
        return {}
    import cupy as xp

    parts = (xp.asarray(a.data), xp.asarray(a.indices), xp.asarray(a.indptr.astype(np.int32)))
    matrix = sparse.csr_matrix(parts, shape=(a.m, a.columns))
    return {"cuSPARSE, by CuPy": lambda: matrix @ x}
