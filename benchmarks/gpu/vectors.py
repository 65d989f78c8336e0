"""Fused vector updates and dot products on the device: the bits of the CPU, and bandwidth against a copy.

The steps are those of an iteration of conjugate gradients. A thread block takes a logical block and has 64 threads for
any size, so blocks of few elements leave most threads idle.
"""

from statistics import median

import numpy as np

from benchmarks.gpu.timing import rounds
from benchmarks.kernels.vectors import ALPHA, BETA, DOTS, STEPS
from kernels.threads import cores
from kernels.vectors import backend

ELEMENTS = 1 << 24
BLOCKS = (4096, 64, 8)  # elements of a logical block; the first is that of a deck
NAMES = "puswxr"
PROGRAMS = {"fused": (STEPS, DOTS), "updates": (STEPS, ""), "dots": ("", DOTS)}


def vector_rows(asked) -> list[dict]:
    """A row per type, block size and program; without dot products the block size has no effect."""
    return [
        row
        for dtype in ("float64", "float32")
        for block in BLOCKS
        for row in _rows(3000 if asked.quick else ELEMENTS, block, dtype, asked)
    ]


def _rows(n: int, block: int, dtype: str, asked) -> list[dict]:
    import cupy as xp

    rng = np.random.default_rng(0)
    given = {name: rng.standard_normal(n, np.float32).astype(dtype) for name in NAMES}
    starts = np.append(np.arange(0, n, block), n)
    names = [name for name in PROGRAMS if name != "updates" or block == BLOCKS[0]]
    checks = {name: _check(given, name, starts) for name in names}
    vectors = {name: xp.asarray(array) for name, array in given.items()}
    planned = {name: _planned(backend("cupy"), vectors, name, starts) for name in names}
    calls = {name: call for name, (call, *_) in planned.items()}
    copied = planned[names[0]][1].nbytes
    half = xp.zeros(copied // 16), xp.zeros(copied // 16)
    calls["copy of as many bytes"] = lambda: xp.copyto(*half)
    times = rounds(calls, asked)
    copy = copied / median(times["copy of as many bytes"])
    rows = []
    for name in times:
        nbytes = planned[name][1].nbytes if name in planned else copied
        rate = nbytes / median(times[name])
        rows.append(
            {
                "what": f"{name} {n}, {dtype}, blocks of {block}",
                "check": checks.get(name, "-"),
                "ms": 1e3 * median(times[name]),
                "GB/s": 1e-9 * rate,
                "of copy": rate / copy,
                "raw": times[name],
            }
        )
    return rows


def _planned(module, vectors: dict, name: str, starts, threads: int = 1):
    """(call, fused program, its partial sums) for vectors of a backend."""
    steps, dots = PROGRAMS[name]
    fused = module.fuse(vectors, steps, dots, starts, threads)
    partials = module.xp.zeros(fused.shape) if dots else None
    scalars = dict(alpha=ALPHA, beta=BETA) if steps else {}
    return (lambda: fused(partials, **scalars)), fused, partials


def _check(given: dict, name: str, starts) -> str:
    results = []
    for module in (backend("cupy"), backend("native")):
        held = {key: module.xp.asarray(array.copy()) for key, array in given.items()}
        call, _, partials = _planned(module, held, name, starts, cores())
        call()
        results.append([array.tobytes() for array in (*held.values(), partials) if array is not None])
    return "same bits" if results[0] == results[1] else "FAIL bits differ"
