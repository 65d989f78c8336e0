"""Times all-reduces over lossy wires: on one node beside the MPI library's own, over slow links, and over emulated
links.

    python -m benchmarks.allreduce.wires node --json benchmarks/results/allreduce-wires.json
    python -m benchmarks.allreduce.wires 200mbit 1gbit           # as root: docs/how-to/cluster.md

| part | ranks | comparison |
|---|---|---|
| `node` | 4 on one node, 16 MiB of float32 | each wire with `direct` and with the library |
| `200mbit`, `1gbit` | 2 nodes of 2, 4 MiB, links of that rate | each wire with `direct`, and emulated over real times |

All orderings take turns in one job; a time is that of the slowest rank. The emulation has the rate of a node's port,
less 5 % for headers.
"""

import json
import sys
import tempfile
from pathlib import Path

import numpy as np

from benchmarks.harness.launching import launcher, on_nodes, output_of
from benchmarks.harness.results import parts_parser, run_parts
from benchmarks.harness.turns import in_turn, ratio

LIBRARY, PLAIN = "MPI library", "direct"
WIRES = ("float16", "fp8", "table:n=4", "table:n=2", "sign", "int8", "int4:rotate=on")
LEVELS = "int4:rotate=on,inner=int8,group=2"  # a group is a node
ORDERINGS = (
    PLAIN,
    *(f"{PLAIN} over {wire}" for wire in (*WIRES, LEVELS)),
    *(f"{PLAIN} in exact over {wire}" for wire in ("fp8", LEVELS)),
)
LIMITS = {("fp8", PLAIN): 0.7, ("fp8", LIBRARY): 0.45, ("sign", PLAIN): 0.35}
RATES = {"200mbit": 200e6, "1gbit": 1e9}
PAYLOAD = 0.95  # of a link's rate, without headers
RANKS, LONG, SHORTER = 4, 16 << 20, 4 << 20
LIMIT_S = 900


def main(argv=None) -> None:
    """Measures the requested parts."""
    parser = parts_parser("allreduce.wires", __doc__, {part: None for part in ("node", *RATES)}, 9)
    parser.add_argument("--mpi", default="mpich", help="mpich or openmpi (default %(default)s)")
    parts = {"node": of_node} | {name: lambda options, name=name: over_links(name, options) for name in RATES}
    run_parts("allreduce.wires", parser, parts, argv)


def of_node(options) -> list[dict]:
    """The rows of four ranks on one node."""
    seconds = alone(options.mpi, LONG, options.rounds)
    return [
        {
            "part": "node",
            "ordering": name,
            "ms": float(np.median(times) * 1e3),
            "/ direct": ratio(times, seconds[PLAIN]),
            "/ library": ratio(times, seconds[LIBRARY]),
            "limits": ", ".join(
                f"{limit} of {other}"
                for (wire, other), limit in LIMITS.items()
                if name == f"{PLAIN} over {wire}"
            ),
            "emulated ms": "",
            "emulated": "",
            "raw": times,
        }
        for name, times in seconds.items()
    ]


def over_links(part: str, options) -> list[dict]:
    """The rows of two nodes with links of the rate in the part's name, beside the same links emulated."""
    from jobs.cluster import cluster

    rate = RATES[part] / 8 * PAYLOAD
    with cluster(nodes=2, link=[part]) as nodes:
        real = json.loads(
            on_nodes(nodes, asked(SHORTER, options.rounds), RANKS, RANKS // 2, options.mpi, LIMIT_S)
        )
    with tempfile.TemporaryDirectory() as scratch:
        file = Path(scratch) / "links.json"
        file.write_text(json.dumps({"rates": [[0, rate], [rate, 0]], "of": "nodes"}))
        emulated = alone(options.mpi, SHORTER, options.rounds, str(file))
    return [
        {
            "part": part,
            "ordering": name,
            "ms": float(np.median(times) * 1e3),
            "/ direct": ratio(times, real[PLAIN]),
            "/ library": ratio(times, real[LIBRARY]),
            "limits": "",
            "emulated ms": float(np.median(emulated[name]) * 1e3),
            "emulated": float(np.median(emulated[name]) / np.median(times)),
            "raw": times,
        }
        for name, times in real.items()
        if name != LIBRARY
    ]


def alone(mpi: str, nbytes: int, rounds: int, links: str = "") -> dict[str, list[float]]:
    """Seconds of every ordering on one node, over emulated `links` if given."""
    command, extra = launcher(mpi)
    command += ["-n", str(RANKS), *asked(nbytes, rounds, links)]
    return json.loads(output_of(command, extra, LIMIT_S))


def asked(nbytes: int, rounds: int, links: str = "") -> list[str]:
    return [sys.executable, "-m", "benchmarks.allreduce.wires", "--worker", str(nbytes), str(rounds), links]


def worker(nbytes: int, rounds: int, links: str) -> None:
    """Times every ordering in turn on this job's ranks; rank 0 prints the seconds of the slowest rank by name."""
    from mpi4py import MPI

    from kernels.allreduce import Reduction, plan
    from kernels.allreduce.emulation import links_of
    from kernels.allreduce.execution.emulated import Clock, EmulatedReducer

    comm = MPI.COMM_WORLD
    x = np.random.default_rng(comm.rank).standard_normal((1, nbytes // 4), np.float32)
    out = np.empty_like(x[0])
    planned = {name: plan(comm, Reduction.named(name, x.shape[1], "float32")) for name in ORDERINGS}
    clock = Clock(links_of(links, comm.size)) if links else None

    def timed(call) -> float:
        comm.Barrier()
        begin = MPI.Wtime()
        call()
        return comm.allreduce(MPI.Wtime() - begin, MPI.MAX)

    calls = {} if clock else {LIBRARY: lambda: timed(lambda: comm.Allreduce(x[0], out))}
    for name, reducer in planned.items():
        used = reducer if clock is None else EmulatedReducer(reducer, clock, comm, None)
        calls[name] = lambda used=used: timed(lambda: used(x, out=out))
    seconds = in_turn(calls, rounds, quiet=True)
    if comm.rank == 0:
        print(json.dumps(seconds))
    for reducer in planned.values():
        reducer.free()


if __name__ == "__main__":
    if sys.argv[1:2] == ["--worker"]:
        worker(int(sys.argv[2]), int(sys.argv[3]), sys.argv[4])
    else:
        main()
