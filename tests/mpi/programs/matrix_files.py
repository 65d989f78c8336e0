"""Matrices and vectors from files, read by several ranks: the same rows and the same words whoever reads.

Run by tests/mpi/test_matrix_files_mpi.py as `mpirun -n P python matrix_files.py`.
"""

import tempfile
from contextlib import contextmanager
from pathlib import Path
from unittest.mock import patch

import numpy as np
import scipy.io
import scipy.sparse
from sections import COMM, raised, report, section

from miniapps.layout.rows import Rows
from miniapps.solver import files, matrix_market, redistribute, scipy_npz
from miniapps.solver.files import FileError
from tests.shared_data import shared_data

HOW = ("parallel", "root")
REAL = "%%MatrixMarket matrix coordinate real general\n"


@contextmanager
def folder():
    """A directory that all ranks see, until they all are done."""
    with tempfile.TemporaryDirectory() as own:
        yield Path(COMM.bcast(own))
        COMM.Barrier()


def written(path, content):
    """`path`, where rank 0 has written the text."""
    if COMM.rank == 0:
        path.write_text(content)
    COMM.Barrier()
    return path


def saved(path, save):
    """`path`, where rank 0 has saved something."""
    if COMM.rank == 0:
        save(path)
    COMM.Barrier()
    return path


def layouts(n, step):
    starts = np.append(np.arange(0, n, step), n)
    for shuffle in (0, 4):
        yield f"shuffle {shuffle}", Rows(starts, COMM.size, COMM.rank, shuffle)
    last = np.full(len(starts) - 1, COMM.size - 1)
    yield "all on the last rank", Rows(starts, COMM.size, COMM.rank, owner=last)


def differs(entries, rows, expected):
    """Whether these are other entries than those of the SciPy matrix."""
    mine = expected[rows.global_rows()]
    return (
        not np.array_equal(entries[0], mine.indptr)
        or not np.array_equal(entries[1], mine.indices)
        or entries[2].tobytes() != mine.data.tobytes()
    )


def random_matrix(n, seed):
    rng = np.random.default_rng(seed)
    a = scipy.sparse.random_array((n, n), density=0.1, rng=rng, format="csr") + scipy.sparse.eye_array(n)
    a.sort_indices()
    return a


def other_words(call, *expected):
    """What is wrong with the error that `call()` raises: not the same on all ranks, or without the expected words."""
    message = raised(FileError, call)
    if len(set(COMM.allgather(message))) > 1:
        yield f"the ranks raise different errors, this one {message!r}"
    for words in expected:
        if words not in message:
            yield f"{words!r} is not in {message!r}"


@section
def the_real_matrices_are_those_that_scipy_reads():
    for name, chosen in (("bcsstk13.mtx", slice(None)), ("bcsstk16.mtx", slice(1, 2))):
        path = shared_data(name)
        if path is None:
            continue
        expected = COMM.bcast(scipy.io.mmread(path).tocsr() if COMM.rank == 0 else None)
        expected.sort_indices()
        for layout, rows in list(layouts(expected.shape[0], 100))[chosen]:
            for how in HOW:
                entries = files.read(path, COMM, rows, how)
                if differs(entries, rows, expected):
                    yield f"{name}, {how}, {layout}"
            if (not_symmetric := files.symmetry(COMM, rows, entries)) is not None:
                yield f"{name} is not symmetric at {not_symmetric}"


@section
def every_format_in_small_pieces_is_what_scipy_reads():
    a = random_matrix(50, 1)
    both = (a + a.T).tocsr()
    skew = (a - a.T).tocsr() + scipy.sparse.diags_array(np.zeros(50))
    with folder() as place, patch.object(matrix_market, "PIECE", 900), patch.object(scipy_npz, "PIECE", 40):
        cases = [
            saved(place / "general.mtx", lambda path: scipy.io.mmwrite(path, a, precision=17)),
            saved(place / "symmetric.mtx", lambda path: scipy.io.mmwrite(path, both, symmetry="symmetric")),
            saved(place / "skew.mtx", lambda path: scipy.io.mmwrite(path, skew, symmetry="skew-symmetric")),
        ] + [
            saved(
                place / f"{kind}.npz", lambda path, kind=kind: scipy.sparse.save_npz(path, a.asformat(kind))
            )
            for kind in ("csr", "csc", "coo")
        ]
        for path in cases:
            read = scipy.io.mmread if path.suffix == ".mtx" else scipy.sparse.load_npz
            expected = scipy.sparse.csr_array(read(path))
            expected.sort_indices()
            rows = Rows(np.append(np.arange(0, 50, 4), 50), COMM.size, COMM.rank, shuffle=4)
            for how in HOW:
                if differs(files.read(path, COMM, rows, how), rows, expected):
                    yield f"{path.name}, {how}"


@section
def both_triangles_of_a_symmetric_file_are_refused_on_all_ranks_with_the_same_words():
    n = 4 * COMM.size
    lines = [f"{i} {i} 2" for i in range(1, n + 1)] + [f"{n} 1 1", f"1 {n} 1"]
    text = f"%%MatrixMarket matrix coordinate real symmetric\n{n} {n} {n + 2}\n" + "\n".join(lines) + "\n"
    with folder() as place:
        path = saved(place / "both.mtx", lambda path: path.write_text(text))
        for how in HOW:
            rows = Rows(np.append(np.arange(0, n, 4), n), COMM.size, COMM.rank)
            message = raised(files.FileError, lambda rows=rows, how=how: files.read(path, COMM, rows, how))
            if f"line {n + 3} and line {n + 4}: a symmetric file holds one triangle" not in message:
                yield f"{how}: {message!r}"


@section
def duplicates_are_added_in_the_order_of_the_file_whoever_reads_them():
    n = 4 * COMM.size
    rng = np.random.default_rng(2)
    values, at = rng.standard_normal(60 * n), rng.permutation(np.repeat(np.arange(n), 60))
    totals = [0.0] * n
    for row, value in zip(at.tolist(), values.tolist(), strict=True):
        totals[row] += value
    lines = "".join(
        f"{row + 1} 1 {value!r}\n" for row, value in zip(at.tolist(), values.tolist(), strict=True)
    )
    rows = Rows(np.arange(n + 1), COMM.size, COMM.rank, shuffle=3)
    with folder() as place, patch.object(matrix_market, "PIECE", 2000):
        path = written(place / "duplicates.mtx", REAL + f"{n} {n} {60 * n}\n" + lines)
        for how in HOW:
            data = files.read(path, COMM, rows, how)[2]
            if data.tolist() != [totals[row] for row in rows.global_rows()]:
                yield f"{how}: {data.tolist()}"


@section
def rank_0_holds_no_more_than_a_piece_of_what_others_own():
    a = random_matrix(200, 3)
    most = []

    def exchange(comm, peers, records):
        most.append(len(records))
        return real(comm, peers, records)

    real = redistribute.exchange
    with (
        folder() as place,
        patch.object(matrix_market, "PIECE", 3000),
        patch.object(redistribute, "exchange", exchange),
    ):
        path = saved(place / "a.mtx", lambda path: scipy.io.mmwrite(path, a, precision=17))
        rows = Rows(np.array([0, 200]), COMM.size, COMM.rank, owner=[COMM.size - 1])
        files.read(path, COMM, rows, "root")
    if COMM.rank == 0 and not 0 < max(most) < 300 < a.nnz:
        yield f"pieces of up to {max(most)} entries of {a.nnz}"
    if COMM.rank > 0 and max(most) > 0:
        yield "a rank that does not read sends entries"


@section
def what_one_rank_finds_wrong_all_raise():
    n = 4 * COMM.size
    rows = Rows(np.arange(0, n + 1, 2), COMM.size, COMM.rank)
    size = REAL + f"{n} {n} {n}\n"
    good = [f"{i} {i} 1\n" for i in range(1, n + 1)]
    cases = {
        "nan": ([*good[:-1], f"{n} {n} nan\n"], f"line {n + 2}: ", f"row {n}, column {n} is not finite"),
        "outside": (
            [*good[:-1], f"{n + 1} 1 1\n"],
            f"line {n + 2}: row {n + 1}, column 1 is outside the {n} x {n}",
        ),
        "format": (
            [*good[:-1], f"{n} {n} 1D-3\n"],
            f"line {n + 2}: '{n} {n} 1D-3' is not 'row column number'",
        ),
        "cut": ([*good[:-1], f"{n}"], f"line {n + 2}: '{n}': the file is cut short in its last line"),
        "short": (good[:-1], f"the file is cut short: {n - 1} of {n} entries"),
        "long": ([*good, f"1 {n} 2\n"], f"{n + 1} entries, but the size announces {n}"),
        "empty": (
            good[:2] + 2 * ["1 2 1\n"] + good[4:],
            f"row 3 has no entry (counted from 1; 2 of {n} rows have none)",
        ),
        "first": (["1 1 oops\n", *good[1:]], "line 3: '1 1 oops' is not"),
    }
    with folder() as place:
        for name, (lines, *words) in cases.items():
            path = written(place / f"{name}.mtx", size + "".join(lines))
            for how in HOW:
                for wrong in other_words(
                    lambda path=path, how=how: files.read(path, COMM, rows, how), path.name, *words
                ):
                    yield f"{name}, {how}: {wrong}"
        for name, content, words in (
            ("header", "%%MatrixMarket matrix coordinate complex general\n", "the numbers are complex"),
            ("flat", REAL + f"{n} {n + 1} 1\n", f"{n} x {n + 1}; a system to solve"),
        ):
            path = written(place / f"{name}.mtx", content)
            for how in HOW:
                for wrong in other_words(
                    lambda path=path, how=how: files.read(path, COMM, rows, how), path.name, words
                ):
                    yield f"{name}, {how}: {wrong}"
        yield from other_words(
            lambda: files.read(place / "absent.mtx", COMM, rows), "absent.mtx: no such file"
        )
        path = written(place / "short-vector.mtx", f"%%MatrixMarket matrix array real general\n{n} 1\n1\n2\n")
        yield from other_words(lambda: files.vector(path, COMM, rows), f"cut short: 2 of {n} numbers")


@section
def a_file_that_one_rank_cannot_see_is_told_with_the_rank():
    def pieces(*_):
        raise FileNotFoundError(2, "No such file")

    n = 2 * COMM.size
    rows = Rows(np.arange(0, n + 1, 2), COMM.size, COMM.rank)
    last = COMM.size - 1
    with folder() as place:
        lines = "".join(f"{i} {i} 1\n" for i in range(1, n + 1))
        path = written(place / "a.mtx", REAL + f"{n} {n} {n}\n" + lines)
        with patch.object(matrix_market, "pieces", pieces if COMM.rank == last else matrix_market.pieces):
            words = "a.mtx: no such file; give the path of a .mtx or .npz file" + (
                f" (on rank {last}; " if last else ""
            )
            yield from other_words(lambda: files.read(path, COMM, rows), words)
            if last:
                files.read(path, COMM, rows, "root")


@section
def a_vector_is_dealt_to_the_owners():
    expected = np.random.default_rng(4).standard_normal(64)
    with (
        folder() as place,
        patch.object(matrix_market, "PIECE", 200),
        patch.object(files, "VECTOR_PIECE", 20),
    ):
        for path in (
            saved(
                place / "b.mtx", lambda path: scipy.io.mmwrite(path, expected.reshape(-1, 1), precision=17)
            ),
            saved(place / "b.npy", lambda path: np.save(path, expected)),
        ):
            for layout, rows in layouts(64, 5):
                if files.vector(path, COMM, rows).tobytes() != expected[rows.global_rows()].tobytes():
                    yield f"{path.name}, {layout}"


@section
def the_first_pair_across_the_diagonal_is_the_same_on_all_ranks():
    a = random_matrix(40, 5)
    a = (a + a.T).tolil()
    for changes in ((), ((31, 7, 0.5),), ((31, 7, 0.5), (7, 39, 2.0)), ((39, 38, -1.0), (2, 20, 1e-300))):
        dense = a.toarray()
        for i, j, value in changes:
            dense[i, j] = value
        matrix = scipy.sparse.csr_array(dense)
        different = sorted((i, j) for i, j in np.argwhere(dense != dense.T).tolist() if i < j)
        expected = (*different[0], dense[different[0]], dense[different[0][::-1]]) if different else None
        for layout, rows in layouts(40, 3):
            mine = matrix[rows.global_rows()]
            pair = files.symmetry(
                COMM, rows, (mine.indptr.astype(np.int64), mine.indices.astype(np.int64), mine.data)
            )
            if pair != expected:
                yield f"{changes}, {layout}: {pair} instead of {expected}"


if __name__ == "__main__":
    report()
