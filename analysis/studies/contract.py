"""What a study is: what it reads of runs, and what follows for the terminal, for programs and for the report."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Generic, TypeVar

import pandas as pd

from analysis.headline import Finding
from analysis.load.frames import Frames
from analysis.page.sections import Section, Table

Known = TypeVar("Known")


class Nothing(Exception):
    """No run recorded what a study is about. The arguments are files that cannot be used, a sentence each."""


@dataclass(frozen=True)
class Column:
    """A column of a table for programs: `dtype` of pandas, what it `is`, and its `unit`."""

    dtype: str
    meaning: str = ""
    unit: str = ""


@dataclass(frozen=True)
class Data(Generic[Known]):
    """A table for programs, as CSV and in documents: `meaning` says what a row is, `of` makes it of what is known."""

    name: str
    meaning: str
    columns: Mapping[str, Column]
    of: Callable[[Known], pd.DataFrame]


@dataclass(frozen=True)
class Study(Generic[Known]):
    """One study.

    `read(frames, options)`: what the runs say; `options` are those of its command, None for the report. Raises Nothing
    where no run says anything. Of what is known: `data` for programs; `sentences`, the verdict in words;
    `tables` for people as (title, table); `sections` of the report; `notes` limit what is said, `problems` are files
    that cannot be used, both sentences without a full stop; `words` {label of a case: the same in words}; `findings`
    for the verdict over all runs, `judged` (name, verdict, words) of what stands below its groups; `draw(known,
    options)` writes the files that options ask for and returns their names.
    """

    read: Callable[[Frames, argparse.Namespace | None], Known]
    data: tuple[Data[Known], ...]
    sentences: Callable[[Known], list[str]]
    tables: Callable[[Known], list[tuple[str, Table]]]
    sections: Callable[[Known], list[Section]]
    notes: Callable[[Known], list[str]] = lambda known: []
    problems: Callable[[Known], list[str]] = lambda known: []
    words: Callable[[Known], Mapping[str, str]] = lambda known: {}
    findings: Callable[[Known], list[Finding]] = lambda known: []
    judged: Callable[[Known], list[tuple[str, str, str]]] = lambda known: []
    draw: Callable[[Known, argparse.Namespace], list[str]] = lambda known, options: []


def frame(
    rows: pd.DataFrame | Iterable[Mapping[str, object] | tuple[object, ...]], columns: Mapping[str, Column]
) -> pd.DataFrame:
    """`rows` as a frame with these columns and no others, each of its type."""
    types = {name: column.dtype for name, column in columns.items()}
    given = rows if isinstance(rows, pd.DataFrame) else list(rows)
    return pd.DataFrame(given, columns=list(columns)).astype(types)
