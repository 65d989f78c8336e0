"""Packed trees under MPI: every section yields what failed on this rank; rank 0 prints all of it as JSON.

Run by tests/mpi/test_packed_trees_mpi.py as `mpirun -n P python packed_trees.py`.
"""

import shutil
import tempfile
from pathlib import Path

import numpy as np
from sections import COMM, raised, report, section

from kernels.allreduce import PlanMismatch, Reduction, plan
from kernels.allreduce.execution.planning import hosts_of
from kernels.allreduce.instruments.pack import pack
from kernels.allreduce.instruments.rates import measure
from kernels.allreduce.links import Linked, Links, read_packing, write
from kernels.allreduce.simulator import simulate
from kernels.guarantees import ChoiceError

RANK, SIZE = COMM.rank, COMM.size
LENGTHS = sorted({0, 1, SIZE - 1, SIZE, 5, 1000, 300_000})
FOLDER = COMM.bcast(tempfile.mkdtemp(prefix="trees-") if RANK == 0 else None, 0)
FILE = f"{FOLDER}/links.json"
OTHER = f"{FOLDER}/other.json"


def written(file, size, seed):
    """A file of links between so many ranks, drawn, and packed; on rank 0."""
    if RANK == 0:
        rates = np.random.default_rng(seed).uniform(1, 10, (size, size)) * (1 - np.eye(size))
        write(file, pack(Links(tuple(tuple(row) for row in rates.tolist()))))
    COMM.Barrier()


def of_all(seed, n, dtype):
    rng = np.random.default_rng(seed)
    return [(rng.standard_normal((1, n)) * 10.0 ** rng.integers(-1, 2, n)).astype(dtype) for _ in range(SIZE)]


@section
def totals_are_those_of_the_simulator():
    written(FILE, SIZE, 1)
    packing = read_packing(FILE, SIZE)
    for dtype in ("float64", "float32"):
        for n in LENGTHS:
            for segments in (1, 4):
                name = f"trees:links={FILE},segments={segments}"
                xs = of_all(n, n, dtype)
                with plan(COMM, name, n, dtype, check=True) as reducer:
                    if reducer(xs[RANK]).tobytes() != simulate(name, xs, packing=packing)[RANK].tobytes():
                        yield f"{name} {dtype} {n}"
                    if reducer.reduction.packing != packing:
                        yield f"{name}: another packing than that of the file"


@section
def exact_sums_are_those_of_direct():
    written(FILE, SIZE, 1)
    xs = of_all(3, 100, "float64")
    totals = []
    for ordering in ("direct", f"trees:links={FILE}"):
        with plan(COMM, ordering, 100, accumulation="exact") as reducer:
            totals.append(reducer(xs[RANK]).tobytes())
            if reducer.guarantee != "exact":
                yield f"{ordering} promises {reducer.guarantee}"
    if len(set(totals)) > 1:
        yield "trees and direct differ"


@section
def a_packing_that_is_given_is_taken_and_the_file_is_not_read():
    written(FILE, SIZE, 1)
    packing = COMM.bcast(read_packing(FILE, SIZE) if RANK == 0 else None, 0)
    written(FILE, SIZE, 2)
    xs = of_all(5, 1000, "float64")
    totals = {}
    for what, given in (("recorded", packing), ("file", None)):
        with plan(COMM, Reduction(f"trees:links={FILE}", 1000, packing=given)) as reducer:
            totals[what] = reducer(xs[RANK]).tobytes()
    if totals["recorded"] != simulate("trees", xs, packing=packing)[RANK].tobytes():
        yield "the packing that was given was not taken"
    if (
        SIZE > 3 and totals["file"] == totals["recorded"]
    ):  # three ranks have few trees, which may be the same ones
        yield "other links gave the same bits"


@section
def what_cannot_be_planned_says_why_on_all_ranks():
    written(FILE, SIZE, 1)
    written(OTHER, SIZE + 1, 1)
    if RANK == 0:
        Path(FOLDER, "damaged.json").write_text(Path(FILE).read_text().replace("share", "spare", 1))
        links = Links(((0.0,) * SIZE,) * SIZE) if SIZE == 1 else None
        elsewhere = Links(tuple((1.0,) * SIZE for _ in range(SIZE)), hosts=("elsewhere",) * SIZE)
        write(f"{FOLDER}/elsewhere.json", Linked(elsewhere, pack(links or elsewhere).packing))
    COMM.Barrier()
    for name, message in (
        ("none.json", "No such file"),
        ("damaged.json", "damaged or was changed"),
        ("other.json", f"{SIZE + 1} ranks, and there are {SIZE}"),
        ("elsewhere.json", "ranks on elsewhere, and this job runs on"),
    ):
        text = raised(ChoiceError, lambda: plan(COMM, f"trees:links={FOLDER}/{name}"))  # noqa: B023
        if message not in text or name not in text:
            yield f"{name}: {text or 'nothing was raised'}"
    if SIZE > 1:
        mine = FILE if RANK else OTHER
        if "other.json" not in raised(PlanMismatch, lambda: plan(COMM, f"trees:links={mine}")):
            yield "ranks that name different files were not told"


@section
def links_are_measured_and_used():
    if SIZE == 1:
        return
    links = measure(COMM, "ranks", 1, quiet=True)
    rates, latencies = np.array(links.rates), np.array(links.latencies)
    apart = ~np.eye(SIZE, dtype=bool)
    if not (rates[apart] > 1e6).all() or rates.diagonal().any() or not (latencies[apart] > 0).all():
        yield f"{rates} {latencies}"
    if links.hosts != tuple(hosts_of(COMM)) or links.ports or COMM.allgather(links).count(links) != SIZE:
        yield f"ranks know different links: {links}"
    if RANK == 0:
        write(FILE, pack(links))
    COMM.Barrier()
    with plan(COMM, f"trees:links={FILE}", 1000, check=True) as reducer:
        if (reducer(np.ones((1, 1000))) != SIZE).any():
            yield "ones do not add up"


if __name__ == "__main__":
    report()
    COMM.Barrier()
    if RANK == 0:
        shutil.rmtree(FOLDER)
