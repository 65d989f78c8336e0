"""What a study is: what it reads of runs, and what follows for the terminal, for programs and for the report."""

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
    """No run recorded what a study is about. The arguments are files that cannot be used, a sentence each."""


@dataclass(frozen=True)
class Data(Rows, Generic[Known]):
    """A table of a study, which --csv and --json write: `of(known)` has all `columns` and perhaps more."""

    of: Callable[[Known], pd.DataFrame]

    def frame(self, known: Known) -> pd.DataFrame:
        """The declared columns, each of its type."""
        return frame(self.of(known), self.columns)


@dataclass(frozen=True)
class Study(Generic[Known]):
    """One study.

    `read(overview, options)` computes what the runs of the overview say; `options` are those of the command, None for
    the report. It raises Nothing where no run recorded the subject. All other functions take what it returned:

    data       tables for programs
    tables     tables for people, as (title, table)
    sections   sections of the report
    sentences  the verdict in words
    notes      what limits the verdict; problems: files that cannot be used; both without a full stop
    words      {label of a case: the same in words}
    findings   for the verdict over all runs; judged: (name, verdict, words) of rows below its table of groups
    draw       writes the files that the options ask for, and returns their names
    rules      of lint: functions that yield what the runs do not support, named as the rule with _ for -
    facts      what is unusual, of those that its front names as UNUSUAL
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
    """`rows` as a frame with these columns and no others, each of its type."""
    types = {
        name: "object" if " " in column.dtype else column.dtype for name, column in columns.items()
    }  # lists
    given = rows if isinstance(rows, pd.DataFrame) else list(rows)
    if len(given) == 0:
        return pd.DataFrame({name: pd.Series(dtype=dtype) for name, dtype in types.items()})
    table = pd.DataFrame(given, columns=list(columns))
    # `astype` takes its time for columns of the right type, too.
    return table.astype(
        {name: dtype for (name, dtype), own in zip(types.items(), table.dtypes, strict=True) if own != dtype}
    )
