"""Matrices over ranks: the product of one rank by the reference is what all layouts must give.

Run by tests/mpi/test_matrix_mpi.py as `mpirun -n P python matrix_properties.py`; FPNA_TEST_BACKEND names the backend
that multiplies.
"""

import os
from importlib import import_module
from types import SimpleNamespace

import numpy as np
import scipy.sparse
from sections import COMM, raised, report, section

from kernels import sparse
from kernels.registry import get, variants
from miniapps.layout import ghosts
from miniapps.layout.rows import Rows
from miniapps.linear.matrix import Matrix
from miniapps.system.device import host, put

BACKEND = os.environ.get("FPNA_TEST_BACKEND", "native")
XP = import_module("cupy") if BACKEND == "cupy" else np
SHUFFLES = (0, 1, 5)


def blocks(count, seed):
    """Starts of `count` blocks of 1 ... 9 rows."""
    return np.concatenate([[0], np.cumsum(np.random.default_rng(seed).integers(1, 10, count))])


def layouts(starts):
    """Rows by several owners, the last ones with ranks that own nothing."""
    count = len(starts) - 1
    for shuffle in SHUFFLES:
        yield f"shuffle {shuffle}", Rows(starts, COMM.size, COMM.rank, shuffle)
    for name, owner in (
        ("all on the last rank", np.full(count, COMM.size - 1)),
        ("only even ranks", np.arange(count) * 2 % (COMM.size + COMM.size % 2)),
    ):
        yield name, Rows(starts, COMM.size, COMM.rank, owner=owner)


def random_matrix(n, m, seed, integers=False):
    """(n, m) with entries of many magnitudes, or small integers; some rows are empty."""
    rng = np.random.default_rng(seed)
    pattern = scipy.sparse.random_array((n, m), density=0.15, rng=rng, format="csr")
    pattern.sort_indices()
    if integers:
        pattern.data = rng.integers(-8, 9, pattern.nnz).astype(np.float64)
    else:
        pattern.data = rng.standard_normal(pattern.nnz) * 10.0 ** rng.integers(-6, 7, pattern.nnz)
    return pattern


def own_entries(rows, a):
    """(indptr, global columns, data) of the rank's rows of a SciPy matrix."""
    mine = a[rows.global_rows()]
    return mine.indptr.astype(np.int64), mine.indices.astype(np.int64), mine.data


def whole_product(a, x):
    """The bits that one rank gives by the reference."""
    y = np.zeros(a.shape[0], x.dtype)
    indices, data = a.indices.astype(np.int32), a.data.astype(x.dtype)
    get("spmv", "csr", "reference")(sparse.Csr(a.indptr.astype(np.int64), indices, data, a.shape[1]))(x, y)
    return y


def product(rows, columns, a, x, **options):
    """This rank's part of a x by a Matrix, the second of two products."""
    matrix = Matrix(COMM, rows, columns, own_entries(rows, a), **{"backend": BACKEND} | options)
    operand, result = matrix.operand(), matrix.result()
    matrix.apply(operand, result)
    put(operand[: columns.m], x[columns.global_rows()])
    matrix.apply(operand, result)
    matrix.free()
    return host(result)


@section
def a_product_has_the_bits_of_one_rank():
    starts = blocks(16, 1)
    a = random_matrix(starts[-1], starts[-1], 2)
    for dtype in ("float64", "float32"):
        x = np.random.default_rng(3).standard_normal(starts[-1]).astype(dtype)
        expected = whole_product(a, x)
        for name, rows in layouts(starts):
            if product(rows, rows, a, x, dtype=dtype).tobytes() != expected[rows.global_rows()].tobytes():
                yield f"{dtype}, {name}"


@section
def a_product_of_integers_is_that_of_scipy_by_every_variant():
    starts = blocks(9, 4)
    a = random_matrix(starts[-1], starts[-1], 5, integers=True)
    x = np.arange(starts[-1], dtype=np.float64) - 7
    for v in variants("spmv"):
        if (v.backend == "cupy") != (BACKEND == "cupy") or v.unavailable():
            continue
        for name, rows in layouts(starts):
            result = product(rows, rows, a, x, variant=v.name, backend=v.backend)
            if not np.array_equal(result, (a @ x)[rows.global_rows()]):
                yield f"{v.name} ({v.backend}), {name}"


@section
def a_rectangular_matrix_has_operands_of_its_own():
    fine, coarse = blocks(12, 6), blocks(8, 7)
    a = random_matrix(fine[-1], coarse[-1], 8)
    transposed = a.T.tocsr()
    transposed.sort_indices()
    for matrix, of_rows, of_columns in ((a, fine, coarse), (transposed, coarse, fine)):
        x = np.random.default_rng(9).standard_normal(of_columns[-1])
        expected = whole_product(matrix, x)
        for (name, rows), (_, columns) in zip(layouts(of_rows), layouts(of_columns), strict=True):
            result = product(rows, columns, matrix, x)
            if result.tobytes() != expected[rows.global_rows()].tobytes():
                yield f"{matrix.shape}, {name}"


@section
def ghosts_hold_the_elements_of_others_in_ascending_order():
    starts = blocks(11, 10)
    for name, rows in layouts(starts):
        everything = np.arange(rows.n)
        others = everything[rows.local_of(everything) < 0]
        for wanted in (others, others[::2], others[:0]):
            for dtype in ("float64", "float32"):
                exchange = ghosts.plan(rows, COMM, wanted, dtype, XP)
                x = XP.asarray(np.full(rows.m + len(wanted) + 1, -1, dtype))
                for shift in (0.5, 1000.25):
                    put(x[: rows.m], (rows.global_rows() + shift).astype(dtype))
                    exchange(x)
                    expected = np.concatenate([rows.global_rows(), wanted, [-1 - shift]]) + shift
                    if not np.array_equal(host(x), expected.astype(dtype)):
                        yield f"{name}: {len(wanted)} of {dtype}"
                if exchange.nbytes % np.dtype(dtype).itemsize or (COMM.size == 1 and exchange.nbytes):
                    yield f"{name}: {exchange.nbytes} bytes sent"
                if COMM.allreduce(exchange.nbytes) != COMM.allreduce(len(wanted)) * np.dtype(dtype).itemsize:
                    yield f"{name}: the ranks send other numbers of bytes than they wait for"
                exchange.free()


@section
def wrong_ghosts_and_vectors_are_refused():
    rows = Rows(np.arange(2 * COMM.size + 1), COMM.size, COMM.rank)
    for columns in (rows.global_rows()[:1], [0, 0], [2, 1]):
        if "must be ascending rows that other ranks own" not in raised(
            ValueError, lambda columns=columns: ghosts.plan(rows, COMM, columns)
        ):
            yield f"no error for {columns}"
    exchange = ghosts.plan(rows, COMM, np.empty(0, np.int64))
    for x in (np.zeros(1), np.zeros(2, np.float32), np.zeros((2, 2))):
        if "make vectors by operand()" not in raised(ValueError, lambda x=x: exchange(x)):
            yield f"no error for {x.dtype} {x.shape}"
    exchange.free()


@section
def a_matrix_knows_its_numbers():
    starts = blocks(10, 11)
    n = int(starts[-1])
    a = random_matrix(n, n, 12)
    a = a - scipy.sparse.diags_array(a.diagonal())
    a = (a + scipy.sparse.diags_array(np.where(np.arange(n) % 3 > 0, np.arange(n) + 0.5, 0.0))).tocsr()
    a.eliminate_zeros()
    a.sort_indices()
    for name, rows in layouts(starts):
        matrix = Matrix(COMM, rows, rows, own_entries(rows, a), backend=BACKEND)
        mine = a[rows.global_rows()]
        if (matrix.n, matrix.nnz, matrix.flops) != (n, a.nnz, 2 * mine.nnz):
            yield f"{name}: n {matrix.n}, nnz {matrix.nnz}, flops {matrix.flops}"
        if host(matrix.diagonal()).tobytes() != a.diagonal()[rows.global_rows()].tobytes():
            yield f"{name}: diagonal"
        needed = len(np.union1d(mine.indices, rows.global_rows()))
        if matrix.nbytes != 12 * mine.nnz + 8 * (rows.m + 1) + 8 * (needed + rows.m):
            yield f"{name}: {matrix.nbytes} bytes"
        if (len(matrix.operand()), len(matrix.result())) != (needed, rows.m):
            yield f"{name}: vectors of {len(matrix.operand())} and {len(matrix.result())}"
        if matrix.local.data.tobytes() != mine.data.tobytes() or matrix.local.columns != needed:
            yield f"{name}: local"
        matrix.release()
        if hasattr(matrix, "local"):
            yield f"{name}: not released"
        matrix.free()


@section
def a_product_leaves_an_event_and_one_for_the_wait_inside():
    seen, said = [], {}
    ticks = iter(range(100))
    trace = SimpleNamespace(
        partners=lambda name, ranks: None,
        messages=lambda name, sent: said.setdefault(name, {"sent": sent, "calls": 0}),
        name=lambda name, kind="": name,
        clock=lambda: next(ticks),
        event=lambda name, start, nbytes=0, flops=0: seen.append((name, start, next(ticks), nbytes)),
    )
    rows = Rows(np.arange(0, 4 * COMM.size + 1, 2), COMM.size, COMM.rank)
    chain = scipy.sparse.diags_array(
        [1.0, 2.0, 1.0], offsets=[-1, 0, 1], shape=(rows.n, rows.n), format="csr"
    )
    matrix = Matrix(COMM, rows, rows, own_entries(rows, chain), backend=BACKEND, trace=trace)
    matrix.apply(matrix.operand(), matrix.result())
    neighbours = (COMM.rank > 0) + (COMM.rank < COMM.size - 1)
    if seen != [("halo", 1, 2, 8 * neighbours), ("spmv", 0, 3, matrix.nbytes)]:
        yield f"{seen}"
    beside = {rank: 8 for rank in (COMM.rank - 1, COMM.rank + 1) if 0 <= rank < COMM.size}
    if said != {"halo": {"sent": beside, "calls": 1 if beside else 0}}:
        yield f"{said}"
    matrix.free()


@section
def wrong_entries_are_refused():
    rows = Rows(np.arange(COMM.size + 1) * 2, COMM.size, COMM.rank)
    other = Rows(np.arange(COMM.size + 1), COMM.size, COMM.rank)
    for entries, message in (
        (([0, 1], [0], [1.0]), "indptr must be 3 ascending numbers from 0"),
        (([0, 2, 1], [0], [1.0]), "indptr must be 3 ascending numbers from 0"),
        (([0, 1, 2], [0], [1.0]), "indptr ends at 2, but there are 1 columns, 1 data"),
        (([0, 1, 2], [0, 2 * COMM.size], [1.0, 1.0]), f"are not in 0 ... {2 * COMM.size - 1}"),
        (([0, 1, 2], [-1, 0], [1.0, 1.0]), f"are not in 0 ... {2 * COMM.size - 1}"),
        (([0, 1, 3], [0, 1, 1], [1.0] * 3), f"the columns of row {2 * COMM.rank + 1} are not ascending"),
        (([0, 2, 3], [1, 0, 1], [1.0] * 3), f"the columns of row {2 * COMM.rank} are not ascending"),
    ):
        error = raised(ValueError, lambda entries=entries: Matrix(COMM, rows, rows, entries, backend=BACKEND))
        if message not in error:
            yield f"{entries}: {error!r}"
    rectangular = Matrix(COMM, rows, other, ([0, 0, 0], [], []), backend=BACKEND)
    if "has a diagonal" not in raised(ValueError, rectangular.diagonal):
        yield "a rectangular matrix has a diagonal"
    rectangular.free()


if __name__ == "__main__":
    report()
