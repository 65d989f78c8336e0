"""Iterative methods over ranks: what one rank finds, all layouts must find, bit for bit.

Run by tests/mpi/test_krylov_mpi.py as `mpirun -n P python krylov_methods.py`.
"""

from types import SimpleNamespace

import numpy as np
import scipy.sparse
from mpi4py import MPI
from sections import COMM, raised, report, section

from kernels import allreduce
from miniapps.layout.rows import Rows
from miniapps.linear.krylov import METHODS
from miniapps.linear.krylov.system import System
from miniapps.linear.matrix import Matrix
from miniapps.linear.preconditioners import make
from miniapps.runner.context import Reducer

BLOCKS = 40
STARTS = np.concatenate([[0], np.cumsum(np.random.default_rng(1).integers(1, 10, BLOCKS))])
N = int(STARTS[-1])
LAYOUTS = {
    "as dealt": dict(),
    "shuffled": dict(shuffle=3),
    "some without blocks": dict(owner=np.arange(BLOCKS) * 2 % (COMM.size + COMM.size % 2)),
}
NOT_SYMMETRIC = ("bicgstab", "gmres-mgs", "gmres-cgs")


def random_matrix(symmetric):
    """Diagonally dominant, of rows that differ in size."""
    rng = np.random.default_rng(2)
    a = scipy.sparse.random_array((N, N), density=0.05, rng=rng, format="csr")
    a.data = rng.standard_normal(a.nnz)
    a = a + a.T if symmetric else a
    scale = scipy.sparse.diags_array(np.geomspace(1.0, 10.0, N))
    a = a + scipy.sparse.diags_array(1.2 * abs(a).sum(axis=1) + 0.1)
    return sorted_rows(scale @ a @ scale)


def chain():
    """The second difference, of condition 1.6 10^4 for 200 rows."""
    return sorted_rows(scipy.sparse.diags_array([-1.0, 2.0, -1.0], offsets=[-1, 0, 1], shape=(N, N)))


def sorted_rows(a):
    a = scipy.sparse.csr_array(a)
    a.sort_indices()
    return a


def built(comm, rows, a, ordering, dtype="float64", preconditioned=True, **options):
    """A system of a SciPy matrix."""
    mine = a[rows.global_rows()]
    entries = mine.indptr.astype(np.int64), mine.indices.astype(np.int64), mine.data
    matrix = Matrix(comm, rows, rows, entries, dtype=dtype)

    def reducer(n):
        return allreduce.plan(comm, allreduce.Reduction.named(ordering, (n,)), blocks=rows.own)

    return System(matrix, reducer, make("jacobi", matrix) if preconditioned else None, **options)


def solved(comm, rows, name, a, ordering, limit=60, tolerance=1e-6, **options):
    """(own part of x as bytes, bits of the residuals, the end) of a solve by method `name`."""
    if name == "refinement":
        system32 = built(comm, rows, a, ordering, "float32", **options)
        method = METHODS[name](built(comm, rows, a, ordering, **options), system32=system32)
    else:
        short = {"restart": 8} if name.startswith("gmres") else {}
        method = METHODS[name](built(comm, rows, a, ordering, **options), **short)
    return run(method, rows, limit, tolerance)


def run(method, rows, limit, tolerance):
    system = method.steps.system if hasattr(method, "steps") else method.system
    b, x = system.vector(), system.vector()
    b[: rows.m] = np.random.default_rng(3).standard_normal(N)[rows.global_rows()]
    steps, residuals = method.iterate(b, x, tolerance, limit), []
    while True:
        try:
            residuals.append(next(steps).residual.hex())
        except StopIteration as end:
            return x[: rows.m], residuals, end.value


# what makes the sums, and whose the blocks are
KINDS = {
    "block-tree": ("block-tree", {}, "shuffled"),
    "exact ordering": ("direct in exact", {}, "as dealt"),
    "exact products": ("direct in exact", {"exact": True}, "some without blocks"),
}


@section
def every_method_has_the_bits_of_one_rank():
    alone = Rows(STARTS)
    for name in METHODS:
        a = random_matrix(name not in NOT_SYMMETRIC)
        for what, (ordering, options, layout) in KINDS.items():
            rows = Rows(STARTS, COMM.size, COMM.rank, **LAYOUTS[layout])
            x, *expected = solved(MPI.COMM_SELF, alone, name, a, ordering, **options)
            mine, *history = solved(COMM, rows, name, a, ordering, **options)
            if not expected[-1].converged:
                yield f"{name}, {what}: {expected[-1]}"
            if mine.tobytes() != x[rows.global_rows()].tobytes() or history != expected:
                yield f"{name}, {what}, {layout}"


@section
def the_library_brings_every_method_to_the_answer():
    rows = Rows(STARTS, COMM.size, COMM.rank)
    for name in METHODS:
        a = random_matrix(name not in NOT_SYMMETRIC)
        expected = scipy.sparse.linalg.spsolve(a.tocsc(), np.random.default_rng(3).standard_normal(N))
        for preconditioned in (True, False):
            if name == "cg" or preconditioned:
                x, _, end = solved(COMM, rows, name, a, "library", 200, 1e-9, preconditioned=preconditioned)
                wrong = np.abs(x - expected[rows.global_rows()]).max(initial=0.0)
                if not end.converged or wrong > 1e-7 * np.abs(expected).max():
                    yield f"{name}: {end}, error {wrong}"


@section
def an_order_of_arrival_is_that_of_its_seed():
    """On a matrix that is ill-conditioned enough that 40 iterations show it."""
    rows = Rows(STARTS, COMM.size, COMM.rank)
    for name in ("cg", "cg-pipelined", "gmres-cgs"):
        runs = [solved(COMM, rows, name, chain(), "direct", 40, 0.0, arrival=seed) for seed in (7, 7, 8)]
        if runs[0][1] != runs[1][1] or runs[0][0].tobytes() != runs[1][0].tobytes():
            yield f"{name}: one seed, two results"
        if runs[0][1] == runs[2][1]:
            yield f"{name}: two seeds, one result"
        residuals = [float.fromhex(run[1][2]) for run in runs]
        if abs(residuals[0] - residuals[2]) > 1e-13 * residuals[0]:
            yield f"{name}: after 2 iterations seeds differ by more than rounding: {residuals}"


class Recorder:
    """A tracer that keeps its events by name."""

    def __init__(self):
        self.names, self.events, self.time = [], [], 0

    def name(self, text, kind=""):
        self.names.append(text)
        return len(self.names) - 1

    def clock(self):
        self.time += 1
        return self.time

    def event(self, name, start, nbytes=0, flops=0):
        self.events.append((self.names[name], start, self.clock(), nbytes))


@section
def updates_and_preconditioners_leave_events():
    rows, trace = Rows(STARTS, COMM.size, COMM.rank), Recorder()
    system = built(COMM, rows, random_matrix(True), "direct", trace=trace)
    end = run(METHODS["cg"](system), rows, 5, 0.0)[2]
    count = {name: sum(event[0] == name for event in trace.events) for name in trace.names}
    if end.iterations != 5 or count["precondition"] != 6 or count["update"] != 1 + 2 + 5 * 4:
        yield f"{count} of {end}"
    if any(event[3] < 16 * rows.m for event in trace.events if event[0] == "update"):
        yield "an update that moves less than two vectors"


@section
def a_sum_that_is_started_leaves_one_event_to_its_end():
    trace = Recorder()
    inner = allreduce.plan(COMM, ordering="direct", shape=(2,))
    reducer = Reducer("dots2", inner, trace)
    reducer.start(np.ones((1, 2)))
    between = trace.clock()
    reducer.progress()
    total = reducer.finish().tolist()
    if total != [COMM.size, COMM.size]:
        yield f"total {total}"
    if [(name, start < between < end, nbytes) for name, start, end, nbytes in trace.events] != [
        ("allreduce.dots2", True, reducer.nbytes)
    ]:
        yield f"events {trace.events}"
    reducer.free()


@section
def what_is_no_system_is_refused():
    rows, other = (Rows(STARTS, COMM.size, COMM.rank) for _ in range(2))
    flat = SimpleNamespace(rows=rows, columns=other)
    if "square" not in raised(ValueError, lambda: System(flat, None)):
        yield "no error for a rectangular matrix"
    square = SimpleNamespace(rows=rows, columns=rows)
    if "not both" not in raised(ValueError, lambda: System(square, None, exact=True, arrival=1)):
        yield "no error for exact sums in an order of arrival"


if __name__ == "__main__":
    report()
