"""Rows of the matrices of a box: the stencil, interpolation from a coarser box, and its transpose.

The pattern of every matrix here is a product over the axes: along each axis a point reaches a few coordinates, and a
row has an entry for every combination. Values depend only on the classes of the point along the axes. Entries of a row
are sorted by global column, on any rank.
"""

import numpy as np

from miniapps.linear.box import Box, coarsened
from miniapps.linear.stencils import Stencil

CHUNK = 1 << 13  # rows processed at once: their keys stay in the cache
NOWHERE = -1
FAR = 1 << 54  # larger than every row; three times this and a slot fit into an int64
WEIGHTS = np.array([0.5, 1.0, 0.5])  # of the fine points 2I, 2I + 1, 2I + 2 in coarse point I
Entries = tuple[np.ndarray, np.ndarray, np.ndarray]


def rows(box: Box, stencil: Stencil, blocks) -> Entries:
    """The rows of `blocks`: (indptr int64 (m + 1,), global columns int64, sorted in each row, data float64).

    Offsets whose coefficient is zero for all classes of points have no entries.
    """
    reach, classes = [], []
    for n in box.shape:
        reach.append(_inside(np.arange(n)[:, None] + np.array([-1, 0, 1]), n))
        classes.append((np.arange(n) == n - 1).astype(np.intp))
    return _entries(box.points(blocks), box, reach, classes, stencil.coefficients)


def interpolation(fine: Box, coarse: Box, blocks) -> Entries:
    """The rows of P that belong to `blocks` of the fine box: fine = P coarse, linear along each coarsened axis."""
    reach, classes = [], []
    for n, m, chosen in zip(fine.shape, coarse.shape, coarsened(fine, coarse), strict=True):
        at = np.arange(n)
        if chosen:
            between = at % 2 == 0  # coarse points are at 1, 3, 5, ...
            left = np.where(between, at // 2 - 1, at // 2)
            reach.append(_inside(np.stack([left, np.where(between, at // 2, NOWHERE)], axis=1), m))
        else:
            between = np.zeros(n, bool)
            reach.append(np.stack([at, np.full(n, NOWHERE)], axis=1))
        classes.append(between.astype(np.intp))
    weights = np.array([[1.0, 0.0], [0.5, 0.5]])  # (class, reached)
    return _entries(fine.points(blocks), coarse, reach, classes, _product(weights))


def restriction(fine: Box, coarse: Box, blocks) -> Entries:
    """The rows of R = P^T that belong to `blocks` of the coarse box: coarse = R fine."""
    reach, classes = [], []
    for n, m, chosen in zip(fine.shape, coarse.shape, coarsened(fine, coarse), strict=True):
        at = np.arange(m)[:, None]
        offsets = np.array([0, 1, 2]) if chosen else np.array([-n, 0, -n])  # only the point itself is inside
        reach.append(_inside((2 * at if chosen else at) + offsets, n))
        classes.append(np.full(m, 0 if chosen else 1, np.intp))
    weights = np.array([WEIGHTS, [0.0, 1.0, 0.0]])
    return _entries(coarse.points(blocks), fine, reach, classes, _product(weights))


def _inside(at: np.ndarray, n: int) -> np.ndarray:
    return np.where((at >= 0) & (at < n), at, NOWHERE)


def _product(weights: np.ndarray) -> np.ndarray:
    """(class, reached) of an axis -> (class z, y, x, reached z, y, x)."""
    return np.einsum("ai,bj,ck->abcijk", weights, weights, weights)


def _entries(points, target: Box, reach, classes, values: np.ndarray) -> Entries:
    """Rows at `points`: along each axis coordinate c reaches reach[axis][c] (n, k) of `target`, or NOWHERE.

    values: (2, 2, 2, k, k, k) by classes[axis][c] and reached coordinate. Each column is sorted together with its slot,
    as one integer; absent columns are larger than all others.
    """
    values = values.reshape(8, -1)
    slots = np.flatnonzero(values.any(axis=0))
    values = values[:, slots].reshape(-1)
    which = list(zip(*np.unravel_index(slots, [r.shape[1] for r in reach]), strict=True))
    bits = len(slots).bit_length()
    tables = [_homes(home, r.T) for home, r in zip(target.homes, reach, strict=True)]
    plane, line = target.ny * target.nx, target.nx
    m = len(points[0])
    indptr = np.zeros(m + 1, np.int64)
    columns = np.empty(m * len(slots), np.int64)  # upper bound: points outside the box have no entries
    data = np.empty(m * len(slots))
    end = 0
    for start in range(0, m, CHUNK):
        at = [p[start : start + CHUNK] for p in points]
        z, y, x = ([array[:, c] for array in table] for table, c in zip(tables, at, strict=True))
        keys = np.empty((len(slots), len(at[0])), np.int64)
        planes = {}
        for slot, (a, b, c) in enumerate(which):
            if (a, b) not in planes:
                planes[a, b] = _plane([array[a] for array in z], [array[b] for array in y], plane, line)
            before, area, lines = planes[a, b]
            first, extent, within, far = (array[c] for array in x)
            keys[slot] = ((before + area * first + lines * extent + within + far) << bits) + slot
        keys = np.sort(keys.T, axis=1)
        there = keys < FAR << bits
        kind = (classes[0][at[0]] * 2 + classes[1][at[1]]) * 2 + classes[2][at[2]]
        counts = there.sum(axis=1)
        indptr[start + 1 : start + 1 + len(counts)] = counts
        keys_there = keys[there]
        stop = end + len(keys_there)
        columns[end:stop] = keys_there >> bits
        slot_of = keys_there & ((1 << bits) - 1)
        data[end:stop] = values[slot_of + np.repeat(kind * len(slots), counts)]
        end = stop
    np.cumsum(indptr, out=indptr)
    return indptr, columns[:end], data[:end]


def _homes(home, reached: np.ndarray):
    """For coordinates (k, n): begins of their blocks, extents of the blocks, places within, FAR or 0."""
    first, extent = (array[reached] for array in home)
    outside = reached == NOWHERE
    return first, extent, np.where(outside, 0, reached - first), np.where(outside, FAR, 0)


def _plane(z, y, plane: int, line: int):
    """(before, area, lines) of points with one z and y: number = before + area first_x + lines extent_x + within_x."""
    (z0, ez, zi, z_far), (y0, ey, yi, y_far) = z, y
    return z0 * plane + ez * (y0 * line) + (z_far + y_far), ez * ey, zi * ey + yi
