"""Sorts and groups rows by several integer columns."""

from __future__ import annotations

import numpy as np


def order_by(*columns: np.ndarray) -> np.ndarray:
    """The stable order that sorts rows by `columns`, integers, the most significant first: int64 (rows,).

    If their ranges allow it, all columns are packed into one integer: almost sorted rows, as in a trace, then take
    little more than one pass.
    """
    packed = _packed(columns)
    return np.lexsort(columns[::-1]) if packed is None else np.argsort(packed, kind="stable")


def changes(*columns: np.ndarray) -> np.ndarray:
    """A mask of the rows that differ from the row before in any of `columns`: bool (rows,), true for the first row."""
    new = np.zeros(len(columns[0]), bool)
    new[:1] = True
    for column in columns:
        new[1:] |= column[1:] != column[:-1]
    return new


def groups(*columns: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """(order, begin): the stable order that sorts the rows by `columns`, and the begin of each group of equal rows in
    this order."""
    order = order_by(*columns)
    return order, np.flatnonzero(changes(*(column[order] for column in columns)))


def _packed(columns: tuple[np.ndarray, ...]) -> np.ndarray | None:
    rows = len(columns[0])
    packed, width = np.zeros(rows, np.int64), 1
    if not rows:
        return packed
    for column in columns:
        low, high = int(column.min()), int(column.max())
        width *= high - low + 1
        if width > 2**62:
            return None
        if high > low:
            packed *= high - low + 1
            packed += column
            packed -= low
    return packed
