"""Tables of predictions and searches for the terminal."""

from __future__ import annotations

import pandas as pd

from analysis.page.sections import Shown, Table, lines_of, table_of
from analysis.page.text import interval, number

PRICE = (
    Shown("guarantee", lambda row: row.guarantee),
    Shown("against", lambda row: row.weakest),
    Shown("ranks", lambda row: row.ranks, number=True),
    Shown("price", lambda row: f"x {number(row.price)}", number=True),
    Shown("80 % of it", lambda row: interval(row.low, row.high), number=True),
    Shown("told from 1", lambda row: "yes" if row.told else "no"),
    Shown("extrapolated", lambda row: row.extrapolated),
)


def price_table(prices: pd.DataFrame) -> list[tuple[str, Table]]:
    """The table of predicted prices of guarantees (`analysis.predict.choices.prices.prices`); none without prices."""
    return [("Price of each guarantee", lines_of(prices, PRICE))] if len(prices) else []


CHOICES = {"guarantee": False, "ranks": True, "ordering": False}  # whether a number
TIMES = (
    Shown("ms per step", lambda row: number(1e3 * row["seconds"]), number=True),
    Shown("80 % of runs", lambda row: interval(1e3 * row["low"], 1e3 * row["high"]), number=True),
    Shown("slower than the first", lambda row: f"{row['slower']:.0%}", number=True),
    Shown("told from it", lambda row: "yes" if row["told"] else "no"),
    Shown("extrapolated", lambda row: row["extrapolated"]),
)


def strategy_tables(table: pd.DataFrame, infeasible: pd.DataFrame) -> list[tuple[str, Table]]:
    """The fastest strategies, and the reasons against the others (`analysis.predict.choices.strategies.Found`)."""
    choices = [
        Shown(name, lambda row, name=name: row[name], number=counted)
        for name, counted in CHOICES.items()
        if _several(table, infeasible, name)
    ]
    columns = (Shown("", lambda row: row["place"], number=True), *choices, *TIMES)
    shown = [("Fastest strategies", table_of(((row,) for row in table.to_dict("records")), columns))]
    if len(infeasible):
        counts = infeasible.groupby("reason", sort=False).size().sort_values(ascending=False, kind="stable")
        lines = [(count, reason) for reason, count in counts.items()]
        shown.append(
            ("Strategies that cannot be predicted", Table(("strategies", "reason"), lines, ("strategies",)))
        )
    return shown


def _several(table: pd.DataFrame, infeasible: pd.DataFrame, name: str) -> bool:
    return pd.concat([table[name], infeasible[name]]).nunique() > 1
