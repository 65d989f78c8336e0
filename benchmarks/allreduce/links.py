"""All-reduces along packed trees beside others, over nodes with links of chosen rates; as root: docs/how-to/cluster.md.

    python -m benchmarks.allreduce.links --json benchmarks/results/links.json
    python -m benchmarks.allreduce.links slow --rounds 9

| part | links | ranks |
|---|---|---|
| `equal` | 4 nodes, 1 Gbit/s each | 1 and 2 in a node |
| `slow` | the same, 100 Mbit/s between nodes 1 and 2 | 1 and 2 in a node |

Each part first measures and packs the links. Then all orderings take turns in one job, so that ratios compare
neighbours in time; a time is that of the slowest rank. The nodes share the cores of this machine: computation does not
scale.
"""

import json
import sys
import tempfile
from pathlib import Path

import numpy as np

from benchmarks.harness.launching import on_nodes
from benchmarks.harness.results import parts_parser, run_parts
from benchmarks.harness.turns import in_turn, ratio

NODES = 4
LINKS = {"equal": ["1gbit"], "slow": ["1gbit", "1-2=100mbit"]}
ORDERINGS = ("MPI library", "ring", "direct", "two-level")
SIZES = (4 << 20, 16 << 20)
TREES = "trees"
LIMIT_S = 1800


def main(argv=None) -> None:
    """Measures the requested parts."""
    parser = parts_parser("allreduce.links", __doc__, {part: None for part in LINKS}, 7)
    parser.add_argument("--mpi", default="mpich", help="mpich or openmpi (default %(default)s)")
    parser.add_argument(
        "--trees",
        default=TREES,
        help="ordering with parameters, such as trees:segments=8 (default %(default)s)",
    )
    parts = {part: lambda options, part=part: rows_of(part, options) for part in LINKS}
    run_parts("allreduce.links", parser, parts, argv)


def rows_of(part: str, options) -> list[dict]:
    """The rows of a part."""
    from jobs.cluster import cluster

    rows = []
    with cluster(nodes=NODES, link=LINKS[part]) as nodes, tempfile.TemporaryDirectory() as scratch:
        for each in (1, 2):
            file = Path(scratch) / f"links-{each}.json"
            job(nodes, each, options.mpi, ["kernels.allreduce", "links", "--quiet", "--write", str(file)])
            own = f"{options.trees}{',' if ':' in options.trees else ':'}links={file}"
            for nbytes in SIZES:
                asked = ["benchmarks.allreduce.links", "--worker", own, str(nbytes), str(options.rounds)]
                rows += rows_of_times(part, each, nbytes, json.loads(job(nodes, each, options.mpi, asked)))
    return rows


def rows_of_times(part: str, each: int, nbytes: int, seconds: dict[str, list[float]]) -> list[dict]:
    """A row for each ordering: its time, and the ratio of the time of trees to it, round by round."""
    return [
        {
            "part": part,
            "ranks": f"{NODES} x {each}",
            "MiB": nbytes >> 20,
            "ordering": name,
            "ms": float(np.median(times) * 1e3),
            "trees / it": ratio(seconds[TREES], times),
            "raw": times,
        }
        for name, times in seconds.items()
    ]


def job(nodes, each: int, mpi: str, module: list[str]) -> str:
    """The output of a module on `each` ranks of each node."""
    return on_nodes(nodes, [sys.executable, "-m", *module], NODES * each, each, mpi, LIMIT_S)


def worker(trees: str, nbytes: int, rounds: int) -> None:
    """Times every ordering in turn on this job's ranks; rank 0 prints the seconds of the slowest rank by name."""
    from mpi4py import MPI

    from kernels.allreduce import plan

    comm = MPI.COMM_WORLD
    x = np.random.default_rng(comm.rank).standard_normal((1, nbytes // 4), np.float32)
    out = np.empty_like(x[0])
    reducers = {name: plan(comm, name, x.shape[1], "float32") for name in ORDERINGS[1:]}
    reducers[TREES] = plan(comm, trees, x.shape[1], "float32", check=False)

    def timed(call) -> float:
        comm.Barrier()
        begin = MPI.Wtime()
        call()
        return comm.allreduce(MPI.Wtime() - begin, MPI.MAX)

    calls = {ORDERINGS[0]: lambda: timed(lambda: comm.Allreduce(x[0], out))}
    for name, reducer in reducers.items():
        calls[name] = lambda reducer=reducer: timed(lambda: reducer(x, out=out))
    seconds = in_turn(calls, rounds)
    if comm.rank == 0:
        print(json.dumps(seconds))
    for reducer in reducers.values():
        reducer.free()


if __name__ == "__main__":
    if sys.argv[1:2] == ["--worker"]:
        worker(sys.argv[2], *map(int, sys.argv[3:]))
    else:
        main()
