"""The interface of a study: it reads runs, and returns results for the terminal, for programs and for the report."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Generic, TypeVar

import pandas as pd

from analysis.headline import Finding
from analysis.limits import Limit
from analysis.page.sections import Section, Table
from kernels.as_json import Column, Rows

if TYPE_CHECKING:
    from analysis.overview import Overview

Known = TypeVar("Known")


class Nothing(Exception):
    """No run recorded the subject of a study. The arguments are sentences on unusable files."""


@dataclass(frozen=True)
class Data(Rows, Generic[Known]):
    """A table of a study for --csv and --json: `of(known)` returns a frame with at least the `columns`."""

    of: Callable[[Known], pd.DataFrame]

    def frame(self, known: Known) -> pd.DataFrame:
        """The declared columns, each of its type."""
        return frame(self.of(known), self.columns)


@dataclass(frozen=True)
class Study(Generic[Known]):
    """One study.

    `read(overview, options)` computes the results for the runs of the overview; `options` are those of the command,
    None for the report. It raises Nothing if no run recorded the subject. All other functions take its result:

    data       tables for programs
    tables     tables for people, as (title, table)
    sections   sections of the report
    sentences  the verdict in words
    notes      limits of the verdict, without a full stop
    problems   sentences on unusable files, without a full stop
    words      {label of a case: its description}
    findings   findings for the verdict over all runs
    judged     (name, verdict, words) of rows below the report's table of groups
    draw       writes the files of the options, and returns their names
    rules      rules of lint: functions that yield unsupported claims, named as the rule with _ for -
    facts      facts of the package's UNUSUAL that hold
    """

    read: Callable[[Overview, argparse.Namespace | None], Known]
    data: tuple[Data[Known], ...]
    tables: Callable[[Known], list[tuple[str, Table]]]
    sections: Callable[[Known], list[Section]]
    sentences: Callable[[Known], list[str]] = lambda known: []
    notes: Callable[[Known], list[str]] = lambda known: []
    problems: Callable[[Known], list[str]] = lambda known: []
    words: Callable[[Known], Mapping[str, str]] = lambda known: {}
    findings: Callable[[Known], list[Finding]] = lambda known: []
    judged: Callable[[Known], list[tuple[str, str, str]]] = lambda known: []
    draw: Callable[[Known, argparse.Namespace], list[str]] = lambda known, options: []
    rules: tuple[Callable[[Known], Iterable[Limit]], ...] = ()
    facts: Callable[[Known], list[str]] = lambda known: []


def frame(
    rows: pd.DataFrame | Iterable[Mapping[str, object] | tuple[object, ...]], columns: Mapping[str, Column]
) -> pd.DataFrame:
    """`rows` as a frame with exactly `columns`, each of its type."""
    types = {
        name: "object" if " " in column.dtype else column.dtype for name, column in columns.items()
    }  # lists
    given = rows if isinstance(rows, pd.DataFrame) else list(rows)
    if len(given) == 0:
        return pd.DataFrame({name: pd.Series(dtype=dtype) for name, dtype in types.items()})
    table = pd.DataFrame(given, columns=list(columns))
    # `astype` also costs time for columns of the right type.
    return table.astype(
        {name: dtype for (name, dtype), own in zip(types.items(), table.dtypes, strict=True) if own != dtype}
    )
