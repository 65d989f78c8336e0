"""Measures how GraphSAGE on Cora varies with the seed of the initial weights, and with orders of addition at one seed.

    python -m benchmarks.apps.graphsage --hidden 256 1024 --json benchmarks/results/graphsage.json

Deck graphsage on one rank and one thread. `seeds`: one order (sorted), initial weights of several seeds. `D, ND` means
deterministic training (sorted) and nondeterministic inference, at one seed of initial weights. A nondeterministic part
adds in orders of arrival from a seed per run (emulated). The last part repeats `ND, ND` with normalised features.

Rows compare with the first run of the part. V_c is the fraction of weights, or of outputs (log-probabilities of 2,708
nodes), with different bits, V_ermv the mean of |a - b| / |a|, both as the median over runs; `to D, D` compares with the
first deterministic run. `distinct` counts results; `changed` is the largest number of different predictions of all
nodes. `bound`: the 95 % upper bound on the probability of other outputs in a run, if all runs have the same bits.
"""

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from statistics import mean, median, stdev

import h5py
import numpy as np

from benchmarks.harness.launching import ROOT
from benchmarks.harness.results import add_quiet, machine, report
from kernels import bits
from kernels.progress import Progress
from miniapps.trace import read
from miniapps.trace.records import DECISION
from miniapps.training.graphs import cora
from miniapps.training.models import graphsage

FEATURES = cora.WORDS
FIXED, DRAWN = "sorted", "emulated"
DETERMINISTIC = "D, D"
# {part: (the seed that is varied, order of training, of inference, features)}
PARTS = {
    "seeds": ("seeds.init", FIXED, FIXED, "raw"),
    DETERMINISTIC: ("seeds.order", FIXED, FIXED, "raw"),
    "D, ND": ("seeds.order", FIXED, DRAWN, "raw"),
    "ND, D": ("seeds.order", DRAWN, FIXED, "raw"),
    "ND, ND": ("seeds.order", DRAWN, DRAWN, "raw"),
    "ND, ND, features normalised": ("seeds.order", DRAWN, DRAWN, "normalised"),
}


@dataclass(frozen=True)
class Run:
    """The results of a run: `weights` float32 (n,), `outputs` float64 (nodes x classes,), `predictions` (nodes,)."""

    accuracy: float
    weights: np.ndarray
    outputs: np.ndarray
    predictions: np.ndarray


def main(argv=None) -> None:
    """Measures and reports."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.apps.graphsage",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--runs", type=int, default=20, help="runs of each part (default %(default)s)")
    parser.add_argument("--at-once", type=int, default=2, help="runs at the same time (default %(default)s)")
    parser.add_argument("--hidden", type=int, nargs="+", default=[256], help="widths (default: 256)")
    parser.add_argument(
        "--part",
        action="append",
        choices=list(PARTS),
        help="only this part; may be given again (default: all)",
    )
    parser.add_argument("--json", help="write table and raw values to this file")
    add_quiet(parser)
    asked = parser.parse_args(argv)
    where, rows = machine(), []
    chosen_parts = {name: part for name, part in PARTS.items() if name in (asked.part or PARTS)}
    progress, parts = Progress("benchmark", quiet=asked.quiet), len(asked.hidden) * len(chosen_parts)
    with tempfile.TemporaryDirectory() as folder, ThreadPoolExecutor(asked.at_once) as pool:
        for hidden in asked.hidden:
            reference = None
            for name, (seed, training, inference, features) in chosen_parts.items():
                progress.show(len(rows) / parts, f"hidden {hidden}, {name}")
                chosen = (
                    f"model.hidden={hidden}",
                    f"data.features={features}",
                    f"model.aggregate={training}",
                    f"model.aggregate_inference={inference}",
                )
                jobs = [
                    pool.submit(run, Path(folder) / str(k), (*chosen, f"{seed}={k}"))
                    for k in range(1, asked.runs + 1)
                ]
                runs = [job.result() for job in jobs]
                if name == DETERMINISTIC:
                    reference = runs[0]
                alike = reference if seed == "seeds.order" and features == "raw" else None
                rows.append({"part": name, "hidden": hidden, "runs": len(runs), **compared(runs, alike)})
    progress.clear()
    report("apps.graphsage", rows, where, asked.json)


def run(out: Path, chosen: tuple[str, ...]) -> Run:
    """Runs the deck with the options `chosen`, and deletes its files."""
    command = [
        sys.executable,
        "-m",
        "miniapps.training",
        "--deck",
        "graphsage",
        "--quiet",
    ]
    command += ["--guarantee", "layout", "--checkpoint-every", "10", "--evaluate-every", "0"]
    command += ["--set", "evaluation.outputs=all", "--out", str(out)]
    command += [part for option in chosen for part in ("--set", option)]
    ended = subprocess.run(
        command, cwd=ROOT, env=os.environ | {"OMP_NUM_THREADS": "1"}, capture_output=True, text=True
    )
    if ended.returncode:
        raise RuntimeError(f"{' '.join(command)} ended with {ended.returncode}:\n{ended.stderr}")
    (accuracy,) = (
        float(line.partition("=")[2])
        for line in ended.stdout.splitlines()
        if line.startswith("FOM accuracy=")
    )
    with h5py.File(next((out / "checkpoints").iterdir())) as file:
        names = graphsage.MODEL.shapes(graphsage.Options(), FEATURES)
        weights = np.concatenate([file[f"weights.{name}"][...].reshape(-1) for name in names])
    trace = read(out / "rank-00000.h5")
    outputs, predictions = (recorded(trace, name) for name in ("outputs", f"{DECISION}class"))
    shutil.rmtree(out)
    return Run(accuracy, weights, outputs, predictions)


def recorded(trace, name: str) -> np.ndarray:
    """The values of that name, in the order of their blocks."""
    table = trace.tables["values"]
    own = table["name"] == trace.names.index(name)
    return table["value"][own][np.argsort(table["block"][own])]


def compared(runs: list[Run], reference: Run | None) -> dict:
    """The figures of a part; `reference`: the deterministic run to compare with, or None."""
    accuracies = [each.accuracy for each in runs]
    row = {"accuracy": mean(accuracies), "sd": stdev(accuracies)}
    for what in ("weights", "outputs"):
        arrays = [getattr(each, what) for each in runs]
        row[f"{what}, distinct"] = len({array.tobytes() for array in arrays})
        row |= distances(what, arrays[0], arrays[1:])
        to = {} if reference is None else distances(what, getattr(reference, what), arrays)
        for measure in ("V_c", "V_ermv"):
            row[f"{what}, {measure} to {DETERMINISTIC}"] = to.get(f"{what}, {measure}", "")
    predictions = [each.predictions for each in runs]
    row["predictions, distinct"] = len({array.tobytes() for array in predictions})
    row["changed"] = max(int((array != predictions[0]).sum()) for array in predictions)
    row["bound"] = bits.bound(len(runs)) if row["outputs, distinct"] == 1 else ""
    return row | {"raw": accuracies}


def distances(what: str, first: np.ndarray, others: list[np.ndarray]) -> dict[str, float | str]:
    """The medians of V_c and V_ermv of `others` against `first`; the text "inf", since JSON has no infinity, if a
    number is 0 only in `first`."""
    relative = median(float(bits.v_ermv(first, other)[0]) for other in others)
    return {
        f"{what}, V_c": median(float(bits.differ(first, other).mean()) for other in others),
        f"{what}, V_ermv": relative if np.isfinite(relative) else "inf",
    }


if __name__ == "__main__":
    main()
