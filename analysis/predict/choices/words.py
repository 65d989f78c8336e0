"""What predictions and searches come to, in tables for the terminal."""

from __future__ import annotations

import pandas as pd

from analysis.page.sections import Table
from analysis.page.text import interval, number


def price_table(prices: pd.DataFrame) -> list[tuple[str, Table]]:
    """Predicted prices of guarantees (`analysis.predict.choices.prices.prices`); nothing without any."""
    columns = ("guarantee", "against", "ranks", "price", "80 % of it", "told from 1", "extrapolated")
    rows = [
        (p.guarantee, p.weakest, p.ranks, f"x {number(p.price)}", interval(p.low, p.high), "yes" if p.told else "no",
         p.extrapolated)
        for p in prices.itertuples(index=False)
    ]  # fmt: skip
    return [("Price of each guarantee", Table(columns, rows, columns[2:5]))] if rows else []


def strategy_tables(table: pd.DataFrame, infeasible: pd.DataFrame) -> list[tuple[str, Table]]:
    """The fastest strategies, and why others cannot be (`analysis.predict.choices.strategies.Found`)."""
    choices = [
        name
        for name in ("guarantee", "ranks", "ordering", "threads", "mesh")
        if _several(table, infeasible, name)
    ]
    columns = (
        "",
        *choices,
        "ms per step",
        "80 % of runs",
        "slower than the first",
        "told from it",
        "extrapolated",
    )
    rows = [
        (
            row["place"], *(row[name] for name in choices), number(1e3 * row["seconds"]),
            interval(1e3 * row["low"], 1e3 * row["high"]), f"{row['slower']:.0%}", "yes" if row["told"] else "no",
            row["extrapolated"],
        )
        for row in table.to_dict("records")
    ]  # fmt: skip
    shown = [("Fastest strategies", Table(columns, rows, ("", "ranks", "threads", *columns[-5:-2])))]
    if len(infeasible):
        counts = infeasible.groupby("reason", sort=False).size().sort_values(ascending=False, kind="stable")
        lines = [(count, reason) for reason, count in counts.items()]
        shown.append(
            ("Strategies that cannot be predicted", Table(("strategies", "reason"), lines, ("strategies",)))
        )
    return shown


def _several(table: pd.DataFrame, infeasible: pd.DataFrame, name: str) -> bool:
    return pd.concat([table[name], infeasible[name]]).nunique() > 1
