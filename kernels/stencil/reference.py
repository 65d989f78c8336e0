"""Block stencils in plain NumPy: slow, and the definition of what the other backends must give, bit for bit."""

import numpy as np

xp = np

LANES = 64


def interior(field, pad: int):
    """The part of `(blocks, rows + 2 pad, columns + 2 pad)` without the halo: a view."""
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
    """Copy strided runs: rows of `runs` are (source offset, target offset, count, source stride, target stride)."""
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
    """Interior of r = b + laplace(x), halo of x filled to 1."""
    interior(r, r_pad)[...] = b - minus_laplacian(interior(x, x_pad - 1), inverse_h2)


def chebyshev_laplacian(r, pad, u, w, dots, inverse_h2, inverse_theta, coefficients, threads=1):
    """u = P(A) r, w = A u with A = -laplace; dots[b] = (r, u), (w, u), (r, r) of block b in the lanes order.

    P is Chebyshev's semi-iteration of degree d = len(coefficients) from zero (Saad, Iterative Methods for Sparse
    Linear Systems, 2003, algorithm 12.1), `coefficients` (d, 2) its factors of the last step and of the residual.
    r: halo filled to d + 1, corners included: each block computes its halo's share itself.
    """
    residual = interior(r, pad - len(coefficients) - 1)
    z = residual * inverse_theta
    step = z
    for keep, take in coefficients:
        residual, step = residual[:, 1:-1, 1:-1], step[:, 1:-1, 1:-1]
        step = keep * step + take * (residual - minus_laplacian(z, inverse_h2))
        z = z[:, 1:-1, 1:-1] + step
    u[...] = z[:, 1:-1, 1:-1]
    w[...] = minus_laplacian(z, inverse_h2)
    for k, (a, a_pad, b, b_pad) in enumerate([(r, pad, u, 0), (w, 0, u, 0), (r, pad, r, pad)]):
        block_dots(a, a_pad, b, b_pad, dots[:, k])


def block_dots(a, a_pad, b, b_pad, out):
    """out[k] = sum over the interior of block k of a*b, each product rounded, in the lanes order."""
    products = interior(a, a_pad) * interior(b, b_pad)
    for k, block in enumerate(products):
        out[k] = lanes_sum(block.reshape(-1))
