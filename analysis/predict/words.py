"""What predictions and searches come to, in tables for the terminal."""

from __future__ import annotations

import pandas as pd

from analysis.page.sections import Table
from analysis.page.text import interval, number


def price_table(prices: pd.DataFrame) -> list[tuple[str, Table]]:
    """Predicted prices of guarantees (`analysis.predict.prices.prices`); nothing without any."""
    columns = ("guarantee", "against", "ranks", "price", "80 % of it", "told from 1", "extrapolated")
    rows = [
        (p.guarantee, p.weakest, p.ranks, f"x {number(p.price)}", interval(p.low, p.high), "yes" if p.told else "no",
         p.extrapolated)
        for p in prices.itertuples(index=False)
    ]  # fmt: skip
    return [("Price of each guarantee", Table(columns, rows, columns[2:5]))] if rows else []
