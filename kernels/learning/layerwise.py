"""A wire for each tensor: the fewest bytes at no more error than one wire for all (L-GreCo, Alimohammadi 2022)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from kernels.guarantees import ChoiceError, known

BUCKETS = 10_000


@dataclass(frozen=True)
class Choice:
    """The wire of each tensor by name, the bytes of all tensors, the sum of their errors, and the allowed sum."""

    wires: tuple[str, ...]
    nbytes: int
    error: float
    allowed: float


def choose(
    names: Sequence[str], errors: ArrayLike, nbytes: ArrayLike, reference: str, alpha: float = 1.0,
    squared: bool = False, buckets: int = BUCKETS,
) -> Choice:  # fmt: skip
    """The wires with the fewest bytes whose errors add up to at most `alpha` times those of `reference`.

    names: k candidates. errors (l, k) float64 >= 0 and nbytes (l, k) int64 >= 0: for each of l tensors on each wire.
    `squared`: squares errors first, so that large ones weigh more. Errors are rounded up to units of the allowed sum /
    `buckets`, so the limit holds. Dynamic programming: D[l][e] = min_c D[l-1][e - err(l, c)] + size(l, c). For alpha of
    at least 1 the reference itself is always a candidate. Among choices of equal bytes the least error wins, then the
    first wire in `names`, from the last tensor on.

    Raises ChoiceError for an unknown reference, and where no choice keeps the limit; ValueError for other shapes,
    numbers that are negative or not finite, alpha below 0 and fewer than 1 bucket.
    """
    known("reference", reference, names)
    errors, sizes = np.asarray(errors, np.float64), np.asarray(nbytes, np.int64)
    if errors.ndim != 2 or errors.shape != sizes.shape or errors.shape[1] != len(names):
        raise ValueError(
            f"errors {errors.shape} and bytes {sizes.shape} must be (tensors, {len(names)} wires)"
        )
    if not (np.isfinite(errors).all() and (errors >= 0).all() and (sizes >= 0).all()):
        raise ValueError(
            "errors and bytes must be finite, and 0 or more: leave out wires that cannot carry a tensor"
        )
    if not (np.isfinite(alpha) and alpha >= 0 and buckets >= 1):
        raise ValueError(f"alpha {alpha} must be 0 or more and finite, buckets {buckets} 1 or more")
    weights = errors**2 if squared else errors
    column = list(names).index(reference)
    allowed = alpha * float(weights[:, column].sum())
    best = least(in_buckets(weights, allowed, buckets), sizes, buckets)
    tensors = np.arange(len(errors))
    if alpha >= 1 and (best is None or sizes[:, column].sum() < sizes[tensors, best].sum()):
        best = np.full(len(errors), column)
    if best is None:
        raise ChoiceError(
            f"no choice of {', '.join(names)} has a total error of at most {alpha:g} times that of {reference}: choose "
            "a larger alpha, or offer a wire with smaller errors"
        )
    return Choice(
        tuple(names[c] for c in best),
        int(sizes[tensors, best].sum()),
        float(weights[tensors, best].sum()),
        allowed,
    )


def in_buckets(errors: np.ndarray, allowed: float, buckets: int) -> np.ndarray:
    """Errors (l, k) in units of `allowed` / `buckets`, rounded up: int64, at most `buckets` + 1, which is too large."""
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        units = np.where(errors > 0, np.ceil(errors / allowed * buckets), 0.0)
    return np.minimum(units, buckets + 1).astype(np.int64)


def least(units: np.ndarray, sizes: np.ndarray, buckets: int) -> np.ndarray | None:
    """The wire of each tensor, int64 (l,): fewest bytes in total with at most `buckets` units; None if impossible."""
    endless = np.iinfo(np.int64).max // 2
    total = np.full(buckets + 1, endless)  # fewest bytes for exactly so many units
    total[0] = 0
    came = []  # the wire of each tensor, by the units up to it
    for of_wire, size in zip(units, sizes, strict=True):
        tries = np.full((len(of_wire), buckets + 1), endless)
        for c, unit in enumerate(of_wire):
            if unit <= buckets:
                tries[c, unit:] = np.minimum(total[: buckets + 1 - unit] + size[c], endless)
        came.append(tries.argmin(axis=0))  # the first wire of several
        total = tries.min(axis=0)
    left = int(total.argmin())  # the least error of several
    if total[left] >= endless:
        return None
    chosen = np.zeros(len(units), np.int64)
    for row in range(len(units) - 1, -1, -1):
        chosen[row] = came[row][left]
        left -= units[row, chosen[row]]
    return chosen
