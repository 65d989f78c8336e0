"""Fields on which the backends of the block stencils are compared, and calls of the longer kernels."""

import numpy as np

SHAPES = [(3, 16, 16), (2, 32, 32), (5, 7, 9), (1, 4, 70), (4, 64, 64), (2, 5, 130)]
COEFFICIENTS = np.array([[0.3, 0.01], [0.2, 0.02], [0.7, 0.005]])
CYCLES = [  # blocks, their coarse points, factor, degree
    (3, 4, 4, 4, 3), (5, 7, 9, 1, 0), (1, 4, 70, 1, 3), (2, 5, 6, 2, 0), (3, 2, 2, 2, 1), (2, 3, 5, 3, 2),
    (1, 16, 16, 4, 3),
]  # fmt: skip


def field(rng, blocks, rows, columns, pad):
    scale = np.exp2(rng.integers(-30, 30, (blocks, rows + 2 * pad, columns + 2 * pad)))
    return rng.standard_normal(scale.shape) * scale


def v_cycle(module, blocks, coarse_rows, coarse_columns, factor, degree, threads=1):
    """What the way down and the way up of a V-cycle leave: z around the blocks, coarse, u, w and the dot products."""
    xp, rng = module.xp, np.random.default_rng(1)
    rows, columns = coarse_rows * factor, coarse_columns * factor
    pad, e_pad = 2 * degree + 2, (degree + 1) // factor + 2
    r, e = (
        xp.asarray(field(rng, blocks, *shape))
        for shape in ((rows, columns, pad), (coarse_rows, coarse_columns, e_pad))
    )
    scalars = (17.5, 0.007, xp.asarray(COEFFICIENTS[:degree].copy()), threads)
    z, u, w, dots = (
        xp.zeros(s) for s in (r.shape, (blocks, rows + 2, columns + 2), (blocks, rows, columns), (blocks, 3))
    )
    coarse = xp.zeros((blocks, coarse_rows + 4, coarse_columns + 4))
    module.smooth_restrict(r, pad, z, coarse, 2, factor, *scalars)
    module.prolong_smooth(r, pad, z, e, e_pad, factor, u, 1, w, dots, *scalars)
    return z[:, degree : rows + 2 * pad - degree, degree : columns + 2 * pad - degree], coarse, u, w, dots


def misfit(xp, wrong):
    """Arguments of `smooth_restrict`, right but for one thing."""
    r, z, coarse, factor = xp.zeros((2, 8, 8)), xp.zeros((2, 8, 8)), xp.zeros((2, 2, 2)), 2
    match wrong:
        case "host":
            z = np.zeros((2, 8, 8))
        case "dtype":
            z = z.astype(np.float32)
        case "strided":
            z = xp.zeros((2, 8, 16))[:, :, ::2]
        case "pad":
            r = xp.zeros((2, 10, 10))
        case "blocks":
            coarse = xp.zeros((3, 2, 2))
        case "coarse":
            coarse = xp.zeros((2, 3, 2))
        case "factor":
            coarse, factor = xp.zeros((2, 1, 1)), 4
    return r, 2, z, coarse, 0, factor, 1.0, 1.0, xp.zeros((0, 2)), 1
