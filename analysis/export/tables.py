"""Frames as CSV files, and as links inside a page."""

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
)  # what spreadsheets take for the beginning of a formula
LINK_MOST = 150_000  # bytes of one link
SAMPLED = 1000  # rows from which the bytes of many more are known well enough


@dataclass(frozen=True)
class Link:
    """A file inside a page: `uri` is all of it; `size` says how many rows it holds."""

    file: str
    uri: str
    size: str


def csv_text(frame: pd.DataFrame) -> str:
    """`frame` as CSV (RFC 4180), numbers as the fewest digits that are read back to the same bits.

    Text is `printable`, so that a row is a line, and what a spreadsheet would take for a formula has an apostrophe
    before it, since names of groups, files and regions come from outside; numbers stay as they are.
    """
    return texts(frame, _guard).to_csv(index=False, lineterminator="\n")


def texts(frame: pd.DataFrame, change: Callable[[str], str] = printable) -> pd.DataFrame:
    """`frame` with `change` made to all its texts and to the names of its columns, which stay different."""
    changed = frame.set_axis(distinct(map(change, map(str, frame.columns))), axis=1)
    for column in changed.columns[[not pd.api.types.is_numeric_dtype(dtype) for dtype in changed.dtypes]]:
        if isinstance(changed[column].dtype, pd.CategoricalDtype):  # a category stands in many rows
            known = changed[column].cat.categories.astype(object).map(_changed(change))
            codes = changed[column].cat.codes.to_numpy()
            changed[column] = np.append(np.asarray(known, object), np.nan)[codes]
            continue
        changed[column] = changed[column].astype(object).map(_changed(change))
    return changed


def _changed(change: Callable[[str], str]) -> Callable[[Any], Any]:
    return lambda value: change(value) if isinstance(value, str) else value


def distinct(names: Iterable[str]) -> list[str]:
    """`names`, those that were there before with ` (2)` and so on after them."""
    unique: dict[str, None] = {}
    for name in names:
        again = itertools.chain([name], (f"{name} ({i})" for i in itertools.count(2)))
        unique[next(one for one in again if one not in unique)] = None
    return list(unique)


def write_csv(frames: dict[str, pd.DataFrame], directory: Path) -> list[str]:
    """Write each of `frames` into `directory` as NAME.csv, in full precision; the names of the files."""
    directory.mkdir(parents=True, exist_ok=True)
    for name, frame in frames.items():
        (directory / f"{name}.csv").write_text(csv_text(frame), encoding="utf-8")
    return [f"{name}.csv" for name in frames]


def link(name: str, frame: pd.DataFrame) -> Link:
    """`frame` as a CSV to be saved from a page; evenly chosen rows where all would be more than LINK_MOST bytes."""
    rows, stride = len(frame), 1
    if rows > 10 * SAMPLED:  # all of them would take longer than the rest of the page
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
    # Where the decimal point is a comma, spreadsheets part cells at semicolons.
    parts = printable(text).split(";")
    return ";".join(f"'{part}" if part.lstrip().startswith(FORMULA) else part for part in parts)
