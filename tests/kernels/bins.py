"""Reference scatter-adds bin by bin, in rational numbers where the order must not matter."""

import math

import numpy as np

from .hard import exactly, rounded


def accumulator(x):
    return np.float64 if x.dtype == np.float64 else np.float32


def left_to_right(x, index, bins):
    """The definition, one addition at a time."""
    out = np.zeros((bins, *x.shape[1:]), dtype=accumulator(x))
    with np.errstate(all="ignore"):
        for row, b in zip(x, index, strict=True):
            out[b] = out[b] + row.astype(out.dtype)
    return out


def order_free(x, index, bins):
    """`exact`."""
    number, wide = accumulator(x), x.astype(float)
    out = np.zeros((bins, *x.shape[1:]), number)
    for cell in np.ndindex(out.shape):
        terms = wide[(index == cell[0], *cell[1:])]
        if not np.isfinite(terms).all():
            with np.errstate(invalid="ignore"):
                special = terms[~np.isfinite(terms)].sum()
            out[cell] = np.nan if math.isnan(special) else special
        else:
            out[cell] = rounded(exactly(terms), number)
    return out
