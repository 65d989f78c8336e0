"""Matrices and vectors from files, read by one rank: what is read, and what is refused with which words.

The oracle is scipy.io.mmread, but for text that it takes in part: there an error is right.
"""

import gzip
import io
import re
import zipfile

import numpy as np
import pytest
import scipy.io
import scipy.sparse
from mpi4py import MPI

from miniapps.layout.rows import Rows
from miniapps.solver import files, matrix_market, scipy_npz
from miniapps.solver.files import FileError, MatrixFile
from tests.miniapps.drawn_matrices import Case, trouble
from tests.shared_data import shared_data

COMM = MPI.COMM_SELF

REAL = "%%MatrixMarket matrix coordinate real general\n"
ARRAY = "%%MatrixMarket matrix array real general\n"
TEXTS = {
    "plain": REAL + "3 3 4\n1 1 1.5\n3 2 -2e-3\n2 2 .5E+2\n3 3 7.\n",
    "comments": REAL + "% by hand\n%\n\n%3 3 4\n3 3 3\n1 1 1\n2 2 2\n3 3 3\n",
    "blank lines": REAL + "\n  \n3 3 3\n\n1 1 1\n\n \t\n2 2 2\n3 3 3\n\n\n",
    "CRLF": (REAL + "% x\n3 3 3\n1 1 1\n\n2 2 2\n3 3 3\n").replace("\n", "\r\n"),
    "no final newline": REAL + "3 3 3\n1 1 1\n2 2 2\n3 3 3.25",
    "spaces": REAL + " 3\t3   3 \n  1 1   1\n2\t2\t2  \n 3 3 3\n",
    "upper case": "%%MatrixMarket MATRIX Coordinate REAL General\n1 1 1\n1 1 1e300\n",
    "double": "%%MatrixMarket matrix coordinate double general\n1 1 1\n1 1 0.1\n",
    "integer": "%%MatrixMarket matrix coordinate integer general\n2 2 2\n1 1 -9007199254740992\n2 2 0\n",
    "large integers": "%%MatrixMarket matrix coordinate integer general\n2 2 2\n1 1 1152921504606846976\n2 2 3\n",
    "symmetric": "%%MatrixMarket matrix coordinate real symmetric\n3 3 5\n1 1 5\n2 1 3\n3 1 -0.0\n2 2 1\n3 3 2\n",
    "upper triangle": "%%MatrixMarket matrix coordinate real symmetric\n2 2 3\n1 1 5\n1 2 4\n2 2 1\n",
    "duplicates of a triangle": "%%MatrixMarket matrix coordinate real symmetric\n2 2 4\n1 1 5\n2 1 3\n2 1 4\n2 2 1\n",
    "skew": "%%MatrixMarket matrix coordinate real skew-symmetric\n3 3 2\n2 1 3\n3 1 -0.0\n",
    "duplicates": REAL + "2 2 5\n2 2 1\n1 1 2\n2 2 4\n2 1 0\n1 1 -2\n",
}


@pytest.fixture
def write(tmp_path):
    def write(content, name="matrix.mtx"):
        path = tmp_path / name
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
        return path

    return write


def rows_of(n, step=2):
    return Rows(np.append(np.arange(0, n, step), n))


def refusal(call, *arguments):
    with pytest.raises(FileError) as caught:
        call(*arguments)
    return str(caught.value)


def pieces_of(path, parts):
    """The entries that `parts` ranks read, one rank after the other."""
    file = files.header(path)
    if file.kind == "Matrix Market":
        pieces = [
            p
            for part in range(parts)
            for p in matrix_market.pieces(matrix_market.entries_of(file), part, parts)
        ]
    else:
        pieces = [p for part in range(parts) for p in scipy_npz.pieces(file, part, parts)]
    return [np.concatenate(column) for column in zip(*pieces, strict=True)]


@pytest.mark.parametrize("name", TEXTS)
def test_matrix_market_is_what_scipy_reads(write, name):
    path = write(TEXTS[name])
    expected = scipy.io.mmread(path).tocsr()
    expected.sort_indices()
    n = expected.shape[0]
    indptr, columns, data = files.read(path, COMM, rows_of(n))
    assert indptr.tolist() == expected.indptr.tolist() and columns.tolist() == expected.indices.tolist()
    assert data.tobytes() == expected.data.astype(np.float64).tobytes()
    assert (indptr.dtype, columns.dtype, data.dtype) == (np.int64, np.int64, np.float64)


@pytest.mark.parametrize("piece", [1, 9, 30, 1 << 20])
@pytest.mark.parametrize("name", TEXTS)
def test_any_cut_of_the_text_gives_the_same_entries(write, monkeypatch, name, piece):
    path = write(TEXTS[name])
    whole = pieces_of(path, 1)
    monkeypatch.setattr(matrix_market, "PIECE", piece)
    for parts in (1, 2, 3, 7, 100):
        for column, expected in zip(pieces_of(path, parts), whole, strict=True):
            assert column.tobytes() == expected.tobytes()


@pytest.mark.parametrize("kind", ["csr", "csc", "coo"])
@pytest.mark.parametrize("compressed", [True, False])
@pytest.mark.parametrize("make", [scipy.sparse.coo_array, scipy.sparse.coo_matrix])
def test_scipys_files_are_what_scipy_reads(tmp_path, monkeypatch, kind, compressed, make):
    monkeypatch.setattr(scipy_npz, "PIECE", 7)
    rng = np.random.default_rng(1)
    dense = rng.standard_normal((20, 20)) * (rng.random((20, 20)) < 0.2)
    dense[5], dense[:, 7], dense[5, 5] = 0, 0, 1  # a row of one entry, an empty column
    for data in (dense + np.eye(20), (100 * dense).astype(np.int16) + np.eye(20, dtype=np.int16)):
        matrix = make(data)
        path = tmp_path / "matrix.npz"
        scipy.sparse.save_npz(path, matrix.asformat(kind), compressed=compressed)
        assert files.header(path) == MatrixFile(
            kind, "real" if data.dtype == float else "integer", "general", 20, 20, matrix.nnz, path
        )
        expected = scipy.sparse.csr_array(scipy.sparse.load_npz(path))
        expected.sort_indices()
        indptr, columns, values = files.read(path, COMM, rows_of(20))
        assert indptr.tolist() == expected.indptr.tolist() and columns.tolist() == expected.indices.tolist()
        assert values.tobytes() == expected.data.astype(np.float64).tobytes()
        whole = pieces_of(path, 1)
        for parts in (2, 5, 300):
            for column, once in zip(pieces_of(path, parts), whole, strict=True):
                assert column.tobytes() == once.tobytes()


def test_words_of_the_banner_have_any_case(write):
    """Which SciPy does not read."""
    path = write("%%matrixMARKET Matrix COORDINATE real General\n1 1 1\n1 1 2\n")
    assert files.read(path, COMM, rows_of(1))[2].tolist() == [2.0]


def test_zeros_may_lie_on_the_diagonal_of_a_skew_symmetric_matrix(write):
    path = write("%%MatrixMarket matrix coordinate real skew-symmetric\n2 2 3\n1 1 0\n2 1 3\n2 2 -0.0\n")
    assert files.read(path, COMM, rows_of(2))[2].tolist() == [0.0, -3.0, 3.0, 0.0]


def test_a_header_is_told_without_reading_the_entries(write):
    path = write("%%MatrixMarket matrix coordinate integer symmetric\n% note\n5 5 9\n")
    header = files.header(str(path))
    assert (header.kind, header.field, header.symmetry) == ("Matrix Market", "integer", "symmetric")
    assert (header.rows, header.columns, header.entries, header.path) == (5, 5, 9, path)


def test_duplicates_are_added_in_the_order_of_the_file(write):
    values = (1e16, 1.0, 1.0, -1e16, 3.0, 0.1)
    path = write(REAL + f"1 1 {len(values)}\n" + "".join(f"1 1 {value!r}\n" for value in values))
    total = 0.0
    for value in values:
        total += value
    assert files.read(path, COMM, rows_of(1))[2].tolist() == [total] and total != sum(sorted(values))


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        ("", "line 1: not a Matrix Market file, which begins with %%MatrixMarket"),
        ("3 3 3\n1 1 1\n", "line 1: not a Matrix Market file"),
        (
            "%%MatrixMarket vector coordinate real general\n",
            "object 'vector' cannot be read; allowed: matrix",
        ),
        (
            "%%MatrixMarket matrix array real general\n2 2\n1\n2\n3\n4\n",
            "'array' is a dense matrix; a sparse one is needed",
        ),
        (
            "%%MatrixMarket matrix coordinate complex general\n",
            "the numbers are complex; a system to solve needs real numbers",
        ),
        (
            "%%MatrixMarket matrix coordinate real hermitian\n",
            "'hermitian' cannot be read; allowed: general, symmetric, skew-",
        ),
        (
            "%%MatrixMarket matrix coordinate pattern symmetric\n",
            "a pattern has places of entries but no values; a system to solve needs real numbers",
        ),
        (
            "%%MatrixMarket matrix coordinate quaternion general\n",
            "field 'quaternion' cannot be read; allowed: real, double",
        ),
        ("\n" + REAL, "line 1: blanks before %%MatrixMarket, with which the file must begin; remove them"),
        ("  " + REAL, "line 1: blanks before %%MatrixMarket"),
        (
            "\ufeff" + REAL,
            "line 1: the file begins with a byte-order mark, and must begin with %%MatrixMarket",
        ),
        (REAL.encode("utf-16"), "line 1: the file begins with a byte-order mark"),
        (
            (REAL + "1 1 1\n1 1 2\n").replace("\n", "\r"),
            "lines end with a carriage return alone; convert them: tr",
        ),
        (
            gzip.compress((REAL + "1 1 1\n1 1 2\n").encode(), mtime=0),
            "compressed by gzip, and ranks cannot read parts of it",
        ),
        ("%%MatrixMarket matrix coordinate\n", "field 'nothing'"),
        (REAL, "cut short: it ends before the line 'rows columns entries'"),
        (REAL + "% a\n2 2\n", "line 3: '2 2' is not 'rows columns entries'"),
        (REAL + "2 -2 1\n", "line 2: '2 -2 1' is not 'rows columns entries'"),
        (REAL + "2 3 1\n", "2 x 3; a system to solve has as many rows as columns"),
        (REAL + "0 0 0\n", "0 x 0; a system to solve"),
        (b"\x93NUMPY\x01\x00", "a dense array of NumPy; a sparse matrix is needed"),
        (b"PK\x03\x04 and nothing", "the file is cut short or damaged"),
    ],
)
def test_what_is_no_matrix_is_refused_with_what_would_be(write, content, reason):
    path = write(content)
    message = refusal(files.header, path)
    assert reason in message and str(path) in message


def test_files_that_cannot_be_opened(tmp_path):
    assert "no such file" in refusal(files.header, tmp_path / "absent.mtx")
    assert "is a directory, and only regular files are read" in refusal(files.header, tmp_path)


NO_LINES = """
2 2 1D-3|2 2 1.0-3|2 2 1 5|2 2 0x10|2 2 1,5|2 2 +1|2 2 1e|2 2 1.2.3|2 2 one|2 2|2|2.0 2 1|-2 2 1|% 2 2 1|2 2 1;
2 2 1 % why|2 2 --1|2 2 .|2 2 1 \r3 3 3
""".strip()


@pytest.mark.parametrize("line", re.split(r"[|\n]", NO_LINES))
def test_a_line_that_is_not_of_the_format_is_named(write, line):
    path = write(REAL + "% one\n3 3 3\n\n1 1 1\n" + line + "\n3 3 3\n")
    message = refusal(files.read, path, COMM, rows_of(3))
    assert f"{path}, line 6: {line!r} is not 'row column number'" in message


@pytest.mark.parametrize(
    ("field", "line", "wanted"),
    [
        ("integer", "2 2 1.5", "row column integer"),
        ("integer", "2 2 1e3", "row column integer"),
    ],
)
def test_a_number_of_another_field_is_refused(write, field, line, wanted):
    path = write(REAL.replace("real", field) + "3 3 2\n" + line + "\n3 3 3\n")
    assert f"line 3: {line!r} is not {wanted!r}" in refusal(files.read, path, COMM, rows_of(3))


@pytest.mark.parametrize("piece", [8, 1 << 22])
@pytest.mark.parametrize(
    ("symmetry", "lines", "reason"),
    [
        (
            "symmetric",
            "2 1 1\n1 1 4\n\n1 2 1\n",
            "line 3 and line 6: a symmetric file holds one triangle, and",
        ),
        (
            "symmetric",
            "1 1 4\n1 2 1\n2 2 5\n2 1 -1\n",
            "line 6 and line 4: a symmetric file holds one triangle",
        ),
        ("skew-symmetric", "2 1 1\n1 2 -1\n", "line 3 and line 4: a skew-symmetric file holds one triangle"),
        (
            "skew-symmetric",
            "2 1 1\n2 2 3\n",
            "line 4: 3 in row and column 2, and a skew-symmetric matrix has zeros",
        ),
    ],
)
def test_entries_that_a_symmetric_file_does_not_have_are_named(
    write, monkeypatch, symmetry, lines, reason, piece
):
    monkeypatch.setattr(matrix_market, "PIECE", piece)
    count = sum(bool(line) for line in lines.split("\n"))
    path = write(REAL.replace("general", symmetry) + f"2 2 {count}\n" + lines)
    message = refusal(files.read, path, COMM, rows_of(2, 1))
    assert reason in message and str(path) in message


LARGE = 9007199254740993
AS_FLOAT = (
    "the integer 9007199254740993 would become 9007199254740992, "
    "since float64 holds only some integers beyond 2^53"
)


def test_integers_that_float64_does_not_hold_are_named(write, tmp_path):
    text = f"%%MatrixMarket matrix coordinate integer general\n2 2 2\n1 1 3\n2 2 {LARGE}\n"
    assert f"line 4: {AS_FLOAT}" in refusal(files.read, write(text), COMM, rows_of(2))
    for kind in ("int64", "uint64"):
        matrix = scipy.sparse.coo_array(np.diag(np.array([3, LARGE], kind)))
        scipy.sparse.save_npz(tmp_path / "a.npz", matrix)
        assert f"entry 2: {AS_FLOAT}" in refusal(files.read, tmp_path / "a.npz", COMM, rows_of(2))
        np.save(tmp_path / "b.npy", np.array([LARGE, 1], kind))
        assert f"element 1: {AS_FLOAT}" in refusal(files.vector, tmp_path / "b.npy", COMM, rows_of(2))
    vector = write(f"%%MatrixMarket matrix array integer general\n2 1\n5\n{LARGE}\n", "b.mtx")
    assert f"line 4: {AS_FLOAT}" in refusal(files.vector, vector, COMM, rows_of(2))
    np.save(tmp_path / "b.npy", np.array([2**63 - 1024, -(2**63)]))
    assert files.vector(tmp_path / "b.npy", COMM, rows_of(2)).tolist() == [2.0**63 - 1024, -(2.0**63)]


@pytest.mark.parametrize(
    ("lines", "reason"),
    [
        ("1 1 1\n2 4 1\n3 3 3\n", "line 5: row 2, column 4 is outside the 3 x 3 matrix"),
        (f"1 1 1\n{'9' * 400} 1 1\n3 3 3\n", "line 5: row inf, column 1 is outside the 3 x 3 matrix"),
        ("1 1 1\n0 2 1\n3 3 3\n", "line 5: row 0, column 2 is outside"),
        ("1 1 1\n12345678901 2 1\n3 3 3\n", "line 5: row 12345678901, column 2 is outside"),
        ("1 1 1\n2 2 nan\n3 3 3\n", "line 5: '2 2 nan': row 2, column 2 is not finite"),
        ("1 1 1\n2 2 -Inf\n3 3 3\n", "line 5: '2 2 -Inf': row 2, column 2 is not finite"),
        ("1 1 1\n\n2 2 1e400\n3 3 3\n", "line 6: row 2, column 2 is inf; entries must be finite"),
        ("1 1 1\n3 3 3\n", "cut short: 2 of 3 entries"),
        ("1 1 1\n2 2 2\n3 3", "line 6: '3 3': the file is cut short in its last line"),
        ("1 1 1\n2 2 2\n3 3 1.5e-", "line 6: '3 3 1.5e-': the file is cut short in its last line"),
        ("1 1 1\n2 2 2\n3 3 3\n1 2 3\n", "4 entries, but the size announces 3"),
        ("1 1 1\n1 2 1\n1 3 1\n", "row 2 has no entry (counted from 1; 2 of 3 rows have none)"),
    ],
)
@pytest.mark.parametrize("piece", [8, 1 << 22])
def test_entries_that_cannot_be_used_are_named(write, monkeypatch, lines, reason, piece):
    monkeypatch.setattr(matrix_market, "PIECE", piece)
    path = write(REAL + "%\n3 3 3\n" + lines)
    message = refusal(files.read, path, COMM, rows_of(3))
    assert reason in message and str(path) in message


def npz(path, **arrays):
    np.savez(path, **arrays)
    return path


def test_npz_files_that_cannot_be_used_are_named(tmp_path):
    path = tmp_path / "matrix.npz"
    good = {"format": b"csr", "shape": [2, 2], "data": [1.0, 2.0], "indices": [0, 1], "indptr": [0, 1, 2]}
    coo = {"format": b"coo", "shape": [2, 2], "data": [1.0, 2.0], "row": [0, 1], "col": [0, 1]}
    for change, reason in (
        ({"format": b"bsr"}, "format 'bsr' cannot be read; allowed: csr, csc, coo"),
        ({"data": np.array([1j, 2])}, "entries of type complex128; real ones are needed"),
        ({"shape": [2, 3]}, "2 x 3; a system to solve"),
        ({"indices": [0, 2]}, "entry 2: row 2, column 3 is outside the 2 x 2 matrix"),
        ({"indices": [0, -1]}, "entry 2: row 2, column 0 is outside"),
        (
            {"indices": [0]},
            "array 'indices' is of type int64 and shape (1,); a csr matrix of 2 x 2 with 2 entries has",
        ),
        ({"data": [1.0, np.nan]}, "entry 2: row 2, column 2 is nan; entries must be finite"),
        ({"indptr": [0, 1, 1]}, "'indptr' ends with 1, but there are more entries"),
        ({"indptr": [1, 1, 2]}, "'indptr' begins with 1 instead of 0"),
        ({"indptr": [0, 2, 1]}, "'indptr' falls"),
        ({"indptr": [0, 2, 2]}, "row 2 has no entry (counted from 1; 1 of 2 rows have none)"),
    ):
        message = refusal(files.read, npz(path, **good | change), COMM, rows_of(2))
        assert reason in message and str(path) in message
    assert "no array 'col'" in refusal(
        files.read, npz(path, **{k: v for k, v in coo.items() if k != "col"}), COMM, rows_of(2)
    )
    assert "not a sparse matrix, but arrays labels, train" in refusal(
        files.header, npz(path, labels=[1], train=[2])
    )
    npz(path, **good)
    path.write_bytes(path.read_bytes()[:-40])
    assert "the file is cut short or damaged" in refusal(files.header, path)
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("format.npy", b"nothing of NumPy")
        archive.writestr("data.npy", b"nothing of NumPy")
    assert "array 'format': it does not begin like a file of numpy.save" in refusal(files.header, path)


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (
            REAL + f"{10**12} {10**12} {10**12}\n1 1 1\n",
            "1000000000000 entries take at least 6000000000000 bytes",
        ),
        (REAL + f"{10**12} {10**12} 3\n1 1 1\n2 2 2\n3 3 3\n", "at least 999999999997 rows have no entry"),
        (REAL + f"{'9' * 5000} 3 3\n", "is not 'rows columns entries', of at most 18 digits"),
        (REAL + "% no end\n" * 10_000, "it ends before the line 'rows columns entries'"),
        (
            REAL + "2 2 2\n1 1 1\n2 2 2\n" + " " * (1 << 17),
            "bytes follow the header, far more than 2 entries take",
        ),
        (ARRAY + f"{10**12} 1\n1\n", "1000000000000 entries take at least 2000000000000 bytes"),
    ],
    ids=["entries", "rows", "digits", "comments", "room", "vector"],
)
def test_a_header_that_claims_more_than_the_file_holds_is_refused_by_itself(
    write, monkeypatch, content, reason
):
    monkeypatch.setattr(matrix_market, "HEADER", 1 << 16)
    path = write(content)
    assert reason in refusal(files.check_vector if content.startswith(ARRAY) else files.header, path)


def test_a_line_without_an_end_is_not_read_to_its_end(write, monkeypatch):
    monkeypatch.setattr(matrix_market, "PIECE", 64)
    monkeypatch.setattr(matrix_market, "LONGEST", 4096)
    path = write(REAL + "2 2 2\n1 1 1\n2 2 " + "2" * 10_000)
    for part in range(2):  # the third begins near the end
        with pytest.raises(FileError, match="a line of more than 4096 bytes"):
            list(matrix_market.pieces(matrix_market.entries_of(files.header(path)), part, 3))


def zipped(path, kind=zipfile.ZIP_DEFLATED, **members):
    """An archive of arrays, or of what is to stand in their place."""
    with zipfile.ZipFile(path, "w", kind) as archive:
        for name, content in members.items():
            if not isinstance(content, bytes):
                stream = io.BytesIO()
                np.save(stream, np.asarray(content))
                content = stream.getvalue()
            archive.writestr(f"{name}.npy", content)
    return path


def claimed(array, shape):
    """The bytes of an array whose header claims another shape."""
    stream = io.BytesIO()
    np.lib.format.write_array_header_1_0(
        stream, {"descr": array.dtype.str, "fortran_order": False, "shape": shape}
    )
    return stream.getvalue() + array.tobytes()


def test_arrays_of_an_archive_are_not_believed_beyond_what_it_holds(tmp_path):
    path = tmp_path / "matrix.npz"
    good = {
        "format": np.array(b"csr"),
        "shape": [2, 2],
        "data": [1.0, 2.0],
        "indices": [0, 1],
        "indptr": [0, 1, 2],
    }
    assert files.header(zipped(path, **good)).entries == 2
    for change, reason in (
        (
            {"data": claimed(np.ones(2), (10**12,))},
            "'data' announces 8000000000000 bytes, but the file has 16 of it",
        ),
        ({"data": claimed(np.ones(2), (2**62, 2**62))}, "'data' announces"),
        (
            {"data": claimed(np.ones(2), (-2,))},
            "its header announces elements of type float64 in the shape (-2,)",
        ),
        (
            {"data": b"\x93NUMPY\x02\x00" + b"\xff" * 4},
            "its header claims 4294967295 bytes, and at most 10000",
        ),
        ({"data": b"\x93NUMPY\x01\x00\x50\x00" + b"[" * 80}, "array 'data': its header cannot be read"),
        ({"indices": ["a", "b"]}, "array 'indices' is of type <U1 and shape (2,)"),
        ({"indices": [0.0, 1.0]}, "array 'indices' is of type float64"),
        ({"indptr": [0, 1, 2, 2]}, "array 'indptr' is of type int64 and shape (4,)"),
        ({"shape": [2.0, np.inf]}, "array 'shape' is of type float64 and shape (2,); two integers"),
        ({"shape": [2, 2, 2]}, "array 'shape' is of type int64 and shape (3,); two integers"),
        ({"shape": [-2, -2], "indptr": [0]}, "array 'indptr'"),
        ({"format": np.zeros(1_000_000)}, "array 'format' has the shape (1000000,)"),
        ({"format": np.array([b"csr", b"csr"])}, "format 'None'"),
        ({f"x{i}": [1] for i in range(200)}, "205 arrays"),
        ({"data": np.array([{}, {}], object).tobytes()}, "array 'data': it does not begin"),
    ):
        assert reason in refusal(files.header, zipped(path, **good | change)), reason
    for kind in (zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA):
        assert "stored in a way that SciPy does not use" in refusal(files.header, zipped(path, kind, **good))


def test_an_archive_whose_directory_is_large_is_not_read(tmp_path, monkeypatch):
    monkeypatch.setattr(scipy_npz, "AT_ONCE", 4096)
    path = zipped(tmp_path / "matrix.npz", **{f"x{i}": b"" for i in range(2000)})
    assert "would be read at once" in refusal(files.header, path)


def test_damage_of_any_byte_of_an_array_is_noticed(tmp_path):
    """By a check of what is read, or by the checksum that the archive keeps of each array."""
    n = 6
    good = {
        "format": np.array(b"csr"),
        "shape": [n, n],
        "data": np.arange(1.0, n + 1),
        "indices": np.arange(n),
    }
    path = zipped(tmp_path / "matrix.npz", zipfile.ZIP_STORED, **good, indptr=np.arange(n + 1))
    content = path.read_bytes()
    with zipfile.ZipFile(path) as archive:
        info = {i.filename: i for i in archive.infolist()}
    for name, length in (("data", 8 * n), ("indices", 8 * n), ("indptr", 8 * (n + 1))):
        begin = content.index(b"\x93NUMPY", info[f"{name}.npy"].header_offset) + 128
        for at in range(begin, begin + length, 3):
            path.write_bytes(content[:at] + bytes([content[at] ^ 4]) + content[at + 1 :])
            refusal(files.read, path, COMM, rows_of(n))
    path.write_bytes(content)
    assert files.read(path, COMM, rows_of(n))[2].tolist() == good["data"].tolist()


def test_blocks_of_another_matrix_and_unknown_ways_are_refused(write):
    path = write(TEXTS["plain"])
    with pytest.raises(ValueError, match="has 3 rows, but the blocks hold 4"):
        files.read(path, COMM, rows_of(4))
    with pytest.raises(ValueError, match="choose among parallel, root"):
        files.read(path, COMM, rows_of(3), "alone")


def test_more_rows_than_an_index_can_tell_ask_for_more_ranks(write, monkeypatch):
    monkeypatch.setattr(files, "INDEX_MAX", 20)
    path = write(REAL + "50 50 1\n1 1 1\n")
    message = refusal(files.read, path, COMM, Rows(np.array([0, 50])))
    assert "50 of 50 rows on one rank" in message and "start at least 3 ranks" in message


@pytest.mark.parametrize("piece", [2, 1 << 18])
def test_vectors_come_from_matrix_market_and_numpy(write, tmp_path, monkeypatch, piece):
    monkeypatch.setattr(matrix_market, "PIECE", piece)
    monkeypatch.setattr(files, "VECTOR_PIECE", piece)
    expected = np.random.default_rng(1).standard_normal(7)
    scipy.io.mmwrite(tmp_path / "b.mtx", expected.reshape(-1, 1), precision=17)
    np.save(tmp_path / "b.npy", expected)
    np.save(tmp_path / "column.npy", np.asfortranarray(expected.reshape(-1, 1)))
    for name in ("b.mtx", "b.npy", "column.npy"):
        assert files.vector(tmp_path / name, COMM, rows_of(7)).tobytes() == expected.tobytes()
    np.save(tmp_path / "integers.npy", np.arange(7, dtype=np.int8))
    assert files.vector(tmp_path / "integers.npy", COMM, rows_of(7)).tolist() == list(range(7))
    assert files.vector(write(ARRAY + "%\n3 1\n\n1\r\n2.5\n 3"), COMM, rows_of(3)).tolist() == [1, 2.5, 3]


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (
            REAL + "3 3 1\n1 1 1\n",
            "'coordinate real general' is not a vector; 'array real general' is needed",
        ),
        (ARRAY + "3 2\n" + 6 * "1\n", "an array of 3 x 2; a vector has one column"),
        (ARRAY + "2 1\n1\n2\n", "2 elements for a matrix of 3 rows"),
        (ARRAY + "3 1\n1\n2\n", "cut short: 2 of 3 numbers"),
        (ARRAY + "3 1\n1\n2\n3\n4\n", "more than the 3 numbers announced"),
        (ARRAY + "3 1\n1\n2 3\n", "line 4: '2 3' is not 'number'"),
        (ARRAY + "3 1\n1\nnan\n3\n", "line 4: 'nan': an element is not finite"),
        (ARRAY + "3 1\n1\n1e999\n3\n", "line 4: row 2, column 1 is inf"),
        (np.array([1.0, 2.0]), "2 elements for a matrix of 3 rows"),
        (np.array([1.0, np.inf, 2.0]), "element 2: row 2, column 1 is inf"),
        (np.array([1j, 2, 3]), "elements of type complex128; real ones are needed"),
        (np.zeros((3, 2)), "an array of shape (3, 2); a vector has one column"),
        (np.zeros((1, 3)), "an array of shape (1, 3); a vector has one column"),
        (np.zeros(()), "an array of shape ()"),
    ],
)
def test_what_is_no_vector_is_refused(write, content, reason):
    if isinstance(content, np.ndarray):
        stream = io.BytesIO()
        np.save(stream, content)
        content = stream.getvalue()
    path = write(content)
    message = refusal(files.vector, path, COMM, rows_of(3))
    assert reason in message and str(path) in message


def test_a_vector_cut_short_is_told(write):
    stream = io.BytesIO()
    np.save(stream, np.zeros(3))
    path = write(stream.getvalue()[:-8])
    assert "the file is cut short or damaged" in refusal(files.vector, path, COMM, rows_of(3))


def entries_of(dense):
    matrix = scipy.sparse.csr_array(dense)
    return matrix.indptr.astype(np.int64), matrix.indices.astype(np.int64), matrix.data


def test_the_first_pair_that_differs_across_the_diagonal():
    dense = np.array([[1.0, 2.0, 0.0, 4.0], [2.0, 1.0, 5.0, 0.0], [0.0, 5.0, 1.0, 7.0], [4.0, 0.0, 7.0, 1.0]])
    assert files.symmetry(COMM, rows_of(4), entries_of(dense)) is None
    for i, j, value in ((0, 1, 3.0), (1, 0, 3.0), (0, 2, -1.0), (3, 2, 0.0), (2, 3, np.nextafter(7.0, 8.0))):
        other = dense.copy()
        other[i, j] = value
        row, column = sorted((i, j))
        expected = (row, column, other[row, column], other[column, row])
        assert files.symmetry(COMM, rows_of(4), entries_of(other)) == expected
        other[3, 1] = 9.0
        assert files.symmetry(COMM, rows_of(4), entries_of(other)) == min(expected, (1, 3, 0.0, 9.0))


def test_zeros_of_either_sign_stored_or_not_are_symmetric():
    indptr, columns, data = np.array([0, 2, 3]), np.array([0, 1, 1]), np.array([1.0, -0.0, 1.0])
    assert files.symmetry(COMM, rows_of(2), (indptr, columns, data)) is None


def test_every_number_that_repr_writes_is_read_to_the_bit(write):
    values = np.random.default_rng(2).integers(0, 1 << 64, 3000, np.uint64).view(np.float64)
    values = values[np.isfinite(values)]
    lines = "".join(f"{i + 1} {i + 1} {value!r}\n" for i, value in enumerate(values.tolist()))
    path = write(REAL + f"{len(values)} {len(values)} {len(values)}\n" + lines)
    assert files.read(path, COMM, rows_of(len(values)))[2].tobytes() == values.tobytes()
    assert re.search(r"e\+", lines) and re.search(r"e-", lines)


@pytest.mark.parametrize("first", [0, 60])
def test_drawn_texts_are_read_as_drawn_or_refused(tmp_path, first):
    found = {seed: trouble(Case(seed), tmp_path / "drawn.mtx") for seed in range(first, first + 60)}
    assert not any(found.values()), found


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("dwt_878", "a pattern has places of entries"),
        ("dwt_992", "a pattern has places of entries"),
        ("young1c", "the numbers are complex"),
        ("w156", "the numbers are complex"),
        ("lp_share1b", "117 x 253; a system to solve has as many rows as columns"),
    ],
)
def test_real_matrices_that_are_no_system_are_refused_in_one_sentence(name, words):
    path = shared_data(f"matrices/{name}.mtx")
    if path is None:
        pytest.skip(f"no shared/data/matrices/{name}.mtx beside the repository")
    message = refusal(files.header, path)
    assert words in message and message.count("\n") == 0


def test_every_other_real_matrix_is_what_scipy_reads():
    one = shared_data("matrices/494_bus.mtx")
    if one is None:
        pytest.skip("no shared/data/matrices beside the repository")
    refused = {"dwt_878", "dwt_992", "young1c", "w156", "lp_share1b"}
    for path in sorted(one.parent.glob("*.mtx")):
        if path.stem not in refused:
            expected = scipy.io.mmread(path).tocsr()
            expected.sort_indices()
            indptr, columns, data = files.read(path, COMM, rows_of(expected.shape[0], 100))
            for ours, theirs in (
                (indptr, expected.indptr),
                (columns, expected.indices),
                (data, expected.data),
            ):
                assert np.array_equal(ours, theirs), path
