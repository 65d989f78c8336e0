"""Times scatter-adds on the CPU: every variant, with one thread and with all cores, against atomics.

    python -m benchmarks.kernels.scatter --json benchmarks/results/scatter.json

All variants of a case run once per round, in rotating order. Ratios are within a round, to `atomic` with all cores
(above 1: slower). More than one column means rows; `ns` is per added number. Indices are uniform, from Zipf's law
(exponent 1.2), all in one bin, or ascending; `numbers.py` has the distributions of numbers.
"""

from __future__ import annotations

import argparse
import os
import time

import numpy as np

import kernels.scatter  # noqa: F401 - registers its variants
from benchmarks.harness.results import add_quiet, machine, report
from benchmarks.harness.turns import in_turn, ratio
from benchmarks.kernels.numbers import DISTRIBUTIONS, numbers
from kernels import registry

CASES = [  # name, n, columns, bins, type, distribution of the index
    ("1e2", 10_000_000, 1, 100, "float32", "uniform"),
    ("1e4", 10_000_000, 1, 10_000, "float32", "uniform"),
    ("1e5", 10_000_000, 1, 100_000, "float32", "uniform"),
    ("1e6", 10_000_000, 1, 1_000_000, "float32", "uniform"),
    ("1e5-float64", 10_000_000, 1, 100_000, "float64", "uniform"),
    ("rows", 1_000_000, 16, 100_000, "float32", "uniform"),
    ("zipf", 10_000_000, 1, 100_000, "float32", "zipf"),
    ("one", 10_000_000, 1, 100_000, "float32", "one"),
    ("ascending", 10_000_000, 1, 100_000, "float32", "ascending"),
]
LEFT_OUT = ("emulated", "cupy")  # backends


def main(argv=None) -> None:
    """Measures and reports."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.kernels.scatter",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    names = [case[0] for case in CASES]
    parser.add_argument(
        "--cases", nargs="+", choices=names, default=names, metavar="CASE", help=", ".join(names)
    )
    parser.add_argument(
        "--distributions",
        nargs="+",
        default=["normal"],
        choices=DISTRIBUTIONS,
        help=f"of {', '.join(DISTRIBUTIONS)} (default: normal)",
        metavar="NAME",
    )
    parser.add_argument("--rounds", type=int, default=7, help="rounds that count (default %(default)s)")
    parser.add_argument("--shrink", type=int, default=1, help="divide the numbers of elements by this")
    parser.add_argument("--json", help="write table and raw values to this file")
    add_quiet(parser)
    asked = parser.parse_args(argv)
    cores = len(os.sched_getaffinity(0))
    rows = []
    for name, n, columns, bins, dtype, spread in CASES:
        if name in asked.cases:
            for distribution in asked.distributions:
                case = (n // asked.shrink, columns, bins, dtype, spread, distribution)
                comparison = compare(*case, cores, asked.rounds, asked.quiet)
                rows += [{"case": name, "numbers": distribution} | row for row in comparison]
    report("scatter_add", rows, machine(), asked.json)


def compare(n, columns, bins, dtype, spread, distribution, cores, rounds, quiet=False) -> list[dict]:
    """A row for every variant and number of threads."""
    rng = np.random.default_rng(0)
    x = numbers(distribution, n * columns, dtype, rng).reshape((n, columns)[: 2 if columns > 1 else 1])
    index = spread_over(bins, n, spread, rng).astype(np.int32)
    runs = {}
    for v in registry.variants("scatter_add"):
        if v.backend in LEFT_OUT or v.unavailable():
            continue
        for threads in sorted({1, cores}) if "threads" in v.parameters else [1]:
            options = {"threads": threads} if "threads" in v.parameters else {}
            runs[v.name, threads] = timed(v, x, index, bins, options)
    times = in_turn(runs, rounds, quiet)
    atomics = times["atomic", cores]
    return [
        {
            "variant": name,
            "threads": threads,
            "ns": min(seconds) / x.size * 1e9,
            "to atomic": ratio(seconds, atomics),
            "raw": seconds,
        }
        for (name, threads), seconds in times.items()
    ]


def spread_over(bins: int, n: int, how: str, rng: np.random.Generator) -> np.ndarray:
    """n indices of `bins` bins, distributed as `how` says."""
    if how == "zipf":
        return (rng.zipf(1.2, n) - 1) % bins
    if how == "one":
        return np.full(n, bins // 2)
    if how == "ascending":
        return np.arange(n) * bins // n
    return rng.integers(0, bins, n)


def timed(variant, x, index, bins, options):
    """A function that runs the variant once and returns its seconds."""

    def run() -> float:
        begin = time.perf_counter()
        variant(x, index, bins, **options)
        return time.perf_counter() - begin

    return run


if __name__ == "__main__":
    main()
