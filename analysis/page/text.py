"""Numbers as text: what tables and sentences show of them."""

from __future__ import annotations

import math
from collections.abc import Iterable

import numpy as np

from analysis.power import percent


def number(x: float) -> str:
    """Three digits, as few characters as that takes; empty for what does not exist."""
    if isinstance(x, float) and math.isnan(x):
        return ""
    if math.isinf(x):
        return str(x)
    return f"{x:,.0f}" if x == int(x) and abs(x) < 1e7 else f"{x:.3g}"


def interval(low: float, high: float, show=number) -> str:
    """`1.2 to 1.4`; empty where there is none."""
    return f"{show(low)} to {show(high)}" if low == low and high == high else ""


def below(p: float) -> str:
    """`< 22 %`: a bound on a probability; empty where there is none."""
    return f"< {percent(p)}" if p == p else ""


def spans(numbers: Iterable[int]) -> str:
    """`0-3, 7`."""
    numbers = np.asarray(sorted(numbers))
    runs = np.split(numbers, np.flatnonzero(np.diff(numbers) > 1) + 1)
    return ", ".join(f"{run[0]}" if len(run) == 1 else f"{run[0]}-{run[-1]}" for run in runs if len(run))
