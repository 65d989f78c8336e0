"""Times all-reduces: every ordering beside the MPI library's own, over vector sizes, with a fitted cost model.

    mpirun -n 4 python -m benchmarks.allreduce                                  # a set of orderings, 8 bytes to 4 MiB
    mpirun -n 4 python -m benchmarks.allreduce --orderings direct,ring -b 64K -e 16M -f 2 --check --json one.json
    python -m benchmarks.allreduce merge one.json two.json                      # several launches, one table
    python -m benchmarks.allreduce targets                                      # the figures this suite must reach
    python -m benchmarks.allreduce nodes                                        # figures over several nodes (root)

All cells (an ordering and a size) are measured in rounds, each round in another order. Repetitions begin at a common
time of a clock that the ranks share. Without such a clock they begin behind a barrier, and the output says so.
"""

from __future__ import annotations

import argparse
import sys
import traceback
from functools import partial
from pathlib import Path

import numpy as np

from benchmarks.allreduce.cells import (
    LIBRARY,
    MIXED,
    Cell,
    available,
    extras,
    memory,
    number_of_bytes,
    reduction,
    schedule,
    sizes,
)
from benchmarks.allreduce.table import merge, read, result, size_text, text, write
from benchmarks.harness.results import add_quiet, machine
from benchmarks.kernels.numbers import DISTRIBUTIONS
from kernels.allreduce import Reduction
from kernels.allreduce.cost import cost
from kernels.allreduce.instruments.properties import every
from kernels.allreduce.operations import OPERATIONS
from kernels.allreduce.reduction import labels
from kernels.guarantees import ChoiceError

DEFAULT = (
    "library", "recursive-doubling", "rabenseifner", "ring", "direct", "block-tree", "direct in exact",
)  # fmt: skip
SEVERAL = "default", "all"
DTYPES = ("float64", "float32", "float16", "bfloat16", "int64")


def main(argv: list[str] | None = None) -> int:
    argv = sys.argv[1:] if argv is None else argv
    if argv[:1] == ["merge"]:
        return merged(argv[1:])
    if argv[:1] == ["targets"]:
        from benchmarks.allreduce.targets import main as targets

        return targets(argv[1:])
    if argv[:1] == ["nodes"]:
        from benchmarks.allreduce.nodes import main as nodes

        return nodes(argv[1:])
    from mpi4py import MPI

    comm = MPI.COMM_WORLD
    try:
        return launched(comm, argv)
    except Exception:
        traceback.print_exc()
        sys.stderr.flush()
        comm.Abort(1)


def launched(world, argv: list[str]) -> int:
    """One launch: rank 0 parses the options, all ranks measure, rank 0 prints and writes."""
    asked, code = world.bcast(understood(argv) if world.rank == 0 else None, 0)
    if code is not None:
        return code
    from kernels.allreduce.execution.placement import nodes_of

    comm = world.Dup()
    where = machine() if comm.rank == 0 else None  # the load before, not after
    try:
        asked.nodes = nodes_of(comm)
        asked.dtype = number_type(asked.dtype)
        lengths = sizes(asked.min_bytes, asked.max_bytes, asked.factor, asked.dtype.itemsize)
        names, left_out = plannable(comm, asked)
        require_memory(comm, names, lengths[-1] // asked.dtype.itemsize, asked)
    except ChoiceError as error:  # the same on all ranks
        return refused(error) if comm.rank == 0 else 2
    summary = measured(comm, names, lengths, asked, where, left_out)
    if comm.rank == 0:
        print(text(summary))
        if asked.json:
            write(summary, asked.json)
            print(f"written to {asked.json}")
    comm.Free()
    return 0


def measured(comm, names, lengths, asked, where, left_out, **how) -> dict | None:
    """Measures these orderings; returns the result on rank 0, None elsewhere."""
    from mpi4py import MPI

    from benchmarks.allreduce.measure import measure

    cells = [Cell(name, nbytes // asked.dtype.itemsize, nbytes) for nbytes in lengths for name in names]
    measurement = measure(comm, cells, asked, **how)
    if comm.rank:
        return None
    about = {
        "size": comm.size,
        "launches": 1,
        "dtype": asked.dtype.name,
        "op": asked.op,
        "accumulate": asked.accumulate,
        "distribution": asked.distribution,
        "contributions": asked.contributions,
        "mpi": MPI.Get_library_version().splitlines()[0].strip("\0 "),
        "node_count": len(set(asked.nodes)),
        "nodes": list(asked.nodes),
        "machine": where,
        "options": {k: v for k, v in vars(asked).items() if k not in ("dtype", "nodes", "quiet")},
        "left_out": left_out,
    }
    listed = [
        {
            "ordering": cell.ordering,
            "bytes": cell.nbytes,
            "counts": counts(cell, comm.size, asked),
            "rounds": measurement.rounds[cell],
        }
        for cell in cells
    ]
    return result(listed, about, [measurement.sync])


def counts(cell: Cell, size: int, asked) -> tuple[int, ...] | None:
    """Messages, bytes and additions along the rounds of a cell's schedule, then messages and bytes across nodes; None
    without a schedule."""
    schedule_ = schedule(cell.ordering, size, cell.count, asked)
    if schedule_ is None:
        return None
    described = reduction(cell.ordering, cell.count, asked)
    c = cost(schedule_, cell.count, described.element_bytes, described.total_element_bytes, asked.nodes)
    return c.critical_messages, c.critical_bytes, c.critical_additions, c.crossing_messages, c.crossing_bytes


def understood(argv: list[str]) -> tuple[argparse.Namespace | None, int | None]:
    """(options, None), or (None, exit code): 0 after --help, 2 after an error."""
    try:
        asked = parser().parse_args(argv)
        require(asked)
    except ChoiceError as error:
        return None, refused(error)
    except SystemExit as stop:
        return None, stop.code
    return asked, None


def parser() -> argparse.ArgumentParser:
    command_line = argparse.ArgumentParser(
        prog="python -m benchmarks.allreduce",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add = command_line.add_argument
    add(
        "--orderings",
        default="default",
        metavar="A,B,...",
        help="names from `python -m kernels.allreduce`, with parameters such as k-nomial:k=4 (further key=value follow "
        f"after commas), or `all`; default: {', '.join(DEFAULT)}. `{LIBRARY}`, the bare call, is always measured",
    )
    add(
        "-b",
        "--min-bytes",
        default="8",
        metavar="SIZE",
        help="smallest vector (default %(default)s; K, M, G)",
    )
    add("-e", "--max-bytes", default="4M", metavar="SIZE", help="largest vector (default %(default)s)")
    add(
        "-f",
        "--factor",
        type=float,
        default=4,
        help="ratio of one size to the previous (default %(default)s)",
    )
    add("--dtype", default="float64", choices=DTYPES)
    add(
        "--distribution",
        default=MIXED,
        choices=(MIXED, *DISTRIBUTIONS),
        help="distribution of the terms; the time of an order-free accumulation depends on it (default %(default)s)",
    )
    add("--op", default="sum", choices=list(OPERATIONS))
    add("--accumulate", default="working", help="accumulation of partial sums (default %(default)s)")
    add(
        "--contributions",
        type=int,
        default=1,
        metavar="K",
        help="contributions per rank (default %(default)s)",
    )
    add(
        "--rounds",
        type=int,
        default=7,
        help="rounds over all cells, each in another order (default %(default)s)",
    )
    add(
        "--repetitions",
        type=int,
        default=700,
        help="repetitions of each cell in all rounds, at most (default %(default)s)",
    )
    add("--seconds", type=float, default=0.35, help="time for each cell in all rounds (default %(default)s)")
    add(
        "--warm-up",
        type=int,
        default=4,
        help="untimed calls at the start of each round (default %(default)s)",
    )
    add(
        "--sync",
        default="clock",
        choices=("clock", "barrier"),
        help="how ranks start together; `clock` falls back to `barrier`",
    )
    add("--check", action="store_true", help="count wrong elements, on all ranks, once in each round")
    add(
        "--seed", type=int, default=1, help="seed of the data and of the order of cells (default %(default)s)"
    )
    add("--json", metavar="FILE", help="write the table and all times to this file; one for each launch")
    add_quiet(command_line)
    return command_line


def require(asked: argparse.Namespace) -> None:
    """Raises ChoiceError for options that are wrong on any machine; converts sizes to numbers."""
    for name in ("contributions", "rounds", "repetitions", "warm_up"):
        if getattr(asked, name) < 1:
            raise ChoiceError(f"--{name.replace('_', '-')} {getattr(asked, name)}: choose 1 or more")
    if not 0 < asked.seconds < float("inf"):
        raise ChoiceError(f"--seconds {asked.seconds:g}: choose more than 0")
    if asked.seed < 0:
        raise ChoiceError(f"--seed {asked.seed}: choose 0 or more")
    asked.min_bytes, asked.max_bytes = number_of_bytes(asked.min_bytes), number_of_bytes(asked.max_bytes)
    sizes(asked.min_bytes, asked.max_bytes, asked.factor, 1)
    require_writable(asked.json)
    asked.named = asked.orderings not in SEVERAL
    if asked.orderings == "all":
        asked.orderings = every()
    elif asked.orderings == "default":
        asked.orderings = list(DEFAULT)
    else:
        asked.orderings = [name for name in dict.fromkeys(labels(asked.orderings)) if name != LIBRARY]
        for name in asked.orderings:
            Reduction.named(name)


def require_writable(path: str | None) -> None:
    """Raises ChoiceError, before the measurement, if the result could not be written."""
    if path is None:
        return
    if Path(path).is_dir():
        raise ChoiceError(f"--json {path}: is a directory; name a file")
    try:
        Path(path).parent.mkdir(parents=True, exist_ok=True)
        with open(path, "a"):
            pass
    except OSError as error:
        raise ChoiceError(f"--json {path}: cannot be written: {error.strerror}") from None


def number_type(name: str) -> np.dtype:
    """The NumPy type of that name; bfloat16 is ml_dtypes'."""
    import ml_dtypes

    return np.dtype(ml_dtypes.bfloat16 if name == "bfloat16" else name)


def plannable(comm, asked) -> tuple[list[str], list[str]]:
    """(LIBRARY and the orderings that can be measured, reasons why others cannot). Collective.

    Raises ChoiceError for a named ordering that does not work with these options.
    """
    from mpi4py import MPI

    from benchmarks.allreduce.cells import library_call
    from kernels.allreduce import plan

    tries = {LIBRARY: library_call(comm, np.ones((1, 1), asked.dtype), asked.op)}
    for name in asked.orderings:
        tries[name] = partial(try_plan, comm, name, asked, plan)
    names, left_out = [], []
    for name, attempt in tries.items():
        try:
            attempt()
        except (ValueError, TypeError, BufferError, NotImplementedError, MPI.Exception) as error:
            if asked.named and name != LIBRARY:
                raise ChoiceError(f"--orderings {name}: {error}") from None
            left_out.append(f"{name}: {error}")
        else:
            names.append(name)
    if not names:
        raise ChoiceError(f"nothing can be measured with {asked.op} of {asked.dtype}: {'; '.join(left_out)}")
    return names, left_out


def try_plan(comm, name: str, asked, plan) -> None:
    """Makes and frees a reducer of one element; raises as `plan` does."""
    plan(comm, reduction(name, 1, asked), **extras(comm, name, asked)).free()


def require_memory(comm, names: list[str], count: int, asked) -> None:
    """Raises ChoiceError, on all ranks, if a node lacks the memory for the longest vector. Collective."""
    for name in names:
        needs = comm.allgather(memory(name, comm.rank, comm.size, count, asked.dtype.itemsize, asked))
        there = comm.allgather(available())
        for node in sorted(set(asked.nodes)):
            need = sum(needs[rank] for rank in range(comm.size) if asked.nodes[rank] == node)
            have = min(
                (t for t, n in zip(there, asked.nodes, strict=True) if n == node and t is not None),
                default=None,
            )
            if have is not None and need > have:
                raise ChoiceError(
                    f"--max-bytes {size_text(asked.max_bytes)}: {name} needs {need / 2**30:.1f} GiB on one node, where "
                    f"{have / 2**30:.1f} GiB are free; choose a smaller size, fewer ranks a node, or leave it out"
                )


def merged(argv: list[str]) -> int:
    """Merges several launches into one table."""
    command_line = argparse.ArgumentParser(
        prog="python -m benchmarks.allreduce merge", description=merged.__doc__
    )
    command_line.add_argument(
        "files", nargs="+", metavar="FILE.json", help="files of --json, one for each launch"
    )
    command_line.add_argument("--json", metavar="FILE", help="write the joint result to this file")
    add_quiet(command_line)
    asked = command_line.parse_args(argv)
    try:
        summary = merge([read(path) for path in asked.files])
    except ChoiceError as error:
        return refused(error)
    print(text(summary))
    if asked.json:
        write(summary, asked.json)
        print(f"written to {asked.json}")
    return 0


def refused(error: ChoiceError) -> int:
    """Prints the error; returns the exit code."""
    print(f"python -m benchmarks.allreduce: {error}", file=sys.stderr, flush=True)
    return 2


if __name__ == "__main__":
    sys.exit(main())
