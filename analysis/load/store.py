"""The tables of all runs, in memory or in caches; only requested rows are read."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pandas as pd

from analysis.load.columns import STORED
from analysis.load.rows import Rows
from analysis.load.stated import Stated
from analysis.load.tree import LEAVES
from miniapps.trace.schema import NAMED

Id = tuple[str, int]  # (run, repeat)


@dataclass
class Source:
    """The tables of one run, their hash trees, and the facts that its ranks `stated`.

    `codes` maps the codes of names in this run to codes in `Store.names`."""

    label: str
    tables: dict[str, Rows]
    trees: dict[str, dict[str, np.ndarray]]
    codes: np.ndarray
    stated: Stated


@dataclass(frozen=True)
class Leaves:
    """The leaves of one (run, repeat): arrays of equal length in the order (step, name, occurrence, leaf).

    `name` is a code of `Store.names`; `analysis.load.tree.LEAVES` explains the other fields."""

    step: np.ndarray
    name: np.ndarray
    occurrence: np.ndarray
    leaf: np.ndarray
    seq: np.ndarray
    begin: np.ndarray
    rows: np.ndarray
    keys: np.ndarray
    hi: np.ndarray
    lo: np.ndarray
    _by_name: dict = field(default_factory=dict, init=False, repr=False)

    def of(self, name: int) -> tuple[np.ndarray, np.ndarray]:
        """(places of the leaves of the `name`, their steps), by ascending step."""
        if not self._by_name:
            order = np.argsort(self.name, kind="stable")
            sorted_names = self.name[order]
            for code in np.unique(sorted_names).tolist():
                first, last = np.searchsorted(sorted_names, (code, code + 1))
                self._by_name[code] = (order[first:last], self.step[order[first:last]])
        nothing = np.empty(0, np.int64)
        return self._by_name.get(name, (nothing, nothing))

    def places(self, chosen: np.ndarray) -> list[tuple[int, int]]:
        """(begin, end) of the rows of the `chosen` leaves; adjacent leaves share a pair."""
        begin = self.begin[chosen]
        end = begin + self.rows[chosen]
        first = np.append(True, begin[1:] != end[:-1])[: len(begin)]
        last = np.append(first[1:], True)[: len(begin)]
        return list(zip(begin[first].tolist(), end[last].tolist(), strict=True))


class Store:
    """All tables of some runs. `names` are the categories of every column of names (`schema.NAMED`)."""

    def __init__(self, sources: list[Source], names: list[str]):
        self.names = names
        self.labels = [source.label for source in sources]
        self._places = {label: place for place, label in enumerate(self.labels)}
        self._sources = {source.label: source for source in sources}
        self._frames: dict[str, pd.DataFrame] = {}
        self._bounds: dict[str, dict[Id, slice]] = {}
        self._parts: dict[tuple[str, str, int], pd.DataFrame] = {}
        self._leaves: dict[tuple[str, str, int], Leaves] = {}

    def frame(self, table: str) -> pd.DataFrame:
        """All rows of a table, sorted by run and repeat."""
        if table not in self._frames:
            self._parts = {key: part for key, part in self._parts.items() if key[0] != table}
            self._frames[table], self._bounds[table] = self._whole(table)
        return self._frames[table]

    def of(self, table: str, run: str, repeat: int) -> pd.DataFrame:
        """The rows of one (run, repeat) of a table."""
        if table in self._frames:
            return self._frames[table].iloc[self._bounds[table].get((run, repeat), slice(0, 0))]
        key = (table, run, repeat)
        if key not in self._parts:
            if run not in self._sources:
                return self._frame_of(
                    table, run, {c: np.empty(0, d) for c, d in STORED[table].items()}, np.empty(0, np.int32)
                )
            source = self._sources[run]
            columns = source.tables[table].all()
            here = _slice(columns["repeat"], repeat)
            self._parts[key] = self._frame_of(
                table, run, {c: v[here] for c, v in columns.items()}, source.codes
            )
        return self._parts[key]

    def pieces(self, table: str, run: str) -> tuple[Iterator[dict[str, np.ndarray]], np.ndarray]:
        """(`Rows.pieces` of a run's table, codes); `codes` maps the names' codes in the pieces to codes in `names`."""
        source = self._sources[run]
        return source.tables[table].pieces(), source.codes

    def columns(self, table: str, run: str, places: list[tuple[int, int]]) -> dict[str, np.ndarray]:
        """The rows of `at` as arrays; `name` has the codes of that run."""
        return self._sources[run].tables[table].at(places)

    def at(self, table: str, run: str, places: list[tuple[int, int]]) -> pd.DataFrame:
        """The rows of a run's table in `places`, which `Leaves.places` returns, ascending."""
        source = self._sources[run]
        return self._frame_of(table, run, source.tables[table].at(places), source.codes)

    def segment(self, table: str, run: str, repeat: int, name: str, step: int) -> pd.DataFrame:
        """The rows that one (run, repeat) recorded as `name` in `step`; no others are read."""
        tree = self.leaves(table, run, repeat)
        places, steps = (
            tree.of(self.names.index(name)) if name in self.names else (tree.begin[:0], tree.step[:0])
        )
        return self.at(table, run, tree.places(places[steps == step]))

    def leaves(self, table: str, run: str, repeat: int) -> Leaves:
        """The leaves over the rows of one (run, repeat) of `values` or `fingerprints`."""
        key = (table, run, repeat)
        if key not in self._leaves:
            if run not in self._sources:
                return Leaves(
                    **{column: np.empty(0, dtype) for column, dtype in LEAVES.items() if column != "repeat"}
                )
            source = self._sources[run]
            tree = source.trees[table]
            here = _slice(tree["repeat"], repeat)
            columns = {column: rows[here] for column, rows in tree.items() if column != "repeat"}
            names = columns["name"]
            columns["name"] = source.codes[names] if len(names) else names
            self._leaves[key] = Leaves(**columns)
        return self._leaves[key]

    def stated(self, run: str) -> list[dict[str, Any]]:
        """The facts that each rank of a run states (`analysis.load.stated`)."""
        return self._sources[run].stated.ranks()

    def rows_read(self, table: str) -> int:
        """The number of rows of a table read from caches so far."""
        return sum(source.tables[table].read for source in self._sources.values())

    def _frame_of(
        self, table: str, run: str, columns: dict[str, np.ndarray], codes: np.ndarray
    ) -> pd.DataFrame:
        rows = len(columns["repeat"])
        place = self._places.get(run, -1)
        frame = {"run": pd.Categorical.from_codes(np.full(rows, place, np.int32), self.labels)}
        for key in STORED[table]:
            frame[key] = self._categorical(columns[key], codes) if key in NAMED else columns[key]
        return pd.DataFrame(frame, copy=False)

    def _categorical(self, names: np.ndarray, codes: np.ndarray) -> pd.Categorical:
        return pd.Categorical.from_codes(codes[names] if len(names) else names, self.names)

    def _whole(self, table: str) -> tuple[pd.DataFrame, dict[Id, slice]]:
        """(frame of all runs, {(run, repeat): its rows}), filled run by run: only one run is in memory beside it."""
        lengths = [source.tables[table].length for source in self._sources.values()]
        rows, few = sum(lengths), np.int8 if len(self.names) < 128 else np.int32
        arrays = {key: np.empty(rows, few if key in NAMED else dtype) for key, dtype in STORED[table].items()}
        bounds, begin = {}, 0
        for source, length in zip(self._sources.values(), lengths, strict=True):
            own = source.tables[table]
            columns = own.whole()
            end = begin + length
            for key, column in columns.items():
                arrays[key][begin:end] = source.codes[column] if key in NAMED and length else column
            repeats = columns["repeat"]
            for repeat in np.unique(repeats).tolist():
                here = _slice(repeats, repeat)
                bounds[source.label, repeat] = slice(begin + here.start, begin + here.stop)
            if own.path.name:  # they can be read again
                own.columns = None
            else:  # the frame holds it now
                own.columns = {key: column[begin:end] for key, column in arrays.items()}
                if length:
                    own.columns |= {key: columns[key] for key in NAMED if key in columns}
            begin = end
        places = np.repeat(
            np.arange(len(lengths), dtype=np.int8 if len(lengths) < 128 else np.int32), lengths
        )
        frame = {"run": pd.Categorical.from_codes(places, self.labels)}
        for key, column in arrays.items():
            frame[key] = pd.Categorical.from_codes(column, self.names) if key in NAMED else column
        return pd.DataFrame(frame, copy=False), bounds


def _slice(ascending: np.ndarray, value: int) -> slice:
    first, last = np.searchsorted(ascending, (value, value + 1))
    return slice(int(first), int(last))
