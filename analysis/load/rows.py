"""The rows of one table of one run: in memory, or in a file, from which only the requested rows are read."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import BinaryIO

import numpy as np

from analysis.load.packed import size, unpacked
from miniapps.trace import TraceError
from miniapps.untrusted import Refused, open_regular
from miniapps.untrusted.text import printable

WHOLE_FROM = 0.5  # part of the row groups from which on the whole file is read and kept


@dataclass
class Rows:
    """The `length` rows of a table.

    columns   the rows, if they are in memory
    path      else the file that holds them: Parquet, or with `begin` columns that `packed` wrote
    begin     the byte of the file at which the columns begin
    width     bytes of an order
    read      the number of rows read from the file so far
    """

    length: int
    dtypes: dict[str, str]
    columns: dict[str, np.ndarray] | None = None
    path: Path = Path()
    begin: int | None = None
    width: int = 0
    read: int = 0
    _bounds: np.ndarray | None = field(default=None, repr=False)

    def all(self) -> dict[str, np.ndarray]:
        """All columns, kept in memory from now on."""
        if self.columns is None:
            self.columns = self.whole()
        return self.columns

    def whole(self) -> dict[str, np.ndarray]:
        """All columns, not kept."""
        if self.columns is not None:
            return self.columns
        self.read += self.length
        with self._opened() as file:
            if self.begin is not None:
                file.seek(self.begin)
                content = file.read(size(self.dtypes, self.length, self.width))
                return unpacked(content, self.dtypes, self.length, self.width)
            import pyarrow.parquet as pq

            return self._arrays(pq.read_table(file, use_threads=False))

    def pieces(self) -> Iterator[dict[str, np.ndarray]]:
        """The columns of `whole` in pieces: one row group of a large table after the other."""
        if self.columns is not None or self.begin is not None:
            yield self.whole()
            return
        import pyarrow as pa
        import pyarrow.parquet as pq

        with self._opened() as file, pq.ParquetFile(file) as parquet:
            for batch in parquet.iter_batches(use_threads=False):
                self.read += len(batch)
                yield self._arrays(pa.Table.from_batches([batch]))

    def at(self, places: Sequence[tuple[int, int]]) -> dict[str, np.ndarray]:
        """The columns of the rows in `places`: pairs (begin, end), ascending, none empty."""
        if self.columns is None and self.begin is not None:
            self.all()
        elif self.columns is None:
            groups, bounds = self._groups(places)
            if len(groups) >= WHOLE_FROM * (len(bounds) - 1):
                self.all()
        if self.columns is not None:
            return {key: _taken(rows, places) for key, rows in self.columns.items()}
        import pyarrow.parquet as pq

        with self._opened() as file, pq.ParquetFile(file) as parquet:
            columns = self._arrays(parquet.read_row_groups(groups, use_threads=False))
        self.read += len(columns["step"])
        # The begin of each group among the rows that were read, which lack the groups between.
        starts = np.cumsum([0, *(bounds[group + 1] - bounds[group] for group in groups)])[:-1]
        moved = []
        for begin, end in places:
            k = np.searchsorted(bounds[groups], begin, side="right") - 1
            shift = int(starts[k] - bounds[groups[k]])
            moved.append((begin + shift, end + shift))
        return {key: _taken(rows, moved) for key, rows in columns.items()}

    @contextmanager
    def _opened(self) -> Iterator[BinaryIO]:
        try:
            with open_regular(self.path) as file:
                yield file
        except (OSError, Refused) as error:
            words = getattr(error, "strerror", None) or error
            raise TraceError(
                f"{printable(str(self.path))}: cannot be read any more ({words}): the traces of this run changed, or "
                "its cache was removed; run the command again"
            ) from error

    def _groups(self, wanted: Sequence[tuple[int, int]]) -> tuple[list[int], np.ndarray]:
        """(the row groups that hold the `wanted` rows, the first row of every row group and the number of rows)."""
        if self._bounds is None:
            import pyarrow.parquet as pq

            with self._opened() as file, pq.ParquetFile(file) as parquet:
                metadata = parquet.metadata
                lengths = [metadata.row_group(i).num_rows for i in range(metadata.num_row_groups)]
            self._bounds = np.cumsum([0, *lengths])
        bounds = self._bounds
        groups: set[int] = set()
        for begin, end in wanted:
            first = np.searchsorted(bounds, begin, side="right") - 1
            last = np.searchsorted(bounds, end, side="left")
            groups.update(range(int(first), int(last)))
        return sorted(groups), bounds

    def _arrays(self, table) -> dict[str, np.ndarray]:
        import pyarrow as pa

        columns = {}
        for key, dtype in self.dtypes.items():
            column = table.column(key)
            table = table.drop_columns(key)
            if dtype == "object":  # equal objects are shared
                encoded = column.combine_chunks().dictionary_encode()
                known = np.empty(len(encoded.dictionary), object)
                known[:] = encoded.dictionary.to_pylist()
                columns[key] = known[encoded.indices.to_numpy()]
            else:
                columns[key] = column.to_numpy().astype(dtype, copy=False)
        pa.default_memory_pool().release_unused()
        return columns


def _taken(rows: np.ndarray, places: Sequence[tuple[int, int]]) -> np.ndarray:
    if len(places) == 1:
        return rows[places[0][0] : places[0][1]]
    return np.concatenate([rows[begin:end] for begin, end in places] or [rows[:0]])
