"""Times the vector part of an iteration of conjugate gradients: fused, step by step in NumPy, and exact dot products.

    python -m benchmarks.kernels.vectors --out benchmarks/results/vectors.json

Four updates and three dot products of six vectors (`STEPS`, `DOTS`), float64, blocks of 4096 elements. `of read`: the
bandwidth for the fewest bytes to move (`Fused.nbytes`: six vectors read, four written), as a fraction of that of a C++
loop that only reads, with the same threads in the same round. `to numpy`: the ratio of the time to that of NumPy's
operations in place. `exact dots`, `dots`: the three dot products alone. Medians with extremes over the rounds.
"""

import argparse
from functools import partial

import numpy as np

from benchmarks.harness.results import add_quiet, machine, report
from benchmarks.harness.turns import in_turn, ratio, timed
from kernels import _native, exact
from kernels.vectors import native

STEPS = "p = u + beta*p; s = w + beta*s; x = x + alpha*p; r = r - alpha*s"
DOTS = "r.u w.u r.r"
BLOCK = 4096
ALPHA, BETA = 1e-3, 0.5  # the vectors keep their size over any number of calls
LEAST = 5e-3  # seconds of a sample, at least


def main(argv=None) -> None:
    """Measures and prints the table."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.kernels.vectors", description=__doc__.splitlines()[0]
    )
    parser.add_argument("--sizes", type=int, nargs="+", default=[4096, 262_144, 8_000_000], help="elements")
    parser.add_argument(
        "--threads", type=int, nargs="+", default=[1], help="threads of the C++ kernels; NumPy has one"
    )
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--out", help="JSON file to write")
    add_quiet(parser)
    asked = parser.parse_args(argv)
    rows = [
        row
        for n in asked.sizes
        for threads in asked.threads
        for row in measured(n, threads, asked.rounds, asked.quiet)
    ]
    report("vector updates and dot products of an iteration", rows, machine(), asked.out)


def measured(n: int, threads: int, rounds: int, quiet: bool = False) -> list[dict]:
    """Rows of one size and number of threads."""
    rng = np.random.default_rng(0)
    vectors = {name: rng.standard_normal(n) for name in "puswxr"}
    starts = np.append(np.arange(0, n, BLOCK), n)
    partials, words = np.zeros((len(starts) - 1, 3)), exact.zeros(3)
    plan = partial(native.fuse, vectors, starts=starts, threads=threads)
    fused, updates, dots = plan(STEPS, DOTS), plan(STEPS), plan("", DOTS)
    pairs = [(vectors[a], vectors[b]) for a, b in (pair.split(".") for pair in DOTS.split())]
    memory = vectors["x"].view(np.uint8)
    calls = {
        "fused": (lambda: fused(partials, alpha=ALPHA, beta=BETA), fused.nbytes),
        "updates": (lambda: updates(alpha=ALPHA, beta=BETA), updates.nbytes),
        "dots": (lambda: dots(partials), dots.nbytes),
        "exact dots": (lambda: exact.add_many_products(words, pairs, threads), dots.nbytes),
        "numpy": (partial(by_numpy, np.empty(n), **vectors), fused.nbytes),
        "read": (lambda: _native.read(memory, threads), memory.nbytes),
    }
    repeats = {name: max(1, round(LEAST / timed(call, 1))) for name, (call, _) in calls.items()}
    seconds = in_turn({name: partial(timed, calls[name][0], repeats[name]) for name in calls}, rounds, quiet)
    speeds = {name: [calls[name][1] / s for s in of_name] for name, of_name in seconds.items()}
    return [
        {
            "call": name,
            "n": n,
            "threads": threads,
            "ns/element": float(np.median(of_name)) / n * 1e9,
            "GB/s": float(np.median(speeds[name])) / 1e9,
            "of read": ratio(speeds[name], speeds["read"]),
            "to numpy": ratio(of_name, seconds["numpy"]),
            "raw": of_name,
        }
        for name, of_name in seconds.items()
    ]


def by_numpy(scratch, p, u, s, w, x, r) -> list[float]:
    """The usual code without a fused kernel: operations in place, then BLAS."""
    for vector, added in ((p, u), (s, w)):
        np.multiply(vector, BETA, out=vector)
        np.add(vector, added, out=vector)
    np.multiply(p, ALPHA, out=scratch)
    np.add(x, scratch, out=x)
    np.multiply(s, ALPHA, out=scratch)
    np.subtract(r, scratch, out=r)
    return [np.dot(r, u), np.dot(w, u), np.dot(r, r)]


if __name__ == "__main__":
    main()
