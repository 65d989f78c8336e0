"""Times the comparison of ranks by kind, which every application makes once as it begins.

    python -m benchmarks.apps.kinds --json benchmarks/results/kinds.json

start   on 1, 2, 4 and 16 ranks, a launch for each round: microseconds of rank 0 for the entries of a process (`here`),
        and for the comparison of equal ranks and of ranks of two kinds (`equal`, `two`), after a barrier
"""

import json
import sys
import time

from benchmarks.harness.launching import mpirun, output_of
from benchmarks.harness.results import parts_parser, row, run_parts
from benchmarks.harness.turns import ratio
from kernels.progress import Progress

RANKS = (1, 2, 4, 16)
TIMED = ("here", "equal", "two")


def timed() -> None:
    """Prints the microseconds of TIMED as JSON, on rank 0. Collective."""
    import numpy  # noqa: F401  which applications have loaded before
    from mpi4py import MPI

    from kernels import _native  # noqa: F401
    from miniapps.system import kinds

    comm = MPI.COMM_WORLD
    comm.allgather(b"")  # connects the ranks, as the application has done before
    marks = []

    def mark():
        comm.Barrier()
        marks.append(time.perf_counter())

    mark()
    own = kinds.here()
    taken = [time.perf_counter() - marks[-1]]
    for entries in (own, own | {"variables.MKL_CBWR": "AVX2"} if comm.rank % 2 else own):
        mark()
        kinds.of_ranks(comm, entries, "layout")
        taken.append(time.perf_counter() - marks[-1])
    if comm.rank == 0:
        print(json.dumps([1e6 * each for each in taken]))


def start(options) -> list[dict]:
    """Times on all numbers of ranks, which take turns."""
    found: dict[tuple[int, str], list[float]] = {(size, what): [] for size in RANKS for what in TIMED}
    progress = Progress("benchmark", quiet=options.quiet)
    for turn in range(options.rounds):
        for size in RANKS:
            progress.show(turn / options.rounds, f"{size} ranks")
            code = "from benchmarks.apps.kinds import timed; timed()"
            printed = output_of([*mpirun(), "-n", str(size), sys.executable, "-c", code])
            for what, taken in zip(TIMED, json.loads(printed.strip().splitlines()[-1]), strict=True):
                found[size, what].append(taken)
    progress.clear()
    return [
        row("start", f"{size} ranks, {what} [us]", ratio(own, [1.0] * len(own)), own)
        for (size, what), own in found.items()
    ]


PARTS = {"start": start}


def main(argv=None) -> None:
    """Measures the requested parts."""
    run_parts("kinds", parts_parser("apps.kinds", __doc__, PARTS, rounds=7), PARTS, argv)


if __name__ == "__main__":
    main()
