"""The commit record of a trace file: the number of complete rows of each table, and their hashes.

The dataset `committed` is uint64 (rows, 5). It has one row for each table of GROWING: number of rows in full chunks,
number in the tail, the sum of both when all tables were last written together, and the hash of all rows. Two rows hold
the hashes of the root attributes, before and after a change under way. The last row has the repeat and the step at
which all tables were written together, and the hash of the rows above. One write stores the whole record. So a file cut
off at any moment has a record that fits its rows, and a changed byte has none.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import xxhash

from miniapps.trace.schema import GROWING

SHAPE = (len(GROWING) + 3, 5)
_WORDS = struct.Struct(">QQ")


class Hasher:
    """The running hash (XXH3, 128 bits) of the rows of one table: the hash of the hashes of its columns."""

    def __init__(self, table: str):
        self._states = {column: xxhash.xxh3_128() for column in GROWING[table]}

    def add(self, columns: Mapping[str, np.ndarray]) -> None:
        """Add rows, little-endian."""
        for column, state in self._states.items():
            state.update(_bytes(columns[column]))

    def digest(self, columns: Mapping[str, np.ndarray] | None = None) -> bytes:
        """The hash of the rows so far, followed by `columns`."""
        digests = []
        for column, state in self._states.items():
            if columns is not None and len(columns[column]):
                state = state.copy()
                state.update(_bytes(columns[column]))
            digests.append(state.digest())
        return xxhash.xxh3_128_digest(b"".join(digests))


def table_digest(table: str, columns: Mapping[str, np.ndarray]) -> bytes:
    """The hash of all rows of a table."""
    hasher = Hasher(table)
    hasher.add(columns)
    return hasher.digest()


def attributes_digest(attributes: Mapping[str, Any]) -> bytes:
    """The hash of the root attributes as stored in the file, without `complete`."""
    kept = {key: value for key, value in attributes.items() if key != "complete"}
    return xxhash.xxh3_128_digest(json.dumps(kept, sort_keys=True).encode())


@dataclass(frozen=True)
class Commit:
    """The contents of a commit record, by table: `rows` in full chunks, in the order of GROWING, `tail_rows`,
    `digests`. `attributes`: two hashes, one of which is that of the root attributes. `together`: number of rows when
    all tables were last written together, in `at` = (repeat, step); no row of a step before `at` is missing."""

    rows: dict[str, int]
    tail_rows: dict[str, int]
    digests: dict[str, bytes]
    attributes: tuple[bytes, bytes]
    together: dict[str, int]
    at: tuple[int, int] = (0, 0)

    def record(self) -> np.ndarray:
        """The record as an array, uint64 SHAPE, as stored in the file."""
        lines = [
            (
                self.rows[table],
                self.tail_rows[table],
                self.together[table],
                *_WORDS.unpack(self.digests[table]),
            )
            for table in self.rows
        ]
        lines += [(0, 0, 0, *_WORDS.unpack(digest)) for digest in self.attributes]
        record = np.array([*lines, (*self.at, 0, 0, 0)], "<u8")
        record[-1, 3:] = _WORDS.unpack(_closing(record))
        return record


def parse(record: np.ndarray) -> Commit:
    """The inverse of `Commit.record`. Raises ValueError for a damaged record."""
    if record.shape != SHAPE or tuple(record[-1, 3:].tolist()) != _WORDS.unpack(_closing(record)):
        raise ValueError("the commit record is not as it was written")
    lines = dict(zip(GROWING, record.tolist(), strict=False))
    first, second = (_WORDS.pack(*line[3:]) for line in record[-3:-1].tolist())
    repeat, step = record[-1, :2].tolist()
    if any(line[2] > line[0] + line[1] for line in lines.values()) or max(repeat, step) >= 2**31:
        raise ValueError("the commit record counts more rows than there are")
    return Commit(
        {table: line[0] for table, line in lines.items()},
        {table: line[1] for table, line in lines.items()},
        {table: _WORDS.pack(*line[3:]) for table, line in lines.items()},
        (first, second),
        {table: line[2] for table, line in lines.items()},
        (repeat, step),
    )


def _closing(record: np.ndarray) -> bytes:
    """The hash of the record up to the hash in its last row."""
    return xxhash.xxh3_128_digest(np.ascontiguousarray(record, "<u8").reshape(-1)[:-2].tobytes())


def _bytes(rows: np.ndarray) -> memoryview:
    return np.ascontiguousarray(rows).data.cast("B") if rows.size else memoryview(b"")
