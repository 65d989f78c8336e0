"""Axes of figures: logarithmic ones with few ticks, and a place for what is equal."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from analysis.page import svg


def floor_of(numbers) -> float:
    """Where equal is drawn on a logarithmic axis: a decade and more below the smallest difference."""
    positive = np.asarray(numbers, float)
    positive = positive[np.isfinite(positive) & (positive > 0)]
    return 10.0 ** (np.floor(np.log10(positive.min())) - 1) if len(positive) else 1e-17


def log_axis(axis, set_scale: Callable, floor: float) -> None:
    """Make `axis` logarithmic, with few ticks, and `floor` as the place where equal is drawn."""
    set_scale("log")
    high = max(axis.get_view_interval()[1], floor * 1e3)
    axis.axes.set(**{f"{axis.axis_name}lim": (floor / 2, high)})
    first, last = round(np.log10(floor)) + 1, int(np.floor(np.log10(high)))
    stride = max(1, -(-(last - first + 1) // 6))
    first += stride - 1  # not beside the label of `floor`
    ticks = [10.0**k for k in range(first, last + 1, stride)]
    axis.set_ticks([floor, *ticks], ["equal", *map(svg.power_of_ten, ticks)])
    axis.set_ticks([], minor=True)


def plain_ticks(axis) -> None:
    """Ticks of a logarithmic axis as numbers; 1, 2, 5 of each decade where these are few."""
    low, high = axis.get_view_interval()
    decades = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    for steps in ((1, 2, 5), (1,)):
        ticks = [step * 10.0**k for k in decades for step in steps if low <= step * 10.0**k <= high]
        if len(ticks) <= 6:
            break
    ticks = ticks[:: -(-len(ticks) // 6)] if ticks else [math.sqrt(low * high)]
    axis.set_ticks(ticks, [f"{tick:g}" if 1e-3 <= tick < 1e5 else _power(tick) for tick in ticks])
    axis.set_ticks([], minor=True)


def _power(tick: float) -> str:
    """`10⁶`, `2×10⁶`."""
    first = round(tick / 10.0 ** math.floor(math.log10(tick) + 1e-9))
    return ("" if first == 1 else f"{first}×") + svg.power_of_ten(tick / first)


def powers(axis) -> None:
    """Ticks of a logarithmic axis at powers of ten."""
    low, high = axis.get_view_interval()
    places = list(range(math.ceil(math.log10(low) - 1e-9), math.floor(math.log10(high) + 1e-9) + 1))
    if len(places) < 2:
        return plain_ticks(axis)
    ticks = [10.0**k for k in places[:: -(-len(places) // 7)]]
    axis.set_ticks(ticks, [svg.power_of_ten(tick) for tick in ticks])
    axis.set_ticks([], minor=True)


def log_ticks(low: float, high: float) -> list[float]:
    """Round numbers from `low` to `high`, so few that their labels do not touch."""
    ticks: list[float] = []
    for steps in ((1, 1.5, 2, 3, 4, 5, 7), (1, 2, 5), (1,)):
        decades = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
        ticks = [step * 10.0**k for k in decades for step in steps if low <= step * 10.0**k <= high]
        if len(ticks) <= 7:
            break
    return ticks
