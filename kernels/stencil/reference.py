"""Block stencils in plain NumPy: slow, and the definition of what the other backends must give, bit for bit."""

import numpy as np

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


def cg_update(alpha, beta, r, r_pad, w, p, s, x, x_pad, threads=1):
    """p = r + beta p; s = w + beta s; x += alpha p; r -= alpha s, in place over the interiors."""
    inner_r, inner_x = interior(r, r_pad), interior(x, x_pad)
    p[...] = inner_r + beta * p
    s[...] = w + beta * s
    inner_x += alpha * p
    inner_r -= alpha * s


def laplacian_dots(r, pad, w, dots, inverse_h2, threads=1):
    """w = -laplace(r) by five points; dots[b] = (r, r), (w, r) of block b in the lanes order."""
    c = interior(r, pad)
    rows, columns = slice(pad, r.shape[1] - pad), slice(pad, r.shape[2] - pad)
    west, east = r[:, rows, pad - 1 : r.shape[2] - pad - 1], r[:, rows, pad + 1 : r.shape[2] - pad + 1]
    south, north = r[:, pad - 1 : r.shape[1] - pad - 1, columns], r[:, pad + 1 : r.shape[1] - pad + 1, columns]
    w[...] = (4.0 * c - ((west + east) + (south + north))) * inverse_h2
    block_dots(r, pad, r, pad, dots[:, 0])
    block_dots(w, 0, r, pad, dots[:, 1])


def block_dots(a, a_pad, b, b_pad, out):
    """out[k] = sum over the interior of block k of a*b, each product rounded, in the lanes order."""
    products = interior(a, a_pad) * interior(b, b_pad)
    for k, block in enumerate(products):
        out[k] = lanes_sum(block.reshape(-1))
