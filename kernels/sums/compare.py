"""One array by every variant: what each makes of it, how far that is off, and how long it takes."""

from __future__ import annotations

import time
from collections.abc import Callable

import numpy as np

from kernels.registry import Variant, get, variants
from kernels.sums.black_box import black_box
from kernels.sums.elements import accumulator
from kernels.sums.trees import of_variant
from kernels.tree import evaluate

REPEATS = 3
BOUNDED = 20_000  # terms, at most, whose trees are walked for their bounds


def compare(x: np.ndarray, source: str, threads: int = 0) -> str:
    """A table of the sums of x (n,) by every variant that can run here, in `threads` threads (0: OpenMP's default).

    Value, bits, distance from the correctly rounded sum in ULP, bound of the error, least time of a few calls.
    """
    kind = accumulator(x.dtype)
    exact = kind.type(get("sum", "exact")(x))
    lines = [
        f"{len(x)} {x.dtype.name} ({source}); correctly rounded: {float(exact)!r}",
        f"{'order':<15}{'backend':<11}{'promises':<10}{'sum':>25}  {'bits':<24}"
        f"{'ULP off':>10}{'at most':>10}{'ms':>10}",
    ]
    for v in variants("sum"):
        if v.unavailable():
            continue
        parameters = {"threads": threads} if threads and "threads" in v.parameters else {}
        begin = f"{v.name:<15}{v.backend:<11}{v.guarantee:<10}"
        try:
            value, seconds = _timed(black_box(v, **parameters), x)
        except (TypeError, ValueError) as error:
            lines.append(f"{begin}  refused: {error}")
            continue
        value = kind.type(value)
        bound = _bound(v, x.astype(kind), parameters, exact)
        text = f"{float(value)!r:>25}  {float(value).hex():<24}{_ulps(value, exact):>10}{bound:>10}"
        lines.append(f"{begin}{text}{seconds * 1e3:>10.3f}")
    lines.append(
        "ULP off: numbers between this sum and the correctly rounded one. At most: what the partial sums of the"
    )
    lines.append(f"declared tree can lose by rounding, in ULP; computed for up to {BOUNDED} terms.")
    return "\n".join(lines)


def _bound(v: Variant, x: np.ndarray, parameters: dict, exact: np.floating) -> str:
    """The running error bound of the declared tree, in ULP of the exact sum."""
    by_threads = v.name == "omp-ordered" and not parameters
    if by_threads or not 0 < len(x) <= BOUNDED or not np.isfinite(exact):
        return "-"
    tree = of_variant(v, len(x), **parameters)
    return "-" if tree is None else f"{evaluate(tree, x)[1] / np.spacing(abs(exact)):.1f}"


def _timed(f: Callable, x: np.ndarray) -> tuple[np.floating, float]:
    """The value, and the least time of several calls in seconds."""
    seconds = []
    for _ in range(REPEATS):
        begun = time.perf_counter()
        value = f(x)
        seconds.append(time.perf_counter() - begun)
    return value, min(seconds)


def _ulps(value: np.floating, exact: np.floating) -> str:
    """How many numbers of the type lie between, counted with the sign of value - exact."""
    if not (np.isfinite(value) and np.isfinite(exact)):
        return "same" if value == exact or (np.isnan(value) and np.isnan(exact)) else "-"
    kind = np.dtype(f"i{value.dtype.itemsize}")
    places = [int(v.view(kind)) for v in (value, exact)]
    a, b = (place if place >= 0 else int(np.iinfo(kind).min) - place for place in places)
    return str(a - b)
