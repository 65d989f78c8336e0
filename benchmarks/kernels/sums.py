"""Times sums by guarantee: every variant on this CPU against NumPy's, torch's and a loop that only reads.

    python -m benchmarks.kernels.sums --out benchmarks/results/sums.json
    python -m benchmarks.kernels.sums --quick

Sizes go from half of the first cache to 16 times the last. For each size and number of threads all variants are called
in turn, each round in another order. `of read`: the fraction of the bandwidth of a C++ loop that only reads the same
arrays with the same threads in the same round. `to library`: the ratio of the time to that of the faster of np.sum and
torch.sum (np.dot and torch.dot), round by round; np.sum has one thread. Each is the median with extremes over the
rounds. `numbers.py` has the distributions of numbers.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
from functools import partial
from pathlib import Path

import ml_dtypes
import numpy as np

from benchmarks.harness.results import add_quiet, machine, report, save
from benchmarks.harness.turns import in_turn, ratio, timed
from benchmarks.kernels.numbers import DISTRIBUTIONS, numbers
from kernels import _native, registry
from kernels.guarantees import LEVELS
from kernels.sums.elements import ACCUMULATORS

CACHES = Path("/sys/devices/system/cpu/cpu0/cache")
LIBRARY = "library"  # in place of a guarantee
LEAST = 2e-3  # seconds of a sample, at least: calls are repeated
TABLES = {"sum": 1, "dot": 2}  # {operation: number of arrays}


def main(argv=None) -> None:
    """Measures in one process per number of threads, since libraries read theirs from the environment at start."""
    asked = parsed(argv)
    if asked.rows:
        Path(asked.rows).write_text(json.dumps(measured(asked, asked.threads[0])))
        return
    rows = [row for threads in asked.threads for row in in_process(asked, threads)]
    where = machine() | {
        "caches": {f"L{k + 1}": size for k, size in enumerate(caches())},
        "dtype": asked.dtype,
    }
    for operation in asked.operations:
        shown = [
            {k: v for k, v in row.items() if k != "operation"}
            for row in rows
            if row["operation"] == operation
        ]
        report(f"{operation} of {asked.dtype}", shown, where, None, hidden=("raw", "calls"))
    if asked.out:
        save({"title": "sums", "machine": where, "rows": rows}, asked.out)


def parsed(argv):
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.kernels.sums",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    cores = len(os.sched_getaffinity(0))
    parser.add_argument("--sizes", type=int, nargs="+", help="elements (default: by the caches, see above)")
    parser.add_argument(
        "--threads",
        type=int,
        nargs="+",
        default=sorted({1, cores}),
        help="numbers of threads (default %(default)s)",
    )
    parser.add_argument("--dtype", default="float64", choices=list(ACCUMULATORS))
    parser.add_argument(
        "--distributions",
        nargs="+",
        default=["normal", "wide"],
        choices=DISTRIBUTIONS,
        help=f"of {', '.join(DISTRIBUTIONS)} (default: normal wide)",
        metavar="NAME",
    )
    parser.add_argument("--operations", nargs="+", default=list(TABLES), choices=list(TABLES))
    parser.add_argument("--variants", nargs="+", help="only these variants")
    parser.add_argument(
        "--rounds", type=int, default=15, help="rounds that count, after one (default %(default)s)"
    )
    parser.add_argument(
        "--patience", type=float, default=1.0, help="variants that take more seconds per call are left out"
    )
    parser.add_argument("--quick", action="store_true", help="three rounds, to four times the second cache")
    parser.add_argument("--out", metavar="FILE.json", help="write table and raw values to this file")
    parser.add_argument("--rows", help=argparse.SUPPRESS)
    add_quiet(parser)
    asked = parser.parse_args(argv)
    if asked.quick:
        asked.rounds, asked.patience = 3, 0.02
    if not asked.sizes:
        asked.sizes = sizes(caches(), np.dtype(asked.dtype).itemsize, asked.quick)
    return asked


def caches() -> list[int]:
    """Bytes of the data caches that the first core sees, from the first level to the last."""
    by_level = {}
    for cache in sorted(CACHES.glob("index*")):
        if (cache / "type").read_text().strip() != "Instruction":
            size = (cache / "size").read_text().strip()
            by_level[int((cache / "level").read_text())] = (
                int(size[:-1]) * {"K": 1 << 10, "M": 1 << 20}[size[-1]]
            )
    if not by_level:
        raise SystemExit(f"{CACHES} has no sizes of caches: choose --sizes")
    return [by_level[level] for level in sorted(by_level)]


def sizes(by_level: list[int], itemsize: int, quick: bool) -> list[int]:
    """Half of each cache, then 4 and 16 times the last; `quick`: half of the first two, and 4 times the second."""
    if quick:
        return [by_level[0] // 2 // itemsize, by_level[1] // 2 // itemsize, 4 * by_level[1] // itemsize]
    return [size // 2 // itemsize for size in by_level] + [k * by_level[-1] // itemsize for k in (4, 16)]


def in_process(asked, threads: int) -> list[dict]:
    """`measured` in a new process whose libraries have that many threads."""
    with tempfile.TemporaryDirectory() as scratch:
        path = Path(scratch) / "rows.json"
        command = [
            sys.executable,
            "-m",
            "benchmarks.kernels.sums",
            "--rows",
            str(path),
            "--threads",
            str(threads),
        ]
        command += ["--dtype", asked.dtype, "--rounds", str(asked.rounds), "--patience", str(asked.patience)]
        command += ["--sizes", *map(str, asked.sizes), "--operations", *asked.operations]
        command += ["--distributions", *asked.distributions]
        command += ["--variants", *asked.variants] if asked.variants else []
        command += ["--quiet"] * asked.quiet
        names = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")
        subprocess.run(command, check=True, env=os.environ | dict.fromkeys(names, str(threads)))
        return json.loads(path.read_text())


def measured(asked, threads: int) -> list[dict]:
    """Rows of all operations and sizes with that number of threads."""
    rng = np.random.default_rng(0)
    rows = []
    for operation in asked.operations:
        for n in asked.sizes:
            for distribution in asked.distributions:
                factors = [numbers(distribution, n, asked.dtype, rng) for _ in range(TABLES[operation])]
                rows += [
                    {"numbers": distribution} | row for row in of_one_size(operation, factors, threads, asked)
                ]
    return rows


def of_one_size(operation: str, factors: list[np.ndarray], threads: int, asked) -> list[dict]:
    """Rows of one operation on the same arrays."""
    calls = {"read": (reading(factors, threads), "reads only")} | libraries(operation, factors, threads)
    for name, guarantee, call in variants(operation, factors, threads):
        if not asked.variants or name in asked.variants:
            calls[name] = (call, guarantee)
    once = {name: min(timed(call, 1) for _ in range(3)) for name, (call, _) in calls.items()}
    kept = [name for name in calls if once[name] <= asked.patience or calls[name][1] not in LEVELS]
    repeats = {name: max(1, round(LEAST / once[name])) for name in kept}
    seconds = in_turn(
        {name: partial(timed, calls[name][0], repeats[name]) for name in kept}, asked.rounds, asked.quiet
    )
    peers = [name for name in seconds if calls[name][1] == LIBRARY]
    faster = min(peers, key=lambda name: np.median(seconds[name]))
    n, nbytes = len(factors[0]), sum(x.nbytes for x in factors)
    return [
        {
            "operation": operation,
            "variant": name,
            "guarantee": calls[name][1],
            "n": n,
            "threads": threads,
            "ns/element": float(np.median(times)) / n * 1e9,
            "GB/s": nbytes / float(np.median(times)) / 1e9,
            "of read": ratio(seconds["read"], times),
            "to library": ratio(times, seconds[faster]),
            "library": faster,
            "calls": repeats[name],
            "raw": times,
        }
        for name, times in seconds.items()
    ]


def reading(factors, threads: int):
    """Reads the arrays one after the other."""

    def read():
        for x in factors:
            _native.read(x.view(np.uint8), threads)

    return read


def libraries(operation: str, factors, threads: int) -> dict:
    """The plain calls of NumPy and torch."""
    calls = {}
    if factors[0].dtype != ml_dtypes.bfloat16:  # NumPy has no loops for it
        calls[f"numpy.{operation}"] = (partial(getattr(np, operation), *factors), LIBRARY)
    try:
        import torch
    except ImportError:
        return calls
    torch.set_num_threads(threads)
    if factors[0].dtype == ml_dtypes.bfloat16:
        tensors = [torch.from_numpy(x.view(np.int16)).view(torch.bfloat16) for x in factors]
    else:
        tensors = [torch.from_numpy(x) for x in factors]
    calls[f"torch.{operation}"] = (partial(getattr(torch, operation), *tensors), LIBRARY)
    return calls


def variants(operation: str, factors, threads: int):
    """Yields (name, guarantee, call) of the variants in C++, with `threads` if they take it."""
    for variant in registry.variants(operation):
        if variant.backend == "native" and variant.unavailable() is None:
            arguments = {"threads": threads} if "threads" in variant.parameters else {}
            yield variant.name, variant.guarantee, partial(variant.function, *factors, **arguments)


if __name__ == "__main__":
    main()
