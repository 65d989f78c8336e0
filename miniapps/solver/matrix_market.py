"""Reads Matrix Market text in pieces (Boisvert, Pozo, Remington: The Matrix Market Exchange Formats, NISTIR 5935,
1996).

Words of the first line may be in upper or lower case. A symmetric or skew-symmetric file holds one triangle: entries in
both, and a number on the diagonal of a skew-symmetric matrix, are errors. Entries at one place of a triangle are added.

A file can be divided anywhere: a line belongs to the range of bytes in which it begins. A line outside the format is an
error, even where other readers use a part of it: `1D-3` is not a number, and a fourth number is one too many.
"""

import os
import re
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import NamedTuple

import numpy as np

from miniapps.solver.matrixfile import HELD, SLACK, FileError, MatrixFile, first_wrong, not_held, opened

KIND = "Matrix Market"
FIELDS = {"real": "real", "double": "real", "integer": "integer", "unsigned-integer": "integer"}
NO_VALUES = {
    "pattern": "a pattern has places of entries but no values",
    "complex": "the numbers are complex",
}
SYMMETRIES = ("general", "symmetric", "skew-symmetric")
PIECE = 1 << 22  # bytes of text parsed at once
LONGEST = 1 << 16  # bytes of a line
HEADER = 1 << 24  # bytes of banner and comments
SHORTEST = 2  # bytes of a value and the blank or end of line behind it
ROOMY = 1024  # bytes of an entry on average, at most
DIGITS = 18  # of a number of rows or entries, at most: more do not fit into 64 bits

INTEGER = rb"-?+[0-9]++"
REAL = rb"-?+(?:[0-9]++(?:\.[0-9]*+)?|\.[0-9]++)(?:[eE][-+]?+[0-9]++)?"
VALUE = {"real": REAL, "integer": INTEGER}
COMPRESSED = {b"\x1f\x8b": ("gzip", "gunzip"), b"BZh": ("bzip2", "bunzip2"), b"\xfd7zXZ": ("xz", "unxz")}
MARKS = (b"\xef\xbb\xbf", b"\xff\xfe", b"\xfe\xff")  # of byte orders
BANNER = b"%%matrixmarket"
NOT_FINITE = re.compile(r"[-+]?(nan|inf|infinity)", re.IGNORECASE)


class Text(NamedTuple):
    """The lines of a Matrix Market file after its header: `expected` numbers of `field`, with or without `places`."""

    path: Path
    begin: int
    field: str
    places: bool  # row and column before the value
    shape: tuple[int, int]
    expected: int
    symmetry: str = "general"


def header(path: Path) -> MatrixFile:
    """Reads the header of a sparse matrix. Raises FileError unless its numbers are real, and says what is wrong."""
    with opened(path) as file:
        layout, field, symmetry = _banner(path, file)
        if layout != "coordinate":
            raise FileError(
                f"{path}, line 1: {layout!r} is a dense matrix; a sparse one is needed, 'coordinate': write it with "
                "scipy.io.mmwrite(path, scipy.sparse.coo_array(matrix))"
            )
        rows, columns, entries = _sizes(path, file, ("rows", "columns", "entries"))
        _require_room(path, file, entries, 4 + SHORTEST)
        return MatrixFile(KIND, field, symmetry, rows, columns, entries, path, file.tell())


def vector_header(path: Path) -> Text:
    """Reads the header of a vector, an array of one column. Raises FileError unless its numbers are real."""
    with opened(path) as file:
        layout, field, symmetry = _banner(path, file)
        if layout != "array" or symmetry != "general":
            raise FileError(
                f"{path}, line 1: '{layout} {field} {symmetry}' is not a vector; 'array real general' is needed: write "
                "it with scipy.io.mmwrite(path, vector.reshape(-1, 1))"
            )
        rows, columns = _sizes(path, file, ("rows", "columns"))
        if columns != 1:
            raise FileError(
                f"{path}: an array of {rows} x {columns}; a vector has one column: write each by itself"
            )
        _require_room(path, file, rows, SHORTEST)
        return Text(path, file.tell(), field, False, (rows, 1), rows)


def entries_of(file: MatrixFile) -> Text:
    """The lines with the entries of a matrix."""
    shape = file.rows, file.columns
    return Text(file.path, file.begin, file.field, True, shape, file.entries, file.symmetry)


def pieces(text: Text, part: int, parts: int) -> Iterator[tuple[np.ndarray, np.ndarray, np.ndarray]]:
    """Yields part `part` of `parts` of the lines: (rows, columns, values) int64, int64, float64, counted from 0.

    Without places the rows are counted from the first line of the part. Raises FileError for a line outside the format,
    an index out of range, a value that is not finite, an integer beyond float64 and, in a skew-symmetric matrix, a
    number on the diagonal.
    """
    size = text.path.stat().st_size - text.begin
    first, last = (text.begin + size * p // parts for p in (part, part + 1))
    number = re.compile(_line(text))
    lines = re.compile(rb"(?:%s)*" % number.pattern)
    done = 0
    for at, block in _blocks(text, first, last):
        if not lines.fullmatch(block):
            _raise_for_line(text, number, at, block)
        numbers = np.fromstring("" if block.isspace() else block, sep=" ")  # it finds a number in blanks
        numbers = numbers.reshape(-1, 2 * text.places + 1)
        count = len(numbers)
        value = np.ascontiguousarray(numbers[:, -1])
        row, column = (
            (numbers[:, 0] - 1, numbers[:, 1] - 1)
            if text.places
            else (np.arange(done, done + count), np.zeros(count))
        )
        done += count
        if not text.places and done > text.expected:
            raise FileError(
                f"{text.path}: more than the {text.expected} numbers announced; correct one of them"
            )
        first_wrong(
            text.path,
            row,
            column,
            value,
            text.shape,
            partial(_place, text, at, block),
        )
        if text.field == "integer":
            _require_held(text, at, block, value)
        if text.symmetry == "skew-symmetric" and (diagonal := (row == column) & (value != 0)).any():
            entry = int(np.argmax(diagonal))
            raise FileError(
                f"{text.path}, {_place(text, at, block, entry)}: {value[entry]:g} in row and column "
                f"{row[entry] + 1:.17g}, and a skew-symmetric matrix has zeros on its diagonal; correct the entry, or "
                "the word skew-symmetric"
            )
        yield row.astype(np.int64), column.astype(np.int64), value
    if not text.places and done < text.expected:
        raise FileError(
            f"{text.path}: the file is cut short: {done} of {text.expected} numbers; get it again"
        )


def lines_of(text: Text, *places: tuple[int, int]) -> list[str]:
    """The text `line N` for the first entry at each of these places (row, column), counted from 0."""
    found: dict[tuple[int, int], str] = {}
    for at, block in _blocks(text, text.begin, text.path.stat().st_size):
        numbers = np.fromstring("" if block.isspace() else block, sep=" ").reshape(-1, 3)
        for place in places:
            here = (numbers[:, 0] == place[0] + 1) & (numbers[:, 1] == place[1] + 1)
            if place not in found and here.any():
                found[place] = _place(text, at, block, int(np.argmax(here)))
    return [found[place] for place in places]


def _require_held(text: Text, at: int, block: bytes, value: np.ndarray) -> None:
    """Raise FileError for an integer that float64 would change."""
    large = np.flatnonzero(np.abs(value) >= HELD)
    lines = [line for line in block.split(b"\n") if line.strip()] if len(large) else []
    for entry in large.tolist():
        number = int(lines[entry].split()[-1])
        if number != int(value[entry]):
            raise not_held(text.path, _place(text, at, block, entry), number)


def _require_room(path: Path, file, entries: int, shortest: int) -> None:
    """Raise FileError unless `entries` entries, each of `shortest` bytes or more, fit the rest of the file."""
    there = os.fstat(file.fileno()).st_size - file.tell()
    if entries * shortest > there + SLACK:
        raise FileError(
            f"{path}: the file is cut short: {entries} entries take at least {entries * shortest} bytes, and {there} "
            "follow the header; get it again, or correct the size"
        )
    if there > entries * ROOMY + HEADER:
        raise FileError(
            f"{path}: {there} bytes follow the header, far more than {entries} entries take; correct the size, or get "
            "the file again"
        )


def _line(text: Text) -> bytes:
    """The regular expression of a line, blank lines included. The group is atomic, so that no line is matched again for
    the sake of a later one. Groups that are repeated possessively match wrong lines before Python 3.11.5."""
    parts = [rb"[0-9]++", rb"[0-9]++"] * text.places + [VALUE[text.field]]
    return rb"(?>[ \t]*+(?:" + rb"[ \t]++".join(parts) + rb"[ \t]*+)?\r?+\n)"


def _blocks(text: Text, first: int, last: int) -> Iterator[tuple[int, bytes]]:
    """Yields (first byte, whole lines) of the lines that begin in first ... last - 1, each ended by a newline."""
    with opened(text.path) as file:
        file.seek(first)
        if first > text.begin:  # a line that began before belongs to the previous part
            file.seek(first - 1)
            _end_of_line(text, file)
        while (at := file.tell()) < last:
            block = file.read(min(PIECE, last - at))
            if not block.endswith(b"\n"):
                block += _end_of_line(text, file)
            yield at, block if block.endswith(b"\n") else block + b"\n"


def _end_of_line(text: Text, file) -> bytes:
    """The rest of the line, or of the file."""
    rest = file.readline(LONGEST)
    if len(rest) == LONGEST and not rest.endswith(b"\n"):
        raise FileError(
            f"{text.path}: a line of more than {LONGEST} bytes, before byte {file.tell()}; no entry is so long: get "
            "the file again"
        )
    return rest


def _raise_for_line(text: Text, number: re.Pattern, at: int, block: bytes) -> None:
    for line in re.findall(rb".*\n", block):
        if not number.fullmatch(line):
            break
        at += len(line)
    content = line.decode("ascii", "replace").strip()
    where = f"{text.path}, line {_line_number(text, at)}: {content[:60]!r}"
    tokens = content.split()
    if text.places and len(tokens) == 3 and NOT_FINITE.fullmatch(tokens[2]):
        raise FileError(
            f"{where}: row {tokens[0]}, column {tokens[1]} is not finite; correct or leave out this entry"
        )
    if not text.places and NOT_FINITE.fullmatch(content):
        raise FileError(f"{where}: an element is not finite; correct it")
    wanted = "row column " * text.places + {"real": "number", "integer": "integer"}[text.field]
    last = at + len(line) > text.path.stat().st_size  # with the newline that the file lacks
    if last and (len(tokens) < len(wanted.split()) or content[-1:] in "eE+-"):
        raise FileError(f"{where}: the file is cut short in its last line; get it again")
    raise FileError(
        f"{where} is not '{wanted.strip()}', digits as in 12 12 -1.5e-3 (no D for an exponent, no sign +, no comments "
        "after the header); correct the line"
    )


def _place(text: Text, at: int, block: bytes, entry: int) -> str:
    """The text `line N` for an entry of a block that begins at byte `at`."""
    before = [i for i, line in enumerate(block.split(b"\n")) if line.strip()][entry]
    return f"line {_line_number(text, at) + before}"


def _line_number(text: Text, offset: int) -> int:
    """The number, from 1, of the line that holds byte `offset`."""
    count, left = 1, offset
    with opened(text.path) as file:
        while left > 0 and (block := file.read(min(PIECE, left))):
            count += block.count(b"\n")
            left -= len(block)
    return count


def _banner(path: Path, file) -> tuple[str, str, str]:
    """(layout, field, symmetry) of the first line."""
    line = file.readline(LONGEST)
    _require_plain(path, line, file)
    words = line.decode("ascii", "replace").split()
    if not words or words[0].lower() not in ("%%matrixmarket", "%matrixmarket"):
        raise FileError(
            f"{path}, line 1: not a Matrix Market file, which begins with %%MatrixMarket; give a file in this format "
            "(.mtx), or one of scipy.sparse.save_npz (.npz)"
        )
    what, layout, field, symmetry = ([word.lower() for word in words[1:]] + ["nothing"] * 4)[:4]
    for name, word, allowed in (
        ("object", what, ("matrix",)),
        ("layout", layout, ("coordinate", "array")),
        ("field", field, FIELDS),
        ("symmetry", symmetry, SYMMETRIES),
    ):
        if name == "field" and word in NO_VALUES:
            raise FileError(
                f"{path}, line 1: {NO_VALUES[word]}; a system to solve needs real numbers: give a file with the field "
                "real or integer"
            )
        if word not in allowed:
            raise FileError(f"{path}, line 1: {name} {word!r} cannot be read; allowed: {', '.join(allowed)}")
    return layout, FIELDS[field], symmetry


def _require_plain(path: Path, line: bytes, file) -> None:
    """Raise FileError, with the remedy, for a first line that hides the banner."""
    for magic, (name, command) in COMPRESSED.items():
        if line.startswith(magic):
            raise FileError(
                f"{path}: compressed by {name}, and ranks cannot read parts of it; decompress it first: {command} -k "
                f"{path}"
            )
    if line.startswith(MARKS):
        raise FileError(
            f"{path}, line 1: the file begins with a byte-order mark, and must begin with %%MatrixMarket; save it as "
            "plain ASCII text"
        )
    if line[:1].isspace() and (line + file.read(LONGEST)).lstrip().lower().startswith(BANNER):
        raise FileError(
            f"{path}, line 1: blanks before %%MatrixMarket, with which the file must begin; remove them"
        )
    if line.lower().startswith(BANNER) and b"\r" in line.rstrip(b"\r\n"):
        raise FileError(
            f"{path}: lines end with a carriage return alone; convert them: tr '\\r' '\\n' < {path} > NEW.mtx"
        )


def _sizes(path: Path, file, names) -> list[int]:
    """The numbers of the first line that is neither blank nor a comment."""
    number = 1
    while file.tell() < HEADER and (line := file.readline(LONGEST)):
        number += 1
        words = line.split()
        if words and not words[0].startswith(b"%"):
            if len(words) != len(names) or not all(word.isdigit() and len(word) <= DIGITS for word in words):
                text = line.decode("ascii", "replace").strip()
                raise FileError(
                    f"{path}, line {number}: {text[:60]!r} is not '{' '.join(names)}', of at most {DIGITS} "
                    "digits; correct the line"
                )
            return [int(word) for word in words]
    raise FileError(
        f"{path}: the file is cut short: it ends before the line '{' '.join(names)}'; get it again"
    )
