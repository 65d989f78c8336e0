"""Preconditioners under MPI: the bits that one rank alone gives, whoever owns the blocks.

Run by tests/mpi/test_preconditioners_mpi.py as `mpirun -n P python preconditioners.py`.
"""

from itertools import pairwise

import numpy as np
from mpi4py import MPI
from sections import COMM, raised, report, section

from miniapps.layout.rows import Rows
from miniapps.linear.box import Box, parents
from miniapps.linear.entries import rows
from miniapps.linear.matrix import Matrix
from miniapps.linear.preconditioners import PreconditionerError, make
from miniapps.linear.preconditioners.multigrid import hierarchy
from miniapps.linear.stencils import stencil

BOXES = {
    "uneven": Box(11, 9, 13, (4, 5, 3)),
    "single points": Box(5, 6, 7, (1, 1, 1)),
    "small": Box(3, 4, 4, (2, 2, 2)),
}


CASES = (  # each with all owners
    ("uneven", "poisson27", "float64"),
    ("uneven", "anisotropic", "float32"),
    ("single points", "poisson7", "float64"),
    ("small", "poisson27", "float32"),
)
OWNERS = {  # what `Rows` is given
    "contiguous": lambda box: {},
    "shuffled": lambda box: {"shuffle": 7},
    "the last alone": lambda box: {"owner": np.full(box.count, COMM.size - 1)},
    "in turn": lambda box: {"owner": np.arange(box.count) % COMM.size},
}


def matrix_of(comm, box, of, dtype, **owners):
    owned = Rows(box.starts, comm.size, comm.rank, **owners)
    return Matrix(comm, owned, owned, rows(box, of, owned.own), dtype=dtype)


def applied(matrix, name, box, of, options):
    """z = M r of the own rows, twice the same, for an r that depends on the global row alone."""
    precondition = make(name, matrix, box=box, stencil=of, **options)
    r, z = matrix.operand(), matrix.operand()
    m, mine = matrix.rows.m, matrix.rows.global_rows()
    r[:m] = np.random.default_rng(5).standard_normal(matrix.n)[mine]
    z[:] = np.nan
    precondition.apply(r, z)
    first = z[:m].tobytes()
    precondition.apply(r, z)
    again = z[:m].tobytes() == first
    precondition.free()
    return mine, z[:m].copy(), again


def differences(name, cases=CASES, **options):
    for where, kind, dtype in cases:
        box = BOXES[where]
        of = stencil(kind, box.h)
        alone = matrix_of(MPI.COMM_SELF, box, of, dtype)
        _, expected, _ = applied(alone, name, box, of, options)
        alone.free()
        if not np.isfinite(expected).all():
            yield f"{name} {where} {kind} {dtype}: not finite"
        for owners, given in OWNERS.items():
            matrix = matrix_of(COMM, box, of, dtype, **given(box))
            mine, result, again = applied(matrix, name, box, of, options)
            matrix.free()
            if result.tobytes() != expected[mine].tobytes() or not again:
                yield f"{name} {where} {kind} {dtype} {owners}: {(result != expected[mine]).sum()} rows differ"


@section
def jacobi():
    yield from differences("jacobi")


@section
def block_jacobi():
    yield from differences("block-jacobi")


@section
def chebyshev():
    yield from differences("chebyshev")
    yield from differences("chebyshev", CASES[:1], degree=1)


@section
def multigrid():
    yield from differences("multigrid")
    yield from differences("multigrid", CASES[1:2], degree=3, ratio=8.0)


@section
def coarse_boxes_have_few_owners():
    box = Box(16, 16, 16, (4, 4, 4))
    owner = Rows(box.starts, COMM.size, COMM.rank).owner
    boxes = [at for at, _ in hierarchy(box, stencil("poisson7"))]
    counts = [at.count for at in boxes]
    if counts != [64, 64, 8]:
        yield f"blocks: {counts}"
    for fine, coarse in pairwise(boxes):
        owner = owner[parents(fine, coarse)]
    if len(np.unique(owner)) != {1: 1, 2: 2, 3: 2, 4: 2, 8: 4}[COMM.size]:
        yield f"{len(np.unique(owner))} ranks of {COMM.size} own the coarsest box"


@section
def a_bad_row_is_told_by_all_ranks():
    box = BOXES["uneven"]
    owned = Rows(box.starts, COMM.size, COMM.rank)
    indptr, columns, data = rows(box, stencil("poisson7"), owned.own)
    mine = owned.global_rows()
    for name, value, expected in (
        ("jacobi", 0.0, "row 700 has 0 on the diagonal"),
        ("chebyshev", -1.0, "row 700 has -1 on the diagonal"),
        ("chebyshev", np.nan, "row 700 has nan on the diagonal"),
        ("block-jacobi", np.nan, "row 700 has an entry that is NaN"),
    ):
        changed = data.copy()
        row_of = mine[np.repeat(np.arange(len(mine)), np.diff(indptr))]
        changed[(row_of == columns) & (row_of >= 700)] = value
        matrix = Matrix(COMM, owned, owned, (indptr, columns, changed))
        message = raised(PreconditionerError, lambda name=name, matrix=matrix: make(name, matrix))
        if expected not in message:
            yield f"{name} with {value}: {message!r}"
        matrix.free()


if __name__ == "__main__":
    report()
