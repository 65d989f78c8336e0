"""Times scatter-adds of PyTorch on the CPU, forward and backward: torch's, its deterministic mode, and `fpna.torch`.

    python -m benchmarks.kernels.torch_scatter --json benchmarks/results/torch-scatter.json

| operation | forward adds | backward adds |
|---|---|---|
| index_add, scatter_add, index_put | 10^7 float32 into 10^5 bins | nothing: it reads rows |
| index_select, gather | nothing: it reads 10^7 of 10^5 numbers | 10^7 float32 into 10^5 bins |
| rows | index_add of 10^5 rows of 64 into 10^4 bins | nothing |
| embedding | nothing | 10^5 rows of 64 into 10^4 |
| embedding_bag | the mean of 10 of 10^4 rows of 64, 10^4 times | 10^5 rows of 64 into 10^4 |
| mean, amax | 10^5 rows of 64, column by column | nothing: it divides |
| cumsum | the same, row by row | the same |

The index is int64 and uniform. All variants of an operation and a number of threads run once per round, in rotating
order. Ratios are within a round, to torch's default with as many threads. `forward` and `backward` are timed
separately, by a clock and in CPU time of all threads, which other programs disturb less. In all variants, torch and
NumPy allocate the results.
"""

from __future__ import annotations

import argparse
import time

import numpy as np
import torch

import fpna.torch
from benchmarks.harness.results import add_quiet, machine, report
from benchmarks.harness.turns import in_turn, ratio

ROWS = ("rows", "embedding", "embedding_bag", "mean", "amax", "cumsum")
OPERATIONS = ("index_add", "scatter_add", "index_put", "index_select", "gather", *ROWS)
BAG = 10  # rows of a bag
ORDERS = ("sorted", "exact")
DEFAULT, DETERMINISTIC = "torch", "torch deterministic"


def main(argv=None) -> None:
    """Measures and reports."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.kernels.torch_scatter",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "--operations",
        nargs="+",
        choices=OPERATIONS,
        default=OPERATIONS,
        metavar="NAME",
        help=", ".join(OPERATIONS),
    )
    parser.add_argument("--threads", nargs="+", type=int, default=[1, 2], help="(default: 1 2)")
    parser.add_argument("--rounds", type=int, default=7, help="rounds that count (default %(default)s)")
    parser.add_argument("--shrink", type=int, default=1, help="divide the numbers of elements by this")
    parser.add_argument("--json", help="write table and raw values to this file")
    add_quiet(parser)
    asked = parser.parse_args(argv)
    where, rows = machine(), []
    for name in asked.operations:
        for threads in asked.threads:
            torch.set_num_threads(threads)
            rows += compare(name, threads, asked.rounds, asked.shrink, asked.quiet)
    report("fpna.torch", rows, where, asked.json)


def compare(name: str, threads: int, rounds: int, shrink: int, quiet: bool = False) -> list[dict]:
    """A row for every variant and direction."""
    runs = {DEFAULT: timed(name, torch_call(name), shrink), DETERMINISTIC: deterministic(name, shrink)}
    runs |= {order: timed(name, our_call(name, order), shrink) for order in ORDERS}
    times = in_turn(runs, rounds, quiet)
    return [
        {
            "operation": name,
            "threads": threads,
            "direction": direction,
            "variant": variant,
            "ms": min(pair[k][0] for pair in pairs) * 1e3,
            "to torch": ratio([pair[k][0] for pair in pairs], [pair[k][0] for pair in times[DEFAULT]]),
            "cpu ms": min(pair[k][1] for pair in pairs) * 1e3,
            "cpu to torch": ratio([pair[k][1] for pair in pairs], [pair[k][1] for pair in times[DEFAULT]]),
            "raw": [pair[k] for pair in pairs],
        }
        for k, direction in enumerate(("forward", "backward"))
        for variant, pairs in times.items()
    ]


def torch_call(name: str):
    """The operation of torch, as a function of (table, index, rows)."""
    return {
        "index_add": lambda table, index, rows: torch.index_add(table, 0, index, rows),
        "rows": lambda table, index, rows: torch.index_add(table, 0, index, rows),
        "scatter_add": lambda table, index, rows: torch.scatter_add(table, 0, index, rows),
        "index_put": lambda table, index, rows: torch.index_put(table, (index,), rows, accumulate=True),
        "index_select": lambda table, index, rows: torch.index_select(table, 0, index),
        "gather": lambda table, index, rows: torch.gather(table, 0, index),
        "embedding": lambda table, index, rows: torch.nn.functional.embedding(index, table),
        "embedding_bag": lambda table, index, rows: torch.nn.functional.embedding_bag(
            index.view(-1, BAG), table
        ),
        "mean": lambda table, index, rows: torch.mean(rows, 0),
        "amax": lambda table, index, rows: torch.amax(rows, 0),
        "cumsum": lambda table, index, rows: torch.cumsum(rows, 0),
    }[name]


def our_call(name: str, order: str):
    """The operation of fpna.torch in an order, as a function of (table, index, rows)."""
    own = fpna.torch
    return {
        "index_add": lambda table, index, rows: own.index_add(table, 0, index, rows, order=order),
        "rows": lambda table, index, rows: own.index_add(table, 0, index, rows, order=order),
        "scatter_add": lambda table, index, rows: own.scatter_add(table, 0, index, rows, order=order),
        "index_put": lambda table, index, rows: own.index_put(table, (index,), rows, order=order),
        "index_select": lambda table, index, rows: own.index_select(table, 0, index, order=order),
        "gather": lambda table, index, rows: own.gather(table, 0, index, order=order),
        "embedding": lambda table, index, rows: own.embedding(index, table, order=order),
        "embedding_bag": lambda table, index, rows: own.embedding_bag(
            index.view(-1, BAG), table, order=order
        ),
        "mean": lambda table, index, rows: own.mean(rows, 0, order=order),
        "amax": lambda table, index, rows: own.amax(rows, 0, order=order),
        "cumsum": lambda table, index, rows: own.cumsum(rows, 0, order=order),
    }[name]


def timed(name: str, call, shrink: int):
    """A function that runs one forward and one backward pass, and returns [wall, CPU] seconds of each."""
    random = torch.Generator().manual_seed(0)
    of_rows = name in ROWS
    n, bins = (100_000, 10_000) if of_rows else (10_000_000, 100_000)
    n, columns = n // shrink, (64,) if of_rows else ()
    table = torch.randn(bins, *columns, generator=random, requires_grad=True)
    index = torch.randint(0, bins, (n,), generator=random)
    rows = torch.randn(n, *columns, generator=random, requires_grad=True)
    grad = torch.randn_like(call(table, index, rows))

    def run() -> list[list[float]]:
        table.grad = rows.grad = None
        begin = now()
        out = call(table, index, rows)
        between = now()
        out.backward(grad)
        end = now()
        return [(between - begin).tolist(), (end - between).tolist()]

    return run


def now() -> np.ndarray:
    """Seconds of a clock, and CPU seconds of all threads."""
    return np.array([time.perf_counter(), time.process_time()])


def deterministic(name: str, shrink: int):
    """torch's call under torch.use_deterministic_algorithms."""
    run = timed(name, torch_call(name), shrink)

    def chosen() -> list[list[float]]:
        torch.use_deterministic_algorithms(True)
        try:
            return run()
        finally:
            torch.use_deterministic_algorithms(False)

    return chosen


if __name__ == "__main__":
    main()
