"""Writes frames as CSV files, and as links inside a page."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote

import numpy as np
import pandas as pd

from miniapps.untrusted.text import printable

FORMULA = (
    "=",
    "+",
    "-",
    "@",
    "＝",
    "＋",
    "－",
    "＠",
)  # characters with which a formula begins in spreadsheets
LINK_MOST = 150_000  # bytes of one link
SAMPLED = 1000  # rows that suffice to estimate the bytes of a large frame


@dataclass(frozen=True)
class Link:
    """A file inside a page: `uri` holds its whole content; `size` is its number of rows, in words."""

    file: str
    uri: str
    size: str


def csv_text(frame: pd.DataFrame) -> str:
    """`frame` as CSV (RFC 4180); a number has the fewest digits from which its bits can be read back.

    Text is `printable`, so that each row is one line. An apostrophe precedes text that a spreadsheet would take for a
    formula, since names of groups, files and regions are untrusted; numbers stay unchanged.
    """
    return texts(frame, _guard).to_csv(index=False, lineterminator="\n")


def texts(frame: pd.DataFrame, change: Callable[[str], str] = printable) -> pd.DataFrame:
    """`frame` with `change` applied to all texts and column names; column names stay distinct."""
    changed = frame.set_axis(distinct(map(change, map(str, frame.columns))), axis=1)
    for column in changed.columns[[not pd.api.types.is_numeric_dtype(dtype) for dtype in changed.dtypes]]:
        if isinstance(changed[column].dtype, pd.CategoricalDtype):  # each category is changed once
            known = changed[column].cat.categories.astype(object).map(_changed(change))
            codes = changed[column].cat.codes.to_numpy()
            changed[column] = np.append(np.asarray(known, object), np.nan)[codes]
            continue
        changed[column] = changed[column].astype(object).map(_changed(change))
    return changed


def _changed(change: Callable[[str], str]) -> Callable[[Any], Any]:
    return lambda value: change(value) if isinstance(value, str) else value


def distinct(names: Iterable[str]) -> list[str]:
    """`names`, made distinct: a repeated name gets ` (2)`, ` (3)` and so on."""
    unique: dict[str, None] = {}
    for name in names:
        again = itertools.chain([name], (f"{name} ({i})" for i in itertools.count(2)))
        unique[next(one for one in again if one not in unique)] = None
    return list(unique)


def write_csv(frames: dict[str, pd.DataFrame], directory: Path) -> list[str]:
    """Writes each of `frames` into `directory` as NAME.csv, in full precision; returns the names of the files."""
    directory.mkdir(parents=True, exist_ok=True)
    for name, frame in frames.items():
        (directory / f"{name}.csv").write_text(csv_text(frame), encoding="utf-8")
    return [f"{name}.csv" for name in frames]


def link(name: str, frame: pd.DataFrame) -> Link:
    """`frame` as a CSV link in a page; evenly chosen rows if all would be more than LINK_MOST bytes."""
    rows, stride = len(frame), 1
    if rows > 10 * SAMPLED:  # encoding all rows would take longer than the rest of the page
        some = frame.iloc[:: rows // SAMPLED]
        stride = max(1, -(-len(_uri(some)) * rows // (len(some) * LINK_MOST)))
    uri = _uri(frame.iloc[::stride])
    while len(uri) > LINK_MOST and stride < rows:
        stride = max(stride + 1, -(-stride * len(uri) // LINK_MOST))
        uri = _uri(frame.iloc[::stride])
    kept = len(range(0, rows, stride))
    size = f"{kept:,} row{'s' if kept != 1 else ''}"
    return Link(f"{name}.csv", uri, size if stride == 1 else f"{size} of {rows:,}, evenly chosen")


def _uri(frame: pd.DataFrame) -> str:
    return "data:text/csv;charset=utf-8," + quote(csv_text(frame), safe=",:;/+-._~!*()@$'")


def _guard(text: str) -> str:
    # Spreadsheets with decimal commas split cells at semicolons.
    parts = printable(text).split(";")
    return ";".join(f"'{part}" if part.lstrip().startswith(FORMULA) else part for part in parts)
