"""Laws of growth as a table, for the terminal and for the report."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pandas as pd

from analysis.page.sections import Shown, Table, filled, lines_of, said_once
from analysis.page.tables import MOST_NAMES, never_differ
from analysis.page.text import interval, number
from analysis.power import power_note


def growth_tables(
    fitted: pd.DataFrame, tolerance: float, differences: pd.DataFrame
) -> list[tuple[str, Table]]:
    """(title, table) of the laws `fitted` by cell: values with `tolerance`, and blocks. The title counts the names that
    never differ in `differences`, the data of the fits."""
    tables = []
    for (cell, reference), same in fitted.groupby(["cell", "reference"], sort=False):
        for kind, what in (
            ("values", f"largest relative difference, tolerance {number(tolerance)}"),
            ("fingerprints", "fraction of blocks that differ, tolerance: half of them"),
        ):
            some = same[same["kind"] == kind]
            if len(some):
                title = f"{cell}, against {reference}: {what}"
                if len(some) > MOST_NAMES:
                    title += f"; the {MOST_NAMES} largest of {len(some):,} names"
                    some = some.loc[sorted(some["largest"].fillna(0).nlargest(MOST_NAMES).index)]
                own = differences[(differences["cell"] == cell) & (differences["kind"] == kind)]
                if equal := int((own.groupby("name")["differing"].max() == 0).sum()):
                    title += f"; {never_differ(equal)}"
                table, once = law_table(some, "name", unit="step")
                tables.append((title + once, table))
    return tables


def law_table(laws: pd.DataFrame, key: str, unit: str) -> tuple[Table, str]:
    """(table, words for its title that hold for all rows): a row per row of `laws`, which has the columns `law.LAW` and
    `key`, the name of the row. `unit` of the rate, such as "step". The table leaves out empty columns; text that is the
    same in all rows is in the words."""
    remarks = [_remarks(row, unit) for row in laws.itertuples(index=False)]
    of_rates = [own for own, rate in zip(remarks, laws["rate"], strict=True) if rate == rate]
    common = (
        [text for text in of_rates[0] if all(text in own for own in of_rates)] if len(of_rates) > 1 else []
    )
    columns = [
        Shown(key, lambda row: getattr(row, key)),
        Shown("samples", lambda row: row.samples, number=True),
        Shown("growth phase", lambda row: interval(row.first, row.last), number=True),
        Shown(f"rate per {unit}", lambda row: _rate(row), number=True),
        Shown("tenfold in", lambda row: _tenfold(row.rate), number=True),
        Shown("largest", lambda row: _at(row.largest, row.largest_at), number=True),
        Shown("settles at", lambda row: number(row.settled), number=True),
        Shown(
            "predicted", lambda row: _about(row.predicted, row.predicted_low, row.predicted_high), number=True
        ),
        Shown("observed", lambda row: _observed(row), number=True),
    ]
    columns.append(
        Shown("remark", lambda row: "; ".join(each for each in _remarks(row, unit) if each not in common))
    )
    table, once = said_once(filled(lines_of(laws, columns)))
    return table, once + (f"; of all rates: {', '.join(common)}" if common else "")


def equal_lines(cells: Mapping[str, int]) -> list[str]:
    """A sentence for each number of runs on the `cells` {cell: its runs} without a difference."""
    by_runs: dict[int, list[str]] = {}
    for cell, runs in cells.items():
        by_runs.setdefault(runs, []).append(cell)
    return [
        f"{'; '.join(same)}: no difference at any step; {'in each ' * (len(same) > 1)}{power_note(runs)}."
        for runs, same in by_runs.items()
    ]


def _remarks(row, unit: str) -> list[str]:
    """The limits of the law in `row`, a few words each."""
    words = [row.nothing]
    if row.power:
        words.append(f"a power of the {unit} fits better")
    if row.predicted == row.predicted and not row.first <= row.predicted <= row.last:
        words.append("predicted beyond the growth phase")
    if row.rates and row.rates < row.samples:
        words.append(f"{row.samples - row.rates} samples left out: they hardly differ")
    if row.rate == row.rate and row.rate_low != row.rate_low:
        words.append("no interval (fewer than 6 samples)")
    return list(filter(None, words))


def _rate(row) -> str:
    """`1.72 (1.69 to 1.73)`, the interval if there is one."""
    between = interval(row.rate_low, row.rate_high)
    return number(row.rate) + (f" ({between})" if between else "")


def _at(value: float, step: float) -> str:
    return f"{number(value)} at {step:.0f}" if value == value else ""


def _tenfold(rate: float) -> str:
    return f"{np.log(10) / rate:.1f}" if rate > 0 else ""


def _about(middle: float, low: float, high: float) -> str:
    """`120 (110 to 131)`."""
    if middle != middle:
        return ""
    between = interval(low, high, "{:.0f}".format)
    return f"{middle:.0f}" + (f" ({between})" if between else "")


def _observed(row) -> str:
    if not row.tolerance > 0:
        return ""
    if not row.crossed:
        return "never"
    rest = f", {row.crossed} of {row.samples} samples" if row.crossed < row.samples else ""
    return _about(row.observed, row.observed_low, row.observed_high) + rest
