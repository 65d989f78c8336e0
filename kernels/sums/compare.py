"""Compares variants on one array: the sum of each, its error and its time."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np

from kernels.progress import Progress
from kernels.registry import Variant, get, variants
from kernels.sums.black_box import black_box
from kernels.sums.elements import accumulator
from kernels.sums.trees import of_variant
from kernels.timing import FEWEST, MOST, median_interval, timed
from kernels.tree import evaluate

BOUNDED = 20_000  # terms, at most, of trees whose bounds are computed
COLUMNS = ("order", "backend", "guarantee", "sum", "bits", "ulps", "bound", "median_s", "low_s", "high_s", "calls",
           "refused")  # fmt: skip


def compare(x: np.ndarray, threads: int = 0, quiet: bool = False) -> list[dict[str, Any]]:
    """The sums of x (n,) by every variant that can run here, in `threads` threads (0: OpenMP's default), a row each.

    Keys: `order`, `backend`, `guarantee`, `sum`, `bits` (hexadecimal text of the sum), `ulps` from the correctly
    rounded sum (0 where both are the same infinity or NaN; None where only one is), `bound` on `ulps` from the declared
    tree (None: unknown), `median_s` of `calls` timed calls in seconds, with its 95 % interval `low_s`, `high_s` (None:
    too few calls). A variant that refuses the array has only the reason, in `refused`. Shows progress on stderr unless
    `quiet`.
    """
    kind = accumulator(x.dtype)
    exact = correct(x)
    progress = None if quiet else Progress("compare")
    here = [v for v in variants("sum") if not v.unavailable()]
    rows = []
    for i, v in enumerate(here):
        if progress:
            progress.show(i / len(here), f"{v.name} ({v.backend})")
        parameters = {"threads": threads} if threads and "threads" in v.parameters else {}
        row: dict[str, Any] = dict.fromkeys(COLUMNS)
        row |= {"order": v.name, "backend": v.backend, "guarantee": v.guarantee}
        rows.append(row)
        try:
            value, seconds = timed(partial(black_box(v, **parameters), x))
        except (TypeError, ValueError) as error:
            row["refused"] = str(error)
            continue
        value = kind.type(value)
        median, low, high = median_interval(seconds)
        row |= {
            "sum": float(value),
            "bits": float(value).hex(),
            "ulps": _ulps(value, exact),
            "bound": _bound(v, x.astype(kind), parameters, exact),
            "median_s": median,
            "low_s": low,
            "high_s": high,
            "calls": len(seconds),
        }
    if progress:
        progress.clear()
    return rows


def correct(x: np.ndarray) -> np.floating:
    """The correctly rounded sum of x (n,), in the type of the accumulator."""
    return accumulator(x.dtype).type(get("sum", "exact")(x))


def table(rows: list[dict[str, Any]], x: np.ndarray, source: str, quiet: bool = False) -> str:
    """The rows of `compare` for x from `source` as a text table; `quiet`: without the explanation of the columns."""
    exact = correct(x)
    lines = [
        f"{len(x)} {x.dtype.name} ({source}); correctly rounded: {float(exact)!r}",
        f"{'order':<15}{'backend':<11}{'promises':<10}{'sum':>25}  {'bits':<24}"
        f"{'ULP off':>10}{'at most':>10}{'us':>10}  95 %",
    ]
    for row in rows:
        begin = f"{row['order']:<15}{row['backend']:<11}{row['guarantee']:<10}"
        if row["refused"] is not None:
            lines.append(f"{begin}  refused: {row['refused']}")
            continue
        finite = np.isfinite(row["sum"]) and np.isfinite(exact)
        off = "-" if row["ulps"] is None else str(row["ulps"]) if finite else "same"
        bound = "-" if row["bound"] is None else f"{row['bound']:.1f}"
        text = f"{row['sum']!r:>25}  {row['bits']:<24}{off:>10}{bound:>10}"
        lines.append(f"{begin}{text}{_microseconds(row)}")
    if quiet:
        return "\n".join(lines)
    lines.append(
        "ULP off: distance of this sum from the correctly rounded one. At most: bound on the rounding errors of the"
    )
    lines.append(f"declared tree, in ULP, for up to {BOUNDED} terms.")
    lines.append(
        f"us: median of {FEWEST} to {MOST} calls, after a first one, and a 95 % interval of the median"
    )
    return "\n".join(lines)


def _bound(v: Variant, x: np.ndarray, parameters: dict, exact: np.floating) -> float | None:
    """The running error bound of the declared tree, in ULP of the exact sum."""
    by_threads = v.name == "omp-ordered" and not parameters
    if by_threads or not 0 < len(x) <= BOUNDED or not np.isfinite(exact):
        return None
    tree = of_variant(v, len(x), **parameters)
    return None if tree is None else float(evaluate(tree, x)[1] / np.spacing(abs(exact)))


def _microseconds(row: dict[str, Any]) -> str:
    """The median, and its interval where there are enough calls for one."""
    around = f"{row['calls']} calls"
    if row["low_s"] is not None:
        around = f"{row['low_s'] * 1e6:.1f} to {row['high_s'] * 1e6:.1f}"
    return f"{row['median_s'] * 1e6:>10.1f}  {around}"


def _ulps(value: np.floating, exact: np.floating) -> int | None:
    """The distance in representable numbers, with the sign of value - exact."""
    if not (np.isfinite(value) and np.isfinite(exact)):
        return 0 if value == exact or (np.isnan(value) and np.isnan(exact)) else None
    kind = np.dtype(f"i{value.dtype.itemsize}")
    places = [int(v.view(kind)) for v in (value, exact)]
    a, b = (place if place >= 0 else int(np.iinfo(kind).min) - place for place in places)
    return a - b
