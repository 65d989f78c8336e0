"""One array by every variant: what each makes of it, how far that is off, and how long it takes."""

from __future__ import annotations

from functools import partial

import numpy as np

from kernels.progress import Progress
from kernels.registry import Variant, get, variants
from kernels.sums.black_box import black_box
from kernels.sums.elements import accumulator
from kernels.sums.trees import of_variant
from kernels.timing import FEWEST, MOST, median_interval, timed
from kernels.tree import evaluate

BOUNDED = 20_000  # terms, at most, whose trees are walked for their bounds


def compare(x: np.ndarray, source: str, threads: int = 0) -> str:
    """A table of the sums of x (n,) by every variant that can run here, in `threads` threads (0: OpenMP's default).

    Value, bits, distance from the correctly rounded sum in ULP, bound of the error, median of the times of several
    calls in microseconds and its 95 % interval. Shows progress on stderr.
    """
    kind = accumulator(x.dtype)
    exact = kind.type(get("sum", "exact")(x))
    lines = [
        f"{len(x)} {x.dtype.name} ({source}); correctly rounded: {float(exact)!r}",
        f"{'order':<15}{'backend':<11}{'promises':<10}{'sum':>25}  {'bits':<24}"
        f"{'ULP off':>10}{'at most':>10}{'us':>10}  95 %",
    ]
    progress = Progress("compare")
    here = [v for v in variants("sum") if not v.unavailable()]
    for i, v in enumerate(here):
        progress.show(i / len(here), f"{v.name} ({v.backend})")
        parameters = {"threads": threads} if threads and "threads" in v.parameters else {}
        begin = f"{v.name:<15}{v.backend:<11}{v.guarantee:<10}"
        try:
            value, seconds = timed(partial(black_box(v, **parameters), x))
        except (TypeError, ValueError) as error:
            lines.append(f"{begin}  refused: {error}")
            continue
        value = kind.type(value)
        bound = _bound(v, x.astype(kind), parameters, exact)
        text = f"{float(value)!r:>25}  {float(value).hex():<24}{_ulps(value, exact):>10}{bound:>10}"
        lines.append(f"{begin}{text}{_microseconds(seconds)}")
    progress.clear()
    lines.append(
        "ULP off: numbers between this sum and the correctly rounded one. At most: what the partial sums of the"
    )
    lines.append(f"declared tree can lose by rounding, in ULP; computed for up to {BOUNDED} terms.")
    lines.append(
        f"us: median of {FEWEST} to {MOST} calls, after a first one, and the interval that holds the median with 95 %"
    )
    return "\n".join(lines)


def _bound(v: Variant, x: np.ndarray, parameters: dict, exact: np.floating) -> str:
    """The running error bound of the declared tree, in ULP of the exact sum."""
    by_threads = v.name == "omp-ordered" and not parameters
    if by_threads or not 0 < len(x) <= BOUNDED or not np.isfinite(exact):
        return "-"
    tree = of_variant(v, len(x), **parameters)
    return "-" if tree is None else f"{evaluate(tree, x)[1] / np.spacing(abs(exact)):.1f}"


def _microseconds(seconds: list[float]) -> str:
    """The median, and its interval where there are enough calls for one."""
    median, low, high = (None if t is None else t * 1e6 for t in median_interval(seconds))
    return f"{median:>10.1f}  " + (f"{low:.1f} to {high:.1f}" if low is not None else f"{len(seconds)} calls")


def _ulps(value: np.floating, exact: np.floating) -> str:
    """How many numbers of the type lie between, counted with the sign of value - exact."""
    if not (np.isfinite(value) and np.isfinite(exact)):
        return "same" if value == exact or (np.isnan(value) and np.isnan(exact)) else "-"
    kind = np.dtype(f"i{value.dtype.itemsize}")
    places = [int(v.view(kind)) for v in (value, exact)]
    a, b = (place if place >= 0 else int(np.iinfo(kind).min) - place for place in places)
    return str(a - b)
