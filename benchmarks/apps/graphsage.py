"""How far GraphSAGE on Cora varies: by the seed of the initial weights, and by the order of arrival at one seed.

    python -m benchmarks.apps.graphsage --data-dir DIR --json benchmarks/results/graphsage.json

Deck graphsage on one rank. `seeds`: one order (sorted), initial weights of several seeds. `orders`: one seed,
aggregation in as many orders of arrival drawn from seeds (`--aggregate emulated`), with features as they are and
normalised. Rows are against the first run of the part: V_c is the share of weights whose bits differ, V_ermv the mean
of |a - b| / |a| over weights that are not zero (both the median over runs), `changed` the most predictions, of all
nodes, that differ.
"""

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import h5py
import numpy as np

from benchmarks.harness.launching import ROOT
from benchmarks.harness.results import add_quiet, machine, report
from miniapps.training import config, data
from miniapps.training.models import graphsage

FEATURES = data.EDGE["cora"]
PARTS = {
    "seeds": ("seeds.init", "sorted", "raw"),
    "orders": ("seeds.order", "emulated", "raw"),
    "orders, features normalised": ("seeds.order", "emulated", "normalised"),
}


def main(argv=None) -> None:
    """Measure and report."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.apps.graphsage",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--data-dir", required=True, help="directory of cora.npz")
    parser.add_argument("--runs", type=int, default=6, help="of each part (default %(default)s)")
    parser.add_argument("--at-once", type=int, default=2, help="runs at the same time (default %(default)s)")
    parser.add_argument("--hidden", type=int, default=256, help="(default %(default)s)")
    parser.add_argument("--json", help="write table and raw values to this file")
    add_quiet(parser)
    asked = parser.parse_args(argv)
    where, rows = machine(), []
    with tempfile.TemporaryDirectory() as folder, ThreadPoolExecutor(asked.at_once) as pool:
        for name, (seed, aggregate, features) in PARTS.items():
            chosen = (
                f"model.hidden={asked.hidden}",
                f"data.features={features}",
                f"model.aggregate={aggregate}",
            )
            jobs = [
                pool.submit(run, Path(folder) / f"{name}-{k}", asked.data_dir, (*chosen, f"{seed}={k}"))
                for k in range(1, asked.runs + 1)
            ]
            runs = [job.result() for job in jobs]
            rows.append({"part": name, **compared(runs, asked.data_dir, features)})
    report("apps.graphsage", rows, where, asked.json)


def run(out: Path, data_dir: str, chosen: tuple[str, ...]) -> tuple[float, list[np.ndarray]]:
    """The accuracy of a run, and its weights."""
    command = [
        sys.executable,
        "-m",
        "miniapps.training",
        "--deck",
        "graphsage",
        "--data-dir",
        data_dir,
        "--quiet",
    ]
    command += ["--guarantee", "layout", "--checkpoint-every", "10", "--out", str(out)]
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
        return accuracy, [file[f"weights.{name}"][...] for name in graphsage.shapes(config.Model(), FEATURES)]


def compared(runs: list, data_dir: str, features: str) -> dict:
    """What a part came to."""
    accuracies = [accuracy for accuracy, _ in runs]
    first = np.concatenate([w.ravel() for w in runs[0][1]])
    differing, error = [], []
    for _, weights in runs[1:]:
        other = np.concatenate([w.ravel() for w in weights])
        differing.append(float((other.view(np.int32) != first.view(np.int32)).mean()))
        some = first != 0
        error.append(float((np.abs(other[some] - first[some], dtype=float) / np.abs(first[some])).mean()))
    classes = [predicted(weights, data_dir, features) for _, weights in runs]
    return {
        "accuracy": statistics.mean(accuracies),
        "sd": statistics.stdev(accuracies),
        "distinct": len({b"".join(w.tobytes() for w in weights) for _, weights in runs}),
        "V_c": float(np.median(differing)),
        "V_ermv": float(np.median(error)),
        "changed": max(int((c != classes[0]).sum()) for c in classes),
        "raw": accuracies,
    }


def predicted(weights: list[np.ndarray], data_dir: str, features: str) -> np.ndarray:
    """The class of every node."""
    import torch

    from miniapps.training.graph import GraphNetwork

    given = data.load("cora", data_dir, 0, features)
    nodes = np.arange(len(given.graph.features))
    network = GraphNetwork(graphsage.forward, weights, len(nodes), given.graph, "sorted", 0)
    with torch.inference_mode():
        return (
            graphsage.forward([torch.from_numpy(w) for w in weights], network.field(nodes)).argmax(1).numpy()
        )


if __name__ == "__main__":
    main()
