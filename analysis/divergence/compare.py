"""Compares two runs row by row.

Rows are matched by (step, name, block), never by rank, so that runs on different rank counts can be compared. Two runs
are equal only if neither lacks a row (`analysis.divergence.recorded`). The final states of `result.json` are compared
as well, since the last step may have left no record.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable

import numpy as np
import pandas as pd

from analysis.divergence.points import Comparison, Lone, Point
from analysis.divergence.recorded import Common, common_of, row_of
from analysis.divergence.shared import KEY, Shared, codes, differ
from analysis.load.frames import Frames
from analysis.load.keys import groups
from analysis.runs import Id
from kernels import bits
from miniapps.trace.records import NO_NUMBERS, SOURCE


class NothingInCommon(Exception):
    """Two runs recorded no row of the same step, name and block."""


def compare(frames: Frames, a: Id, b: Id, common: Common | None = None) -> Comparison:
    """Compares `b` with `a`. Their first difference has the smallest step, then the name that `a` recorded first in
    that step, then the lowest block. Hashes of many rows are compared first; rows are read only where these differ
    (`analysis.load.tree`). `common` is the result of `common_of`, if the caller has it. Raises NothingInCommon if
    there is no row to compare and none is missing."""
    points: dict[str, Point | None] = {}
    messages: Point | None = None
    shared, results, only, lacks = 0, 0, [0, 0], [0, 0]
    left_out: set[str] = set()
    moved: set[str] = set()
    parted: int | None = None
    lone: list[Lone] = []
    through: list[int] = []
    common = common or common_of(frames, a, b)
    for table in ("fingerprints", "values"):
        both = Shared(frames, table, a, b, common)
        shared += both.rows
        results += both.results
        left_out |= both.left_out
        if both.moved:
            moved |= both.moved
            parted = both.parted if parted is None else min(parted, both.parted)
        only[0] += int(both.left.rows.sum()) - both.rows
        only[1] += int(both.right.rows.sum()) - both.rows
        if both.rows:
            through.append(int(both.left.step[both.in_left].max()))
        points[table] = _first(both, lambda name: not name.startswith(SOURCE))
        if table == "values":
            messages = _first(both, lambda name: name.startswith(SOURCE))
        missing = both.missing()
        for side, (count, _) in enumerate(missing):
            lacks[1 - side] += count
        firsts = [first for _, first in missing if first]
        lone += sorted(firsts, key=lambda row: (row.step, row.seq, row.block))[:1]
    ended, final = _final(frames, a, b, common)
    if not shared and not lone and not ended:
        raise NothingInCommon(
            f"{a[0]}:{a[1]} and {b[0]}:{b[1]} recorded nothing of the same step, name and block, so there is "
            f"nothing to compare{_because(left_out - moved, parted)}; give two runs of one problem that record "
            "fingerprints"
        )
    fingerprint = points["fingerprints"]
    values, largest = _nearby(frames, a, b, fingerprint, common)
    return Comparison(
        a, b, fingerprint, points["values"], _first_order(frames, a, b), values, largest,
        compared=shared, only_a=only[0], only_b=only[1], through=max(through, default=-1),
        lacks_a=lacks[0], lacks_b=lacks[1], lone=min(lone, key=lambda row: row.step, default=None),
        recordings=common.differ, messages=messages, results=results, ended=ended, final=final,
        left_out=tuple(sorted(left_out)), moved=tuple(sorted(moved)), parted=parted,
        counted=common.unaligned,
    )  # fmt: skip


def _because(own: set[str], parted: int | None) -> str:
    """The reason why there is nothing to compare, as the end of a sentence; empty if none is known.

    `own`: calls to which ranks gave arrays of their own. `parted`: the step from which the runs make other calls."""
    why = [f"of {len(own)} calls, ranks added arrays of their own in another way"] if own else []
    why += [f"from step {parted} on, the two make other calls"] if parted is not None else []
    return f" ({'; '.join(why)})" if why else ""


def _final(frames: Frames, a: Id, b: Id, common: Common) -> tuple[bool, int | None]:
    """(True if both runs hashed the final state of the same step, that step if the hashes differ and else None)."""
    rows = [row_of(frames, run) for run in (a, b)]
    states, steps = ([row[key] for row in rows] for key in ("state", "last_step"))
    if not all(states) or steps[0] != steps[1] or common.hashed:
        return False, None
    return True, None if states[0] == states[1] else int(steps[0])


def _first(both: Shared, wanted: Callable[[str], bool]) -> Point | None:
    """The first row of a `wanted` name that differs; None if none does.

    Unequal leaves are read in turn, since leaves with other blocks may hold no row that differs."""
    unequal = np.flatnonzero(both.unequal & both.of_names(wanted))
    if not len(unequal):
        return None
    tree, at = both.left, both.in_left
    step, seq = tree.step[at[unequal]], tree.seq[at[unequal]]
    order, begin = groups(step, seq)
    for i, j in itertools.pairwise([*begin.tolist(), len(order)]):
        here = unequal[order[i:j]]
        chosen = np.zeros(len(at), bool)
        chosen[here] = True
        left, right = both.aligned(chosen)
        changed = differ(both.table, left, right)
        if not changed.any():
            continue
        rows = np.flatnonzero(changed)
        row = int(rows[np.argmin(left["block"].to_numpy()[rows])])
        segment = (tree.step[at] == step[order[i]]) & (tree.seq[at] == seq[order[i]]) & ~both.unequal
        return _point(both.table, left, right, row, changed, int(tree.rows[at[segment]].sum()))
    return None


def _point(
    table: str, left: pd.DataFrame, right: pd.DataFrame, i: int, changed: np.ndarray, equal: int = 0
) -> Point:
    """The Point of row `i` of aligned rows; `equal` counts further rows of its step, name and occurrence, all equal."""
    row, other = left.iloc[i], right.iloc[i]
    same = np.all([codes(left, key) == codes(left.iloc[[i]], key)[0] for key in KEY[:-1]], axis=0)
    numbers = (float(row["value"]), float(other["value"])) if table == "values" else (np.nan, np.nan)
    return Point(
        int(row["step"]), str(row["name"]), int(row["block"]), int(row["occurrence"]),
        int(row["rank"]), int(other["rank"]), int(row["seq"]),
        int(changed[same].sum()), int(same.sum()) + equal, *numbers,
        int(other["own_step"]) if "own_step" in right else None,
    )  # fmt: skip


def _nearby(
    frames: Frames, a: Id, b: Id, at: Point | None, common: Common
) -> tuple[tuple[Point, ...], Point | None]:
    """The fields `values` and `largest` of a Comparison."""
    if at is None:
        return (), None
    both = Shared(frames, "values", a, b, common)
    numbers = both.of_names(lambda name: not name.startswith(NO_NUMBERS))
    left, right = both.aligned(both.unequal & numbers & (both.left.step[both.in_left] == at.step))
    changed = differ("values", left, right)
    if not changed.any():
        return (), None
    block = left["block"].to_numpy()
    here = np.flatnonzero(changed & (block == at.block))
    if not len(here):
        here = np.flatnonzero(changed & (block == -1))
    by_time = here[np.argsort(left["seq"].to_numpy()[here], kind="stable")]
    values = tuple(_point("values", left, right, int(i), changed) for i in by_time)
    inside = np.flatnonzero(changed & (block >= 0))
    if not len(inside):
        return values, None
    size = bits.relative_difference(left["value"].to_numpy()[inside], right["value"].to_numpy()[inside])
    # A NaN differs from a number by no defined size: it counts as the largest difference.
    most = inside[np.argmax(np.where(np.isnan(size), np.inf, size))]
    return values, _point("values", left, right, int(most), changed)


def _first_order(
    frames: Frames, a: Id, b: Id
) -> tuple[int, str, int, tuple[int, ...], tuple[int, ...]] | None:
    """(step, reducer, call in this step from 0, order in a, order in b) of the first order of arrival that differs.

    None if none differs, or if orders over different rank counts cannot be compared."""
    key = ["step", "name", "occurrence"]
    left, right = (frames.of("order", *run).reset_index(drop=True) for run in (a, b))
    both = left.reset_index().merge(right, on=key, suffixes=("", "_b"))
    both = both[both["ranks"].str.len() == both["ranks_b"].str.len()].sort_values("index")
    changed = both[both["ranks"] != both["ranks_b"]]
    if changed.empty:
        return None
    row = changed.iloc[changed["step"].to_numpy().argmin()]
    in_a, in_b = (tuple(np.frombuffer(row[column], "<u2").tolist()) for column in ("ranks", "ranks_b"))
    return int(row["step"]), str(row["name"]), int(row["occurrence"]), in_a, in_b
