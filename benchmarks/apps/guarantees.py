"""Times what a guarantee costs: every level, for the benchmarks of applications; and `layout` for networks.

    python -m benchmarks.apps.guarantees --data-dir DIR --json benchmarks/results/guarantees.json

clock        on 2 ranks: ratio of the time per step under layout to that under none, in pairs of runs; of coupled with
             decks S and M, of training with decks S (MLP) and M (CNN) on Fashion-MNIST
processor    the same on 1 rank, in processor time, which leaves out waiting for a core
products     the products and convolutions of both networks of training, forward and backward, on one thread: ratio of
             4 micro-batches of 32 samples to one call of torch for 128, and the time of both; the MLP has chains of
             kernels.contract for all micro-batches at once, the CNN 4 calls of torch, as it had before it had chains
"""

import os
import time
from functools import partial
from itertools import pairwise
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks.harness.launching import launch
from benchmarks.harness.results import parts_parser, row, run_parts
from benchmarks.harness.turns import in_turn, ratio
from kernels.guarantees import LEVELS
from miniapps.trace import read, trace_files
from miniapps.trace.schema import CPU_TIME

TRAINING = ("--data", "fashion", "--evaluate-every", "0", "--until")
# {name: (application, arguments, where the number of steps follows)}
CASES = {
    "coupled, deck S": ("coupled", ("--deck", "S", "--steps"), 40),
    "coupled, deck M": ("coupled", ("--deck", "M", "--steps"), 6),
    "training, deck S (MLP)": ("training", ("--deck", "S", *TRAINING), 200),
    "training, deck M (CNN)": ("training", ("--deck", "M", *TRAINING), 20),
}


SAMPLES, MICRO = 128, 32  # of a rank, and of a micro-batch, with 2 ranks


def guarantee_costs(seconds, options, what: str) -> list[dict]:
    """A row for each guarantee: the ratio of its time to the time under none, round by round. `seconds(level)` makes a
    run; `options` are those of `run_parts`."""
    times = in_turn({level: partial(seconds, level) for level in LEVELS}, options.rounds, options.quiet)
    return [
        row("guarantee", f"{level} / none{what}", ratio(times[level], times["none"]), times[level])
        for level in LEVELS[1:]
    ]


def processor_time(out: Path) -> dict[str, float]:
    """`cpu_s` of all steps of all ranks of the run in `out`, by the clocks of their processes."""
    total = 0.0
    for path in trace_files(out):
        trace = read(path)
        used = trace.tables["usage"]
        total += used["value"][used["name"] == trace.names.index(CPU_TIME)].sum()
    return {"cpu_s": float(total)}


def milliseconds(case: str, ranks: int, options, level: str) -> float:
    """Milliseconds per step of a run of CASES on that many ranks; on one rank of processor time."""
    app, arguments, steps = CASES[case]
    given = (*arguments, str(steps), "--guarantee", level)
    if app == "training":
        given += ("--data-dir", options.data_dir)
    ended = launch(ranks, f"miniapps.{app}", given, look=processor_time)
    if ranks == 1:
        return 1e3 * ended["cpu_s"] / steps
    each = ended["fom"]["steps"]["value"]
    return 1e3 * (each if app == "coupled" else 1.0 / each)


def compared(ranks: int, part: str, options) -> list[dict]:
    """A row for each case, with the ratio of layout to none round by round."""
    rows = []
    for case in (case for case in CASES if options.case in case):
        load = os.getloadavg()[0]
        runs = {level: partial(milliseconds, case, ranks, options, level) for level in ("none", "layout")}
        times = in_turn(runs, options.rounds, options.quiet, f"{part}, {case}")
        row = {"part": part, "case": case, "ranks": ranks, "figure": ratio(times["layout"], times["none"])}
        row |= {f"{level}, ms": median(found) for level, found in times.items()} | {"load": load}
        rows.append(row | {"raw": times})
    return rows


def products(options) -> list[dict]:
    """A row for each network of training: its products for 4 micro-batches, as under layout, and for all samples."""
    import torch

    torch.set_num_threads(1)
    cnn = [*convolutions(), *dense(784, 64, 10)]
    found = {
        "training, deck S (MLP)": (dense(784, 128, 128, 10), chains(784, 128, 128, 10), [slice(SAMPLES)]),
        "training, deck M (CNN)": (cnn, cnn, [slice(k, k + MICRO) for k in range(0, SAMPLES, MICRO)]),
    }
    rows = []
    for case, (none, layout, pieces) in found.items():
        runs = {"none": partial(once, none, [slice(SAMPLES)]), "layout": partial(once, layout, pieces)}
        times = in_turn(runs, 20 * options.rounds, options.quiet, f"products, {case}")
        row = {"part": "products", "case": case, "ranks": 1}
        row["figure"] = ratio(times["layout"], times["none"])
        row |= {f"{level}, ms": 1e3 * min(times[level]) for level in runs}
        rows.append(row | {"load": os.getloadavg()[0], "raw": times})
    return rows


def once(calls: list[Any], pieces: list[slice]) -> float:
    """Seconds of all calls for all pieces of the samples."""
    begin = time.perf_counter()
    for call in calls:
        for piece in pieces:
            call(piece)
    return time.perf_counter() - begin


def chains(*widths: int) -> list[Any]:
    """As `dense`, by the chains of kernels.contract, with gradients of weights in blocks of micro-batches."""
    import numpy as np

    from kernels.contract.native import matmul

    rng, blocks = np.random.default_rng(1), [MICRO] * (SAMPLES // MICRO)
    calls: list[Any] = []
    for first, (n, m) in enumerate(pairwise(widths)):
        x, w, g = (rng.standard_normal(shape, np.float32) for shape in ((SAMPLES, n), (m, n), (SAMPLES, m)))
        y, of_x, of_w = (np.empty_like(like) for like in (g, x, w))
        calls.append(lambda some, x=x, w=w, y=y: matmul(x[some], w.T, y))
        calls.append(lambda some, x=x, g=g, of_w=of_w: matmul(g[some].T, x[some], of_w, blocks=blocks))
        if first:
            calls.append(lambda some, w=w, g=g, of_x=of_x: matmul(g[some], w, of_x))
    return calls


def dense(*widths: int) -> list[Any]:
    """Functions of a slice of the samples: the products of dense layers of these widths, forward
    and backward; the input needs no gradient."""
    import torch

    calls: list[Any] = []
    for first, (n, m) in enumerate(pairwise(widths)):
        x, w, b, g = (torch.randn(shape) for shape in ((SAMPLES, n), (m, n), (m,), (SAMPLES, m)))
        calls.append(lambda some, x=x, w=w, b=b: torch.addmm(b, x[some], w.t()))
        calls.append(lambda some, x=x, g=g: torch.mm(g[some].t(), x[some]))
        if first:
            calls.append(lambda some, w=w, g=g: torch.mm(g[some], w))
    return calls


def convolutions() -> list[Any]:
    """The same of the two convolutions of the CNN."""
    import torch

    calls: list[Any] = []
    for inputs, outputs, edge in ((1, 8, 28), (8, 16, 14)):
        shapes = (
            (SAMPLES, inputs, edge, edge),
            (outputs, inputs, 5, 5),
            (outputs,),
            (SAMPLES, outputs, edge, edge),
        )
        x, w, b, g = map(torch.randn, shapes)
        how = [outputs], [1, 1], [2, 2], [1, 1], False, [0, 0], 1, [inputs > 1, True, True]
        calls.append(lambda some, x=x, w=w, b=b: torch.conv2d(x[some], w, b, padding=2))
        calls.append(
            lambda some, x=x, w=w, g=g, how=how: torch.ops.aten.convolution_backward(
                g[some], x[some], w, *how
            )
        )
    return calls


PARTS = {
    "clock": partial(compared, 2, "clock"),
    "processor": partial(compared, 1, "processor"),
    "products": products,
}


def main(argv=None) -> None:
    """Measures the requested parts."""
    parser = parts_parser("apps.guarantees", __doc__, PARTS, rounds=7)
    parser.add_argument(
        "--data-dir", default="", help="directory of Fashion-MNIST, where it is not installed"
    )
    parser.add_argument(
        "--case", default="", help="only cases of clock and processor with this text in their name"
    )
    run_parts("guarantees", parser, PARTS, argv)


if __name__ == "__main__":
    main()
