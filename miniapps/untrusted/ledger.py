"""Ledgers of predictions: one line of JSON per row, chained by hashes. A change, a removal or an insertion of a row
breaks all rows after it.

    {"before":"HASH OF THE ROW BEFORE","hash":"OF THIS ROW","prediction":{...},"time":"2026-11-24T00:33:06+00:00"}

`hash` is the SHA-256, in hex, of the canonical JSON of the row without `hash`: sorted keys, no white space, ASCII, no
NaN. A line must be the canonical JSON of its row, byte for byte. `before` of the first row is START. The hashes show
changed rows. They do not show that rows were removed at the end, except to a reader who knows a later hash, such as a
run that was started with the ledger.

A row may have an `anchor`, a text that nobody knew before a certain day. Then this row and all after it are younger.
`time` comes from the writer's own clock and shows nothing to others.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import time
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from typing import Annotated, Any, BinaryIO

import msgspec
from msgspec import Meta

from miniapps.untrusted import records
from miniapps.untrusted.prediction import Prediction, Sha256, from_dict
from miniapps.untrusted.regular import Refused, open_regular
from miniapps.untrusted.text import printable

START = "0" * 64  # `before` of the first row
MOST = 256 * 2**20  # bytes of a ledger: a row takes some 2 kB
LINE_MOST = 2**20  # bytes of a row
ANCHOR_MOST = 1000  # letters
WAIT_S = 10.0  # for the lock; an append holds it for milliseconds


class _Line(msgspec.Struct, forbid_unknown_fields=True):
    """A line of the file."""

    before: Sha256
    hash: Sha256
    prediction: dict[str, Any]
    time: Annotated[str, Meta(max_length=40)]
    anchor: Annotated[str, Meta(min_length=1, max_length=ANCHOR_MOST)] | msgspec.UnsetType = msgspec.UNSET


@dataclass(frozen=True)
class Row:
    """A row: its `number` (its line, from 1), the `time` of its append (UTC, ISO 8601), the hash of the row `before`,
    its own hash, its prediction and its `anchor`, empty without one."""

    number: int
    time: str
    before: str
    hash: str
    prediction: Prediction
    anchor: str = ""


@dataclass(frozen=True)
class Ledger:
    """All rows of a checked ledger, oldest first."""

    path: str
    rows: list[Row]

    @property
    def head(self) -> str:
        """The hash of the last row; START without rows."""
        return self.rows[-1].hash if self.rows else START


def canonical(content: Any) -> bytes:
    """The canonical JSON of `content`, for hashing; raises ValueError for NaN and infinities."""
    return json.dumps(content, sort_keys=True, separators=(",", ":"), allow_nan=False).encode()


def hash_of(before: str, when: str, prediction: dict[str, Any], anchor: str = "") -> str:
    """The hash of a row."""
    return hashlib.sha256(canonical(_content(before, when, prediction, anchor))).hexdigest()


def line_of(before: str, when: str, prediction: dict[str, Any], anchor: str = "") -> bytes:
    """The line of a row, with its line feed."""
    row = {"hash": hash_of(before, when, prediction, anchor)}
    return canonical(_content(before, when, prediction, anchor) | row) + b"\n"


def _content(before: str, when: str, prediction: dict[str, Any], anchor: str) -> dict[str, Any]:
    return {"before": before, "prediction": prediction, "time": when} | ({"anchor": anchor} if anchor else {})


def read_ledger(path: str | os.PathLike) -> Ledger:
    """Reads the ledger in the file `path` and checks the whole chain.

    Raises Refused, with file and line, for edited, removed, moved or doubled rows, an unfinished line and a line that
    is no row; OSError if it cannot be read.
    """
    with open_regular(path, MOST, links=True) as file:
        lock(file, fcntl.LOCK_SH, os.fspath(path))
        return read_open(file, printable(os.fspath(path)))


def read_open(file: BinaryIO, where: str) -> Ledger:
    """Reads a ledger as `read_ledger`, from a `file` that is open and locked; `where` names it."""
    return Ledger(where, list(_rows(file, where)))


def lock(file: BinaryIO, how: int, path: str) -> None:
    """Lock the open `file` against appends; with LOCK_EX also against readers.

    Raises Refused if another process keeps its lock for WAIT_S, and, for LOCK_EX, if the file system has no locks.
    Readers need no lock there, since they check every row."""
    until = time.monotonic() + WAIT_S
    while True:
        try:
            fcntl.flock(file, how | fcntl.LOCK_NB)
            return
        except BlockingIOError:
            if time.monotonic() > until:
                raise Refused(
                    f"{printable(path)}: another process has locked it for {WAIT_S:.0f} s; end that process "
                    f"(`fuser {printable(path)}` names it)"
                ) from None
            time.sleep(0.005)
        except OSError as error:
            if how == fcntl.LOCK_SH:
                return
            raise Refused(
                f"{printable(path)}: its file system has no locks ({error.strerror}), and two appends at once would "
                "damage the ledger; keep it on another file system, such as that of your home directory"
            ) from None


def _rows(file: BinaryIO, where: str) -> Iterator[Row]:
    seen: dict[str, int] = {}
    head, number = START, 0
    while line := file.readline(LINE_MOST + 1):
        number += 1
        row = _row(line, number, f"{where}: line {number}")
        if row.before != head:
            raise Refused(f"{where}: line {number}: {_out_of_place(row, seen)}; {_REMEDY}")
        head, seen[row.hash] = row.hash, number
        yield row


_REMEDY = "rows may only be appended: restore the ledger from a copy"


def _row(line: bytes, number: int, where: str) -> Row:
    """The row in `line`; raises Refused unless it is the canonical JSON of a row with the right hash."""
    if len(line) > LINE_MOST:
        raise Refused(f"{where}: more than {LINE_MOST:,} bytes, which no row has; {_REMEDY}")
    if not line.endswith(b"\n"):
        raise Refused(f"{where}: is not finished: it was cut, or its append was stopped; remove this line")
    known = records.decode(line[:-1], _Line, where)
    anchor = known.anchor if isinstance(known.anchor, str) else ""
    content = known.before, known.time, known.prediction, anchor
    try:
        right = hash_of(*content)
        same = line == line_of(*content)
    except (ValueError, RecursionError) as error:
        raise Refused(
            f"{where}: is not what this program writes ({printable(str(error))}); {_REMEDY}"
        ) from None
    if not same:
        what = "was changed" if known.hash != right else "is not written as this program writes a row"
        raise Refused(
            f"{where}: {what} (its hash is {known.hash[:12]}..., and it hashes to {right[:12]}...); {_REMEDY}"
        )
    try:
        if datetime.fromisoformat(known.time).tzinfo is None:
            raise ValueError("no time zone")
    except ValueError:
        raise Refused(
            f"{where}: {printable(known.time)!r} is no time in ISO 8601 with its zone; {_REMEDY}"
        ) from None
    return Row(number, known.time, known.before, known.hash, from_dict(known.prediction, where), anchor)


def _out_of_place(row: Row, seen: dict[str, int]) -> str:
    """A phrase that says why a row cannot follow the row before it."""
    if row.hash in seen:
        return f"is line {seen[row.hash]} again"
    if row.before in seen:
        return f"comes after line {seen[row.before]}: the rows between were put in, or the order was changed"
    if row.before == START:
        return "is the first row of a ledger, in the middle of another"
    return f"comes after a missing row ({row.before[:12]}...): rows were removed, changed or moved"
