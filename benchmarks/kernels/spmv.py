"""Times sparse products by guarantee: every variant on this CPU against SciPy's and a loop that only reads.

    python -m benchmarks.kernels.spmv --json benchmarks/results/spmv.json
    python -m benchmarks.kernels.spmv --box 32 --rounds 2

The matrix is the 27-point stencil of a box in natural order, larger than the caches; further matrices are those of
../shared/data, if they exist. All variants of a matrix are called in turn, each round in another order. GB/s count the
fewest bytes to move: the matrix, x and y, each once. `of read`: the fraction of the bandwidth of a C++ loop that only
reads as many bytes, with the same threads in the same round. `to scipy`: the ratio of the time to that of SciPy's
csr_matvec, which has one thread. Each is the median with extremes over the rounds.
"""

from __future__ import annotations

import argparse
import os
from functools import partial
from pathlib import Path

import numpy as np

from benchmarks.harness.launching import ROOT
from benchmarks.harness.results import add_quiet, machine, report
from benchmarks.harness.turns import in_turn, ratio, timed
from kernels import _native, registry
from kernels.sparse import Csr

BOX = 104  # points along an edge: 360 MB of float64
REAL = ("bcsstk16", "bcsstk13")
LEFT_OUT = ("reference", "emulated", "cupy")  # backends
LEAST = 2e-3  # seconds of a sample, at least: calls are repeated


def main(argv=None) -> None:
    """Measures and reports."""
    asked = parsed(argv)
    matrices = {f"box {asked.box}^3": box(asked.box, asked.dtype)}
    matrices |= {path.stem: read(path, asked.dtype) for path in asked.matrices}
    rows = []
    for name, matrix in matrices.items():
        for threads in asked.threads:
            rows += [{"matrix": name} | row for row in compare(matrix, threads, asked.rounds, asked.quiet)]
    report(f"spmv of {asked.dtype}", rows, machine() | {"dtype": asked.dtype}, asked.json, ("raw", "calls"))


def parsed(argv):
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.kernels.spmv",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    cores = len(os.sched_getaffinity(0))
    parser.add_argument("--box", type=int, default=BOX, help="points along an edge (default %(default)s)")
    parser.add_argument(
        "--matrices", type=Path, nargs="*", default=real(), metavar="FILE.mtx", help="in Matrix Market format"
    )
    parser.add_argument("--dtype", default="float64", choices=("float64", "float32"))
    parser.add_argument(
        "--threads", type=int, nargs="+", default=sorted({1, cores}), help="(default %(default)s)"
    )
    parser.add_argument(
        "--rounds", type=int, default=15, help="rounds that count, after one (default %(default)s)"
    )
    parser.add_argument("--json", metavar="FILE", help="write table and raw values to this file")
    add_quiet(parser)
    return parser.parse_args(argv)


def real() -> list[Path]:
    """The real matrices in folders above the repository."""
    return [
        path
        for folder in ROOT.parents
        for name in REAL
        if (path := folder / "shared" / "data" / f"{name}.mtx").exists()
    ]


def box(n: int, dtype: str) -> Csr:
    """The 27-point matrix of n^3 points: 26 on the diagonal, -1 for each neighbour."""
    near = np.arange(n)[:, None] + np.arange(-1, 2)
    # Axes: z, y, x of a point, then z, y, x of its neighbour.
    z, y, x = (np.expand_dims(near, [k for k in range(6) if k not in (axis, 3 + axis)]) for axis in range(3))
    stored = (z >= 0) & (z < n) & (y >= 0) & (y < n) & (x >= 0) & (x < n)
    columns = np.broadcast_to(((z * n + y) * n + x).astype(np.int32), stored.shape)[stored]
    counts = stored.sum(axis=(3, 4, 5)).ravel()
    indptr = np.concatenate([[0], np.cumsum(counts)])
    data = np.where(columns == np.repeat(np.arange(n**3, dtype=np.int32), counts), 26.0, -1.0)
    return Csr(indptr, columns, data.astype(dtype), n**3)


def read(path: Path, dtype: str) -> Csr:
    """A matrix of Matrix Market, symmetric storage expanded."""
    from scipy.io import mmread

    a = mmread(path).tocsr()
    a.sort_indices()
    return Csr(a.indptr.astype(np.int64), a.indices.astype(np.int32), a.data.astype(dtype), a.shape[1])


def compare(matrix: Csr, threads: int, rounds: int, quiet: bool = False) -> list[dict]:
    """A row for every variant with that number of threads, SciPy's and reading included."""
    x = np.random.default_rng(0).standard_normal(matrix.columns).astype(matrix.dtype)
    y = np.zeros(matrix.m, matrix.dtype)
    planned = {
        v.name: (v, v(matrix, threads=threads))
        for v in registry.variants("spmv")
        if v.backend not in LEFT_OUT and not v.unavailable()
    }
    nbytes, flops = planned["csr"][1].nbytes, planned["csr"][1].flops
    as_many = np.ones(nbytes, np.uint8)
    calls = {"read": lambda: _native.read(as_many, threads)}
    calls |= {name: partial(product, x, y) for name, (_, product) in planned.items()}
    once = {name: min(timed(call, 1) for _ in range(2)) for name, call in calls.items()}
    repeats = {name: max(1, round(LEAST / once[name])) for name in calls}
    seconds = in_turn(
        {name: partial(timed, call, repeats[name]) for name, call in calls.items()}, rounds, quiet
    )
    return [
        {
            "variant": name,
            "guarantee": planned[name][0].guarantee if name in planned else "reads only",
            "threads": threads if name != "scipy" else 1,
            "MB": nbytes / 1e6,
            "GB/s": nbytes / float(np.median(times)) / 1e9,
            "GFLOP/s": flops / float(np.median(times)) / 1e9 if name in planned else 0.0,
            "of read": ratio(seconds["read"], times),
            "to scipy": ratio(times, seconds["scipy"]),
            "calls": repeats[name],
            "raw": times,
        }
        for name, times in seconds.items()
    ]


if __name__ == "__main__":
    main()
