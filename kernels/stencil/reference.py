"""Block stencils in plain NumPy: slow; the other backends must have the same bits."""

import numpy as np

xp = np

LANES = 64


def interior(field, pad: int):
    """The field `(blocks, rows + 2 pad, columns + 2 pad)` without its halo: a view."""
    return field[:, pad : field.shape[1] - pad, pad : field.shape[2] - pad]


def lanes_sum(x):
    """Sum of a vector in the order of `kernels/native/lanes.hpp`: 64 strided lanes, then a binary tree."""
    lanes = np.zeros(LANES)
    for start in range(0, len(x), LANES):
        part = x[start : start + LANES]
        lanes[: len(part)] += part
    width = LANES // 2
    while width:
        lanes[:width] += lanes[width : 2 * width]
        width //= 2
    return lanes[0]


def copy_runs(src, dst, runs):
    """Copies strided runs: rows of `runs` are (source offset, target offset, count, source stride, target stride)."""
    source, target = src.reshape(-1), dst.reshape(-1)
    for a, b, count, step_a, step_b in runs:
        target[b : b + count * step_b : step_b] = source[a : a + count * step_a : step_a]


def cg_update(alpha, beta, u, w, p, s, x, x_pad, r, r_pad, threads=1):
    """p = u + beta p; s = w + beta s; x += alpha p; r -= alpha s, in place over the interiors."""
    inner_r, inner_x = interior(r, r_pad), interior(x, x_pad)
    p[...] = u + beta * p
    s[...] = w + beta * s
    inner_x += alpha * p
    inner_r -= alpha * s


def minus_laplacian(field, inverse_h2):
    """-laplace by five points; the result is one point smaller on every side."""
    across = field[:, 1:-1, :-2] + field[:, 1:-1, 2:]
    along = field[:, :-2, 1:-1] + field[:, 2:, 1:-1]
    return (4.0 * field[:, 1:-1, 1:-1] - (across + along)) * inverse_h2


def poisson_residual(b, x, x_pad, r, r_pad, inverse_h2, threads=1):
    """Interior of r = b + laplace(x); the halo of x must be filled to depth 1."""
    interior(r, r_pad)[...] = b - minus_laplacian(interior(x, x_pad - 1), inverse_h2)


def smooth(r, z, step, inverse_h2, coefficients):
    """Chebyshev's semi-iteration for A z = r after its first `step`, which z contains (Saad, Iterative Methods for
    Sparse Linear Systems, 2003, algorithm 12.1).

    `coefficients` (degree, 2): factors of the last step and of the residual. The result is `degree` points smaller on
    every side.
    """
    for keep, take in coefficients:
        r, step = r[:, 1:-1, 1:-1], step[:, 1:-1, 1:-1]
        step = keep * step + take * (r - minus_laplacian(z, inverse_h2))
        z = z[:, 1:-1, 1:-1] + step
    return z


def restricted(q, factor):
    """Weighted averages around every factor-th point: the transpose of `interpolated`, divided by factor^2. q has
    factor - 1 points around the block."""
    weights = [min(k + 1, 2 * factor - 1 - k) for k in range(2 * factor - 1)]
    rows, columns = (n - 2 * (factor - 1) for n in q.shape[1:])
    down = q[:, 0:rows:factor]
    for k, weight in enumerate(weights[1:], 1):
        down = down + float(weight) * q[:, k : k + rows : factor]
    across = down[:, :, 0:columns:factor]
    for k, weight in enumerate(weights[1:], 1):
        across = across + float(weight) * down[:, :, k : k + columns : factor]
    return across * (1.0 / float(factor) ** 4)


def interpolated(e, pad, factor, margin):
    """Bilinear interpolation of coarse points to the block and `margin` points around it; every factor-th fine point is
    a coarse point."""

    def ends(n):
        at = np.arange(-margin, (n - 2 * pad) * factor + margin)
        part = (at % factor).astype(float)
        return at // factor + pad, (factor - part) / factor, part / factor

    (j, above, below), (i, left, right) = map(ends, e.shape[1:])
    across = left * e[:, :, i] + right * e[:, :, i + 1]
    return above[:, None] * across[:, j] + below[:, None] * across[:, j + 1]


def smooth_restrict(
    r, pad, z, coarse, coarse_pad, factor, inverse_h2, inverse_theta, coefficients, threads=1
):
    """The way down of a V-cycle: z = S r with A = -laplace, and interior of coarse = averages of r - A z.

    S is Chebyshev's semi-iteration of degree d = len(coefficients) from zero. r: halo filled to depth 2 d + 2, with
    corners: each block smooths the points of its halo itself, and z then has d + 2 points around the block. factor:
    fine points per coarse point in a dimension, at most d + 2; coarse point I is fine point factor I.
    """
    margin = len(coefficients) + 2
    right = interior(r, pad - margin - len(coefficients))
    step = right * inverse_theta
    interior(z, pad - margin)[...] = smooth(right, step, step, inverse_h2, coefficients)
    q = interior(r, pad - factor + 1) - minus_laplacian(interior(z, pad - factor), inverse_h2)
    interior(coarse, coarse_pad)[...] = restricted(q, factor)


def prolong_smooth(
    r, pad, z, e, e_pad, factor, u, u_pad, w, dots, inverse_h2, inverse_theta, coefficients, threads=1
):
    """The way up of a V-cycle: interior of u = z of `smooth_restrict` plus the interpolated e, smoothed once more.

    Also w = A u, and dots[b] = (r, u), (w, u), (r, r) of block b in the order of lanes. e: halo filled to depth
    (d + 1) // factor + 2, with corners.
    """
    margin = len(coefficients) + 2
    z = interior(z, pad - margin) + interpolated(e, e_pad, factor, margin)
    right = interior(r, pad - margin + 1)
    step = (right - minus_laplacian(z, inverse_h2)) * inverse_theta
    z = smooth(right, z[:, 1:-1, 1:-1] + step, step, inverse_h2, coefficients)
    interior(u, u_pad)[...] = z[:, 1:-1, 1:-1]
    w[...] = minus_laplacian(z, inverse_h2)
    for k, (a, a_pad, b, b_pad) in enumerate([(r, pad, u, u_pad), (w, 0, u, u_pad), (r, pad, r, pad)]):
        block_dots(a, a_pad, b, b_pad, dots[:, k])


def block_dots(a, a_pad, b, b_pad, out):
    """out[k] = sum over the interior of block k of a*b, each product rounded, in the order of lanes."""
    products = interior(a, a_pad) * interior(b, b_pad)
    for k, block in enumerate(products):
        out[k] = lanes_sum(block.reshape(-1))
