"""Runs of the applications whose bits were recorded, each on a communicator of its own.

Run by tests/mpi/test_recorded_bits_mpi.py as `mpirun -n P python recorded_bits.py [CASE ...] [RANKS ...]`, without
names all cases, without numbers on 1 to 4 ranks: prints JSON, what decides the bits of what torch learned, and the
runs, {case: its stable lines}. Standard output of the runs themselves is kept apart.
"""

import contextlib
import io
import json
import shutil
import sys
import tempfile
from importlib import import_module
from pathlib import Path

from mpi4py import MPI

from miniapps.runner.main import main

WORLD = MPI.COMM_WORLD
STABLE = ("FINGERPRINT ", "VERIFICATION: ")
SUMS = "problem.sizes=1 problem.sizes=1000 problem.arrays=2 method.samples=2"
VARIANTS = ("sptr", "spa", "exact", "pairwise", "lanes", "binned")
SPLIT = "problem.sizes=1 problem.sizes=3 problem.sizes=1000 problem.arrays=3 method.samples=1 method.variants=sptr"
BOX = "grid.nx=12 grid.ny=12 grid.nz=12 grid.bx=4 grid.by=4 grid.bz=4"
FLOW = "grid.nx=64 grid.ny=64 grid.bx=16 grid.by=16 time.steps=3"
SCHEDULES = (
    "binomial", "direct", "double-tree", "recursive-doubling", "recursive-multiplying", "linear", "reverse",
    "permuted:seed=7", "k-nomial:k=3", "rabenseifner", "ring", "segmented-ring", "two-level", "block-tree",
)  # fmt: skip
METHODS = (
    "cg",
    "cg-chronopoulos-gear",
    "cg-pipelined",
    "bicgstab",
    "gmres-mgs",
    "gmres-cgs",
    "chebyshev",
    "jacobi",
    "refinement",
)
PRECONDITIONERS = ("none", "jacobi", "block-jacobi", "chebyshev", "multigrid")


def cases():
    """{name: (app, arguments)}: what can be chosen without a guarantee of the MPI library."""
    table = {}

    def add(name, app, options, settings):
        sets = [word for setting in settings.split() for word in ("--set", setting)]
        table[name] = (app, [*options.split(), *sets])

    sums = " ".join([SUMS, *(f"method.variants={name}" for name in VARIANTS)])
    for level in ("run", "layout", "exact"):
        add(f"sums {level}", "reductions", f"--guarantee {level} --split arrays", sums)
        add(f"sums {level} elements", "reductions", f"--guarantee {level}", SPLIT)
    for ordering in SCHEDULES:
        add(f"sums by {ordering}", "reductions", f"--allreduce {ordering} --split elements", SPLIT)
        for accumulation in ("float64", "compensated", "exact"):
            if ordering in ("ring", "block-tree"):
                options = f"--allreduce {ordering} --accumulate {accumulation} --split elements"
                add(f"sums by {ordering} in {accumulation}", "reductions", options, SPLIT)
    for method in METHODS:
        add(f"solver {method}", "solver", f"--guarantee layout --method {method}", BOX)
    for preconditioner in PRECONDITIONERS:
        options = f"--guarantee layout --method cg --preconditioner {preconditioner}"
        add(f"solver preconditioned by {preconditioner}", "solver", options, BOX)
    for level in ("run", "exact"):
        add(f"solver {level}", "solver", f"--guarantee {level} --method cg", BOX)
    for closure in ("none", "physics"):
        for level in ("run", "layout", "exact"):
            add(f"flow {closure} {level}", "coupled", f"--guarantee {level} --closure {closure}", FLOW)
    for closure in ("surrogate", "online"):
        add(f"flow {closure} layout", "coupled", f"--guarantee layout --closure {closure}", FLOW)
    add("flow shuffled", "coupled", "--guarantee layout --closure physics --shuffle-blocks 5", FLOW)
    add("flow by block-tree", "coupled", "--allreduce block-tree --closure none", FLOW)
    return table


def run(app, arguments, comm, place):
    """The stable lines of a run, on rank 0; of one that is refused, its exit code and what it says."""
    printed, errors = io.StringIO(), io.StringIO()
    out = comm.bcast(tempfile.mkdtemp(dir=place) if comm.rank == 0 else None)
    options = [*arguments, "--out", f"{out}/run", "--log-level", "warning", "--trace", "off"]
    with contextlib.redirect_stdout(printed), contextlib.redirect_stderr(errors):
        code = main(import_module(f"miniapps.{app}").APP, options, comm)
    lines = [line for line in printed.getvalue().splitlines() if line.startswith(STABLE)]
    return [f"exit code {code}", *lines, *([errors.getvalue().strip()] if code == 2 else [])]


def measure(wanted, sizes):
    """{case on so many ranks: stable lines}, on rank 0 of the world."""
    place = WORLD.bcast(tempfile.mkdtemp() if WORLD.rank == 0 else None)
    results = {}
    try:
        for size in sizes:
            comm = WORLD.Split(0 if WORLD.rank < size else MPI.UNDEFINED)
            if comm != MPI.COMM_NULL:
                for name, (app, arguments) in cases().items():
                    if not wanted or name in wanted:
                        results[f"{name} on {size}"] = run(app, arguments, comm, place)
                comm.Free()
            WORLD.Barrier()
    finally:
        if WORLD.rank == 0:
            shutil.rmtree(place, ignore_errors=True)
    return results


def learned():
    """Under `layout` torch computes one function of the closure, the sigmoid, by its vectors. The bits were recorded on
    a processor of one vendor, and were not tried on another's."""
    import torch

    return {
        "torch": torch.__version__,
        "capability": torch.backends.cpu.get_cpu_capability(),
        "vendor": vendor(),
    }


def vendor():
    lines = Path("/proc/cpuinfo").read_text().splitlines() if Path("/proc/cpuinfo").exists() else []
    return next((line.split(":")[1].strip() for line in lines if line.startswith("vendor_id")), "")


if __name__ == "__main__":
    words = sys.argv[1:]
    numbers = [int(word) for word in words if word.isdigit()] or [1, 2, 3, 4]
    answer = measure(
        [word for word in words if not word.isdigit()], [size for size in numbers if size <= WORLD.size]
    )
    if WORLD.rank == 0:
        print(json.dumps({"learned": learned(), "runs": answer}, indent=1))
