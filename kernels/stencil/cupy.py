"""Block stencils in CUDA C++ (kernels/cuda/stencil.cu): one thread block per block, with the bits of `reference`.

Fields are C-contiguous float64 arrays of CuPy. Calls return when their work is queued on the current stream.
"""

import cupy as xp

from kernels.cuda import kernel

POINTWISE = 256  # threads of a block
DOTS = 3 * 64  # 64 lanes for each of the three dot products of an iteration
DOT = 64
COPY = 32


def copy_runs(src, dst, runs) -> None:
    """Copies strided runs; `runs`: int64 `(n, 5)` on the device, as in `reference.copy_runs`."""
    _require(src, "src")
    _require(dst, "dst")
    _require(runs, "runs", xp.int64)
    if len(runs):
        _launch("copy_runs", len(runs), COPY, src, dst, runs)


def cg_update(alpha, beta, u, w, p, s, x, x_pad, r, r_pad, threads=1) -> None:
    """As `reference.cg_update`."""
    shape = _shape(r, r_pad, "r")
    _require_shapes(shape, ("u", u, 0), ("w", w, 0), ("p", p, 0), ("s", s, 0), ("x", x, x_pad))
    fields = (u, w, p, s, x, x_pad, r, r_pad)
    _launch("cg_update", shape[0], POINTWISE, float(alpha), float(beta), *fields, *shape[1:])


def poisson_residual(b, x, x_pad, r, r_pad, inverse_h2, threads=1) -> None:
    """As `reference.poisson_residual`."""
    shape = _shape(r, r_pad, "r")
    _require_shapes(shape, ("b", b, 0), ("x", x, x_pad))
    if x_pad < 1:
        raise ValueError("x: the Laplacian needs a halo of at least 1")
    _launch("poisson_residual", shape[0], POINTWISE, b, x, x_pad, r, r_pad, float(inverse_h2), *shape[1:])


def smooth_restrict(
    r, pad, z, coarse, coarse_pad, factor, inverse_h2, inverse_theta, coefficients, threads=1
) -> None:
    """As `reference.smooth_restrict`; `coefficients` on the device."""
    shape = _shape(r, pad, "r")
    _require_shapes(shape, ("z", z, pad))
    degree = _degree(coefficients, pad)
    _require_coarse(shape, coarse, coarse_pad, factor, degree, "coarse")
    scratch = xp.empty(r.shape)  # from CuPy's pool, which orders its reuse with the stream
    scalars = (float(inverse_h2), float(inverse_theta), coefficients, degree)
    fields = (r, pad, z, coarse, coarse_pad, factor)
    _launch("smooth_restrict", shape[0], POINTWISE, *fields, *scalars, *shape[1:], scratch)


def prolong_smooth(
    r, pad, z, e, e_pad, factor, u, u_pad, w, dots, inverse_h2, inverse_theta, coefficients, threads=1
) -> None:
    """As `reference.prolong_smooth`; `coefficients` on the device."""
    shape = _shape(r, pad, "r")
    _require_shapes(shape, ("z", z, pad), ("u", u, u_pad), ("w", w, 0))
    degree = _degree(coefficients, pad)
    _require_coarse(shape, e, e_pad, factor, degree, "e")
    if e_pad < (degree + 1) // factor + 2:
        raise ValueError("e: the halo must cover all interpolated points")
    _require(dots, "dots")
    if dots.shape != (shape[0], 3):
        raise ValueError("dots: expected (blocks, 3)")
    scratch = xp.empty((2, *r.shape))
    scalars = (float(inverse_h2), float(inverse_theta), coefficients, degree)
    fields = (r, pad, z, e, e_pad, factor, u, u_pad, w, dots)
    _launch("prolong_smooth", shape[0], DOTS, *fields, *scalars, *shape[1:], scratch)


def block_dots(a, a_pad, b, b_pad, out) -> None:
    """As `reference.block_dots`."""
    shape = _shape(a, a_pad, "a")
    _require_shapes(shape, ("b", b, b_pad))
    _require(out, "out")
    if out.shape != shape[:1]:
        raise ValueError("out: expected (blocks,)")
    _launch("block_dots", shape[0], DOT, a, a_pad, b, b_pad, out, *shape[1:])


def _launch(name: str, blocks: int, threads: int, *arguments) -> None:
    kernel("stencil", name)((blocks,), (threads,), arguments)


def _require(array, name: str, dtype=xp.float64) -> None:
    """Raises TypeError for another type or memory order: a kernel gets only addresses and would misread the data."""
    if not isinstance(array, xp.ndarray) or array.dtype != dtype or not array.flags.c_contiguous:
        given = f"{array.dtype} {type(array)}" if hasattr(array, "dtype") else f"{type(array)}"
        raise TypeError(f"{name}: expected a C-contiguous {xp.dtype(dtype)} array on the device, got {given}")


def _shape(field, pad: int, name: str) -> tuple[int, int, int]:
    """(blocks, rows, columns) of a padded field."""
    _require(field, name)
    if field.ndim != 3 or min(field.shape[1:]) <= 2 * pad:
        raise ValueError(f"{name}: expected (blocks, rows + 2 pad, columns + 2 pad) with pad {pad}")
    blocks, rows, columns = field.shape
    return blocks, rows - 2 * pad, columns - 2 * pad


def _degree(coefficients, pad: int) -> int:
    _require(coefficients, "coefficients")
    if coefficients.ndim != 2 or coefficients.shape[1] != 2:
        raise ValueError("coefficients: expected (degree, 2)")
    if pad < 2 * len(coefficients) + 2:
        raise ValueError("r: the halo must be at least twice the degree plus 2")
    return len(coefficients)


def _require_coarse(shape, coarse, pad: int, factor: int, degree: int, name: str) -> None:
    if not 1 <= factor <= degree + 2:
        raise ValueError("factor: expected 1 to the degree plus 2")
    blocks, rows, columns = _shape(coarse, pad, name)
    if (blocks, rows * factor, columns * factor) != shape:
        raise ValueError(f"{name}: expected blocks of the first field's, coarser by the factor")


def _require_shapes(shape, *fields) -> None:
    for name, field, pad in fields:
        if _shape(field, pad, name) != shape:
            raise ValueError(f"{name}: blocks differ in number or shape from the first field's")
