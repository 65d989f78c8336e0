"""Measures the figures over several nodes, on a temporary cluster of network namespaces (root only).

    python -m benchmarks.allreduce nodes --nodes 4 --ranks-per-node 2 --link 1gbit --json out.json

The nodes share the cores of this machine, and the kernel emulates their links (docs/how-to/cluster.md): times that wait
for a link's rate are meaningful, latencies are not those of real machines. Every launch is a separate job. The bound is
from bandwidth: with m nodes, 2 (m - 1) / m n bytes must leave every node at the rate of its link (Patarasuk, Yuan 2009,
theorem 1, with nodes as processes); headers, another 5 %, are not in the bound.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
from pathlib import Path

from benchmarks.allreduce.table import read, size_text
from benchmarks.allreduce.targets import MIB, row, spread
from benchmarks.harness.launching import LIBRARIES, ROOT
from benchmarks.harness.results import add_quiet, machine, report
from jobs.cluster import Cluster, cluster
from jobs.cluster.errors import ClusterError
from jobs.cluster.links import parse_rate

FIXED_ORDER = ("direct", "two-level", "ring", "rabenseifner", "block-tree")
EXACT = (
    "direct in exact",
    "two-level in exact over packed",
    "rabenseifner in exact over packed",
)
SCALARS = ("direct in exact", "two-level in exact")
LONG, SHORT = (MIB, 16 * MIB), (8, 64)
TIMEOUT = 1200.0  # seconds that a job may take


def main(argv: list[str]) -> int:
    """Launches jobs on a cluster and prints measured ratios beside their limits; returns 0 if all hold, else 3."""
    asked = parser().parse_args(argv)
    libraries = LIBRARIES if asked.mpi == "both" else (asked.mpi,)
    where, rows = machine(), []
    try:
        with cluster(nodes=asked.nodes, link=asked.link) as nodes:
            for mpi in libraries:
                rows += of_library(nodes, mpi, asked)
    except ClusterError as error:
        print(f"python -m benchmarks.allreduce nodes: {error}", file=sys.stderr)
        return 2
    title = f"all-reduce over {asked.nodes} nodes of {asked.ranks_per_node} ranks, {asked.link} each"
    report(title, rows, where, asked.json)
    missed = sum(one["met"] != "yes" for one in rows)
    print(
        """Runs the jobs on a cluster and prints measured ratios beside their limits; returns 0 if all hold, else 3."""
    )
    return 3 if missed else 0


def parser() -> argparse.ArgumentParser:
    command_line = argparse.ArgumentParser(
        prog="python -m benchmarks.allreduce nodes",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add = command_line.add_argument
    add("--nodes", type=int, default=4, help="default: %(default)s")
    add("--ranks-per-node", type=int, default=2, help="default: %(default)s")
    add("--link", default="1gbit", help="rate of every node's port (default: %(default)s)")
    add("--mpi", default="both", choices=(*LIBRARIES, "both"), help="default: %(default)s")
    add("--launches", type=int, default=3, help="of each job (default: %(default)s)")
    add("--seconds", type=float, default=3.0, help="for each cell in a launch (default: %(default)s)")
    add("--json", metavar="FILE", help="write table and ratios of all launches to this file")
    add_quiet(command_line)
    return command_line


def of_library(nodes: Cluster, mpi: str, asked: argparse.Namespace) -> list[dict]:
    """The rows of one MPI library."""
    ranks = asked.nodes * asked.ranks_per_node
    long = [job(nodes, mpi, (*FIXED_ORDER, *EXACT), "float32", LONG, 4, asked) for _ in range(asked.launches)]
    short = [job(nodes, mpi, SCALARS, "float64", SHORT, 8, asked) for _ in range(asked.launches)]
    to_library = [medians(one, lambda r: r["ratio"]["median"]) for one in long]
    seconds = [medians(one, lambda r: r["median"]) for one in long]
    bounds = {
        nbytes: 2 * (asked.nodes - 1) / asked.nodes * nbytes * 8 / parse_rate(asked.link)
        for _, nbytes in seconds[0]
    }
    to_bound = [{key: took / bounds[key[1]] for key, took in one.items()} for one in seconds]
    order_free = []
    for one in seconds:
        best = {b: min(one[name, b] for name in FIXED_ORDER) for _, b in one}
        order_free.append({key: took / best[key[1]] for key, took in one.items()})
    scalars = [medians(one, lambda r: r["ratio"]["median"]) for one in short]
    about = mpi, ranks
    return [
        judged("best fixed order to the library, float32", FIXED_ORDER, to_library, 0.8, about),
        judged("best fixed order to the bandwidth bound, float32", FIXED_ORDER, to_bound, 1.25, about),
        judged("exact to the best fixed order, float32", EXACT, order_free, 1.25, about),
        judged("order-free scalars to the library, float64", SCALARS, scalars, 1.5, about),
    ]


def medians(result: dict, value) -> dict[tuple[str, int], float]:
    """{(ordering, bytes): `value(row)`} of the rows of a launch that have a ratio."""
    return {
        (r["ordering"], r["bytes"]): value(r)
        for r in result["rows"]
        if r["ordering"] != "bare" and r["ratio"]
    }


def judged(
    text: str,
    names: tuple[str, ...],
    launches: list[dict[tuple[str, int], float]],
    limit: float,
    about: tuple[str, int],
) -> dict:
    """The row of a target: the best of `names` by the median of launches at each size, at the worst size."""
    best = []
    for nbytes in sorted({b for _, b in launches[0]}):
        ratios = {name: [one[name, nbytes] for one in launches] for name in names}
        name = min(names, key=lambda n: statistics.median(ratios[n]))
        best.append((statistics.median(ratios[name]), nbytes, name, ratios))
    worst, nbytes, name, ratios = max(best, key=lambda b: b[0])
    raw = [(b, every) for _, b, _, every in best]
    met = "yes" if worst <= limit else "no"
    return row(text, *about, size_text(nbytes), name, spread(ratios[name]), limit, met, raw)


def job(
    nodes: Cluster, mpi: str, names: tuple[str, ...], dtype: str, sizes: tuple[int, int], factor: int, asked
) -> dict:
    """The result of one launch. Raises ClusterError if it fails, subprocess.TimeoutExpired if it hangs."""
    with tempfile.TemporaryDirectory() as scratch:
        out, output = Path(scratch) / "result.json", Path(scratch) / "output"
        command = [
            sys.executable,
            "-m",
            "benchmarks.allreduce",
            "--orderings",
            ",".join(names),
            "--dtype",
            dtype,
        ]
        command += [
            "-b",
            str(sizes[0]),
            "-e",
            str(sizes[1]),
            "-f",
            str(factor),
            "--seconds",
            str(asked.seconds),
        ]
        command += ["--rounds", "5", "--warm-up", "1", "--json", str(out)]
        with open(output, "w") as stream:
            ended = nodes.run(
                command,
                asked.nodes * asked.ranks_per_node,
                asked.ranks_per_node,
                mpi=mpi,
                timeout=TIMEOUT,
                environment={"OMP_NUM_THREADS": "1"},
                stdout=stream,
                stderr=stream,
                cwd=ROOT,
            )
        if ended.code:
            raise ClusterError(f"{' '.join(command)} ended with {ended.code}:\n{output.read_text()}")
        return read(str(out))
