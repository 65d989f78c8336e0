"""Worst orders: searches for orders of arrival that drive a sum, added one by one, furthest down and up.

For `ao` the arriving units are the elements, or 32 of them at a time as a warp; for `spa` the partial sums of the
blocks. There are n! orders, so a search cannot try all: the true extremes are at least as far as those found, and the
a-priori bound (n - 1) u sum|x| limits them.

The search tries sorted orders of several kinds, plateaus, and step by step the term of a window with the largest error.
A plateau keeps the partial sum in one binade, where the rounding error of adding a given term is known in advance, for
all terms whose error has the wanted sign, and adds the other terms near zero. Then the best order is improved by
exchanges of two units that do not harm. Up to 7 units, all orders are tried.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import permutations

import numpy as np

from kernels.registry import get
from kernels.sums.elements import accumulator, vector
from kernels.tree import error_bound

RANDOM_ORDERS = 32
PERMUTED = 7  # units, at most, to try all orders
EXCHANGES = 4000  # tried in each direction
EXCHANGED = 2000  # units, at most, to try exchanges
STEPPED = 20_000  # units, at most, to search step by step
WINDOW = 32
BINADES = 12  # of tried plateaus, downwards from the highest reachable one


@dataclass(frozen=True)
class Extreme:
    """An extreme sum, the order of units (int64) that gives it, and the method that found it."""

    value: np.floating
    order: np.ndarray
    method: str


@dataclass(frozen=True)
class Extremes:
    """The lowest and highest sum; `random`: sums in random orders; `tried`: the number of all sums; `exact` and `bound`
    are float64."""

    lowest: Extreme
    highest: Extreme
    random: np.ndarray
    tried: int
    exact: float
    bound: float


def arranged(terms: np.ndarray, order: np.ndarray, unit: int = 1) -> np.ndarray:
    """The terms in an order of arrival of units; a unit is `unit` consecutive terms, and the last may be shorter."""
    if unit == 1:
        return terms[order]
    index = (np.asarray(order)[:, None] * unit + np.arange(unit)).ravel()
    return terms[index[index < len(terms)]]


def in_order(terms: np.ndarray, order: np.ndarray, unit: int = 1) -> np.floating:
    """The sum from +0.0 in an order of arrival, in the type of the accumulator: replays an order from `search`."""
    terms = vector(terms)
    kind = accumulator(terms.dtype)
    return _sum(arranged(terms.astype(kind, copy=False), order, unit))


def search(
    terms: np.ndarray,
    unit: int = 1,
    seed: int = 0,
    random_orders: int = RANDOM_ORDERS,
    exchanges: int = EXCHANGES,
) -> Extremes:
    """Searches orders that drive the sum of `terms` (n,) furthest down and up, beside `random_orders` random ones.

    `unit` consecutive terms arrive together: 32 for `ao` on a GPU. Types are those of all sums. The same arguments give
    the same result. At most `exchanges` exchanges are tried in each direction. Raises ValueError for no terms and for
    terms that are not finite, TypeError for other types.
    """
    terms = vector(terms)
    terms = terms.astype(accumulator(terms.dtype), copy=False)
    if len(terms) == 0 or not np.isfinite(terms).all():
        raise ValueError(
            f"{len(terms)} terms, {(~np.isfinite(terms)).sum()} not finite: worst orders need finite terms"
        )
    if unit < 1:
        raise ValueError(f"unit {unit}: choose 1 or more terms that arrive together")
    rng = np.random.default_rng(seed)
    up, down = _Best(terms, unit), _Best(-terms, unit)  # -(a + b) is (-a) + (-b) in floating point too
    for method, order in _sorted_orders(up.totals):
        down.offer(method, order, -up.consider(method, order))
    random = np.empty(random_orders, terms.dtype)
    for k in range(random_orders):
        order = rng.permutation(up.units)
        random[k] = up.consider("random", order)
        down.offer("random", order, -random[k])
    for best in (up, down):
        for method, order in _plateaus(best):
            best.consider(method, order)
        if best.units <= STEPPED:
            best.consider("steps", _step_by_step(best, best.order))
        if best.units <= PERMUTED:
            _all_orders(best)
        elif best.units <= EXCHANGED:
            _exchange(best, exchanges, rng)
    return Extremes(
        lowest=Extreme(-down.value, down.order, down.method),
        highest=Extreme(up.value, up.order, up.method),
        random=random,
        tried=up.tried + down.tried,
        exact=float(get("sum", "exact")(terms.astype(np.float64))),
        bound=error_bound(len(terms) - 1, terms),
    )


class _Best:
    """The highest sum so far of the terms in some order, and that order."""

    def __init__(self, terms: np.ndarray, unit: int):
        self.units = -(-len(terms) // unit)
        self.rows = np.zeros(
            (self.units, unit), terms.dtype
        )  # +0.0 where the last unit is short: adds nothing
        self.rows.ravel()[: len(terms)] = terms
        self.totals = self.rows.sum(axis=1, dtype=np.float64)
        self.value: np.floating = terms.dtype.type(-np.inf)
        self.order, self.method, self.tried = np.arange(self.units), "", 0

    def consider(self, method: str, order: np.ndarray) -> np.floating:
        self.tried += 1
        value = _sum(self.rows[order].ravel())
        self.offer(method, order, value)
        return value

    def offer(self, method: str, order: np.ndarray, value: np.floating) -> None:
        if value > self.value:
            self.value, self.order, self.method = value, order, method


def _sum(terms: np.ndarray) -> np.floating:
    """Left to right from +0.0, each addition rounded."""
    with np.errstate(over="ignore", invalid="ignore"):
        return np.add.accumulate(terms)[-1] + terms.dtype.type(0)


def _sorted_orders(x: np.ndarray) -> Iterator[tuple[str, np.ndarray]]:
    ascending = np.argsort(x, kind="stable")
    growing = np.argsort(np.abs(x), kind="stable")
    negative = int(np.searchsorted(x[ascending], 0.0))
    low, high = ascending[:negative], ascending[negative:][::-1]  # both from the largest magnitude on
    paired = min(len(low), len(high))
    by_turns = np.concatenate(
        [np.stack([high[:paired], low[:paired]], 1).ravel(), high[paired:], low[paired:]]
    )
    yield "as given", np.arange(len(x))
    yield "ascending", ascending
    yield "descending", ascending[::-1]
    yield "growing magnitude", growing
    yield "falling magnitude", growing[::-1]
    yield "positive first, small to large", np.concatenate([high[::-1], low[::-1]])
    yield "negative first, small to large", np.concatenate([low[::-1], high[::-1]])
    yield "positive first, large to small", np.concatenate([high, low])
    yield "negative first, large to small", np.concatenate([low, high])
    yield "large positive and negative by turns", by_turns
    yield "small positive and negative by turns", by_turns[::-1]


def _plateaus(best: _Best) -> Iterator[tuple[str, np.ndarray]]:
    """Yields (name, order) of plateaus: the sum stays in one binade for the units whose errors there are positive."""
    x = best.totals
    digits = np.finfo(best.rows.dtype).nmant
    for side in (1.0, -1.0):
        reach = float(np.sum(x, where=side * x > 0) * side)
        if reach == 0.0 or not np.isfinite(reach):
            continue
        top = int(np.frexp(reach)[1]) - 1
        for binade in range(top, top - BINADES, -1):
            spacing = 2.0 ** (binade - digits)
            rows = best.rows.astype(np.float64)
            error = (np.rint(rows / spacing) * spacing - rows).sum(axis=1)
            yield f"plateau at {'-' if side < 0 else ''}2^{binade}", _plateau(side * x, error, 2.0**binade)


def _plateau(x: np.ndarray, error: np.ndarray, height: float) -> np.ndarray:
    """An order of the units with totals x: unwanted units near zero, up to the height, wanted units there, then down.

    The wanted units with the least gain for their size make the way up and down.
    """
    wanted = error > 0
    near, rest = _balanced(np.flatnonzero(~wanted), x)
    gain = np.abs(error[wanted]) / np.maximum(np.abs(x[wanted]), np.finfo(np.float64).tiny)
    pool = np.concatenate([rest, np.flatnonzero(wanted)[np.argsort(gain, kind="stable")]])
    rising = pool[x[pool] > 0]
    climb = rising[: int(np.searchsorted(np.cumsum(x[rising]), height)) + 1]
    left = np.concatenate([rising[len(climb) :], pool[x[pool] <= 0]])
    there, after = _balanced(left[wanted[left]], x)
    return np.concatenate([near, climb, there, after, left[~wanted[left]]])


def _balanced(units: np.ndarray, x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The units with alternating signs, so that their sum stays near zero while both signs last; then the rest."""
    up, down = units[x[units] > 0], units[x[units] <= 0]
    risen, fallen = np.cumsum(x[up]), np.cumsum(-x[down])
    least = min(risen[-1] if len(up) else 0.0, fallen[-1] if len(down) else 0.0)
    ups, downs = int(np.searchsorted(risen, least, "right")), int(np.searchsorted(fallen, least, "right"))
    merged = np.argsort(np.concatenate([risen[:ups], fallen[:downs]]), kind="stable")
    return np.concatenate([up[:ups], down[:downs]])[merged], np.concatenate([up[ups:], down[downs:]])


def _step_by_step(best: _Best, order: np.ndarray) -> np.ndarray:
    """An order that takes, from the next WINDOW units, the one with the largest rounding errors upwards."""
    window, coming = list(order[:WINDOW]), iter(order[WINDOW:])
    totals = best.totals[window]
    lanes = np.empty((len(window), best.rows.shape[1] + 1), best.rows.dtype)  # the sum so far, and a unit
    lanes[:, 1:] = best.rows[window]
    total, result = best.rows.dtype.type(0), np.empty_like(order)
    filled = len(window)
    for k in range(len(order)):
        lanes[:filled, 0] = total
        sums = np.add.accumulate(lanes[:filled], axis=1)[:, -1]
        pick = int(np.argmax((sums - np.float64(total)) - totals[:filled]))
        result[k], total = window[pick], sums[pick]
        new = next(coming, None)
        if new is None:
            filled -= 1
            window[pick], lanes[pick], totals[pick] = window[filled], lanes[filled], totals[filled]
        else:
            window[pick], lanes[pick, 1:], totals[pick] = new, best.rows[new], best.totals[new]
    return result


def _all_orders(best: _Best) -> None:
    orders = np.array(list(permutations(range(best.units))))
    sums = np.add.accumulate(best.rows[orders].reshape(len(orders), -1), axis=1)[
        :, -1
    ] + best.rows.dtype.type(0)
    best.tried += len(orders)
    best.offer("all orders", orders[np.argmax(sums)], sums.max())


def _exchange(best: _Best, exchanges: int, rng: np.random.Generator) -> None:
    """Exchanges two random units, and keeps exchanges that do not lower the sum."""
    order, value = best.order.copy(), best.value
    for i, j in rng.integers(best.units, size=(exchanges, 2)):
        order[i], order[j] = order[j], order[i]
        best.tried += 1
        new = _sum(best.rows[order].ravel())
        if new >= value:
            if new > value:
                best.offer(f"{best.method.removesuffix(', exchanges')}, exchanges", order.copy(), new)
            value = new
        else:
            order[i], order[j] = order[j], order[i]
