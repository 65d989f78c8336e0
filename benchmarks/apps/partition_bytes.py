"""Bytes that cross between nodes in a step, by recipe, beside those that `explain` counts (root only).

    python -m benchmarks.apps.partition_bytes --json benchmarks/results/partition-bytes.json

Each recipe runs on a cluster of four network namespaces (docs/cluster.md) with one rank per node, under `layout`, so
that all that ranks send crosses between nodes. The kernel counts what leaves each interface; headers of packets are
subtracted, and so is what two readings of the counters send. What planned messages state (reshards, halos) stands
beside what `explain` counts of them.
"""

import argparse
import json
import sys

from benchmarks.harness.launching import LIBRARIES, on_nodes
from benchmarks.harness.results import add_quiet, machine, report
from jobs.cluster import Cluster, cluster
from jobs.cluster.errors import ClusterError

GPT = "samples=8,batch=8,tokens=32,width=64,feedforward=256"
CASES = {
    "dp": ("gpt", GPT, "data=4"),
    "tp": ("gpt", GPT, "model=4"),
    "dp+tp": ("gpt", GPT, "data=2,model=2"),
    "zero": ("gpt", GPT, "data=4"),
    "spatial": ("unet", "height=48,width=32,filters=8", "rows=2,columns=2"),
    "expert": ("moe", "tokens=64,width=64,hidden=128,capacity=32", "data=4"),
}
NODES = 4
LIMIT = 0.05  # of the bytes that are explained
TIMEOUT_S = 400.0
REDUCED = ("all-reduce", "reduce-scatter")


def measured(nodes: Cluster, recipe: str, steps: int, mpi: str = "mpich") -> dict:
    """The row of one recipe: bytes of a step, of all ranks."""
    model, sizes, mesh = CASES[recipe]
    words = [
        sys.executable,
        "-m",
        "benchmarks.apps.partition_bytes_steps",
        model,
        sizes,
        recipe,
        mesh,
        str(steps),
        "--quiet",
    ]
    found = json.loads(on_nodes(nodes, words, NODES, 1, mpi, TIMEOUT_S).splitlines()[-1])
    crossed, explained = sum(found["crossed"]), found["explained"]
    moved = sum(c["bytes"] for c in found["collectives"] if c["kind"] not in REDUCED)
    return {
        "what": recipe,
        "model": model,
        "mesh": mesh,
        "library": mpi,
        "explained": explained,
        "crossed": round(crossed),
        "ratio": crossed / explained,
        "met": "yes" if abs(crossed / explained - 1) <= LIMIT else "no",
        "explained, moved": moved,
        "planned messages": sum(found["planned"]),
        "raw": found["crossed"],
    }


def main(argv=None) -> int:
    """Measure; 0 where all recipes are within the limit, else 3."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.apps.partition_bytes",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "recipes", nargs="*", default=list(CASES), help=f"of {', '.join(CASES)}; default: all"
    )
    parser.add_argument("--steps", type=int, default=4, help="that are counted (default %(default)s)")
    parser.add_argument("--mpi", default="mpich", choices=LIBRARIES, help="(default %(default)s)")
    parser.add_argument("--json", help="write table and raw values to this file")
    add_quiet(parser)
    asked = parser.parse_args(argv)
    if unknown := set(asked.recipes) - set(CASES):
        parser.error(f"unknown recipe {', '.join(sorted(unknown))}; there are {', '.join(CASES)}")
    where = machine()
    try:
        with cluster(nodes=NODES) as nodes:
            rows = [measured(nodes, recipe, asked.steps, asked.mpi) for recipe in asked.recipes]
    except ClusterError as error:
        print(f"python -m benchmarks.apps.partition_bytes: {error}", file=sys.stderr)
        return 2
    report(f"bytes between {NODES} nodes in a step, a rank each", rows, where, asked.json)
    return 0 if all(row["met"] == "yes" for row in rows) else 3


if __name__ == "__main__":
    sys.exit(main())
