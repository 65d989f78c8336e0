"""Predicts 64 ranks on 4 nodes from a calibration on 8 ranks, at two rates of the links.

The nodes are network namespaces that share the cores of this machine (docs/how-to/cluster.md), so 64 ranks take turns
on these. Waiting ranks sleep, in calibrations and targets: `tests/sched_yield.cpp` is preloaded. The orderings add
gradients of a megabyte, whose bytes between nodes wait for the links.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
from pathlib import Path

from benchmarks.harness.launching import ROOT
from benchmarks.predict.rounds import start
from jobs.cluster import Cluster, cluster
from jobs.cluster.errors import ClusterError
from kernels.progress import Progress

NODES = 4
LINKS = ("100mbit", "1gbit")
CALIBRATED = 2  # ranks of each node in a calibration
TARGETS = (2, 4, 16)  # ranks of each node
BUDGET_S = 20.0
SOURCES = 3  # launches on one rank of the deck and of half of it
ORDERING = "two-level"
MEASURED = ("two-level", "ring", "direct")  # by the calibration
APP = ("miniapps.training", "--data", "blobs", "--model", "mlp", "--set", "model.hidden=512", "--set",
       "training.micro=4", "--set", "training.bucket=524288", "--steps", "6", "--no-overlap", "--evaluate-every", "0",
       "--allreduce", ORDERING, "--no-progress")  # fmt: skip
BATCH, HALF = "256", "128"
REPEATS = 2  # in a launch: starting 64 ranks takes minutes
TIMEOUT_S = 600.0
CLOCKS = ("wall", "cpu")


def nodes(options) -> list[dict]:
    """A row for each clock, rate of the links and rank count: measured and predicted median, error, floor, bias, and
    the fraction of runs within the interval."""
    rows = []
    progress = Progress("predict", quiet=options.quiet)
    environment = {"OMP_NUM_THREADS": "1"} | asleep()
    with tempfile.TemporaryDirectory() as directory:
        root = Path(directory)
        sources = _sources(root)
        for k, link in enumerate(LINKS):
            progress.show(k / len(LINKS), f"links of {link}")
            with cluster(nodes=NODES, link=link, name="predict") as nodes_of_link:
                rows += of_link(nodes_of_link, link, root / link, sources, environment)
        progress.clear()
    return rows


def _sources(root: Path) -> list[str]:
    """Runs the deck and half of it on one rank, in turn; returns the directories."""
    paths = []
    for launch in range(SOURCES):
        for batch in (BATCH, HALF):
            paths.append(str(root / f"source-{batch}-{launch}"))
            start([*APP, "--batch", batch, "--out", paths[-1]], 1)
    return paths


def of_link(
    nodes: Cluster, link: str, scratch: Path, sources: list[str], environment: dict[str, str]
) -> list[dict]:
    """Calibrates, predicts, runs and scores with links of one rate; returns the rows."""
    scratch.mkdir()
    ledger, calibration = scratch / "predictions.jsonl", str(scratch / "calibration")
    ledger.touch()
    asked = [word for name in MEASURED for word in ("--reduction", name)]
    what = ["--what", "collectives", "--what", "noise", *asked, "--budget", str(BUDGET_S), "--no-progress"]
    job(nodes, ["miniapps.calibrate", *what, "--out", calibration], CALIBRATED, environment)
    ranks = ",".join(str(NODES * each) for each in TARGETS)
    for clock in CLOCKS:
        how = ["--calibration", calibration, "--ranks", ranks, "--clock", clock, "--ledger", str(ledger)]
        start(["analysis", "predict", *sources, *how])
    runs = []
    for each in TARGETS:
        runs.append(str(scratch / f"target-{NODES * each}"))
        more = ["--batch", BATCH, "--repeats", str(REPEATS), "--ledger", str(ledger), "--out", runs[-1]]
        job(nodes, [*APP, *more], each, environment)
    scored = json.loads(start(["analysis", "score", str(ledger), *sources, *runs, "--no-cache", "--json"]))
    return [_row(each, link) for each in scored["tables"]["targets"]]


def job(nodes: Cluster, words: list[str], ranks_per_node: int, environment: dict[str, str]) -> str:
    """The output of `python -m WORDS` on all nodes. Raises ClusterError if it fails."""
    command = [sys.executable, "-m", *words]
    with tempfile.TemporaryFile("w+", errors="replace") as output:
        ended = nodes.run(
            command,
            NODES * ranks_per_node,
            ranks_per_node,
            mpi="mpich",
            timeout=TIMEOUT_S,
            environment=environment,
            stdout=output,
            stderr=output,
            cwd=ROOT,
        )
        output.seek(0)
        printed = output.read()
    if ended.code:
        raise ClusterError(f"{' '.join(command)} ended with {ended.code}:\n{printed}")
    return printed


def asleep() -> dict[str, str]:
    """The environment in which waiting ranks sleep; raises RuntimeError if its library cannot be compiled."""
    from tests.launch import let_waiting_ranks_sleep

    before = os.environ.get("LD_PRELOAD")
    let_waiting_ranks_sleep()
    preloaded = os.environ.pop("LD_PRELOAD", "")
    if before is not None:
        os.environ["LD_PRELOAD"] = before
    if "sched_yield" not in preloaded:
        raise RuntimeError("tests/sched_yield.cpp was not compiled: give a C++ compiler, CXX=g++")
    return {"LD_PRELOAD": preloaded}


def _row(target: dict, link: str) -> dict:
    return {
        "part": "nodes",
        "what": f"{target['ranks']} ranks on {NODES} nodes, {link}, {target['clock']}",
        **{key: target[key] for key in ("median_s", "measured_s", "error", "floor", "bias")},
        "inside": target["inside"] / target["runs"],
        "runs": target["runs"],
        "best": int(target["best"] == "prediction"),
        "compared": int(target["best"] != ""),
        "targets": 1,
        "rounds": 1,
        "busy": int(os.getloadavg()[0] > 2 * (os.cpu_count() or 1)),
        "raw": target,
    }
