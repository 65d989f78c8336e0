"""Times of kernels of any shape: a sum of plain terms, times a Gaussian process.

A kernel's time is about fixed + flops / rate + bytes / bandwidth, fitted by relative nonnegative least squares. The
ratio of the time to this sum is smooth in the logarithms of the dims, apart from steps at cache and vector lengths. A
Gaussian process models the logarithm of the ratio over log2 of the dims. Its constant mean, length per dim and noise
maximise the marginal likelihood (Rasmussen and Williams 2006, sections 2.2 and 5.4). Far from the measured
shapes, the process reverts to its mean. Its variance there is the error of a predicted time. Shapes outside the hull of
the measured ones are marked as extrapolated.

torch's convolution has several kernels, and the shape selects one (`use_mkldnn` in ATen's Convolution.cpp). A single
image of up to 20,480 numbers with a window of up to 3 runs in torch's own loop, all others in oneDNN. oneDNN has a
separate kernel for windows of 1, and pads channels to the length of vectors. So these flags are inputs of the process.
The padded operations, and the overhead of a oneDNN call with a larger window, are terms of the sum (`TERMS`). Products
work on tiles of whole vectors, so operations on padded rows, depth and columns are terms of theirs.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np
from scipy.linalg import cho_factor, cho_solve
from scipy.optimize import linprog, minimize, nnls

ALONE, SMALL_WINDOW = 20_480, 3  # largest image (numbers) and window that torch computes itself
VECTORS = (8, 16)  # channels that oneDNN pads to: of the input, of the output
TILES = (8, 16)  # float32 elements in a vector of AVX2 and of AVX-512


def torch_conv(shapes: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """((n, flags), (n, terms)) of torch's convolutions of `shapes` (n, dims of DIMS["conv"]). The flags say which
    kernel runs; the terms are the overhead of a call, and the operations on padded channels."""
    samples, channels, outputs, edge, window = shapes.T
    image = channels * edge**2
    alone = (samples == 1) & (window <= SMALL_WINDOW) & (image <= ALONE)
    flags = np.column_stack([alone, window == 1]).astype(float)
    points = 2.0 * samples * edge**2 * window**2
    read, written = (np.ceil(n / k) * k for n, k in zip((channels, outputs), VECTORS, strict=True))
    # oneDNN pads, by layout, the input's channels alone or the output's.
    return flags, np.column_stack(
        [~alone & (window > 1), points * read * _padded(outputs), points * channels * written]
    )


def product(shapes: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """((n, 0), (n, terms)) of matrix products: their operations with rows, depth and columns padded to TILES. `shapes`
    (n, 3 or more): rows, depth, columns; any further dims count products of this size."""
    many = 2.0 * shapes[:, 3:].prod(axis=1)
    terms = [many * (np.ceil(shapes[:, :3] / each) * each).prod(axis=1) for each in TILES]
    return np.zeros((len(shapes), 0)), np.column_stack(terms)


def _padded(n: np.ndarray) -> np.ndarray:
    return np.ceil(n / VECTORS[0]) * VECTORS[0]


TERMS: Mapping[str, Callable[[np.ndarray], tuple[np.ndarray, np.ndarray]]] = {
    "conv.torch": torch_conv,
    "mm": product,
}
"""Further inputs and terms of a kernel's time, by region of the calibration, or by operation of a plan."""


class KernelTimes:
    """Seconds of a kernel of any shape, from measured shapes.

    `shapes` (n, dims), `flops` (n,), `nbytes` (n,), `seconds` (n,); `region`: a key of TERMS if the kernel
    has further terms. Raises ValueError for fewer than 3 shapes."""

    def __init__(self, shapes, flops, nbytes, seconds, region: str = ""):
        if len(shapes) < 3:
            raise ValueError(
                f"{len(shapes)} shapes: the times of a kernel need 3 or more; calibrate more of them (--shapes)"
            )
        self._more, seconds = TERMS.get(region, _nothing_more), np.asarray(seconds, float)
        self._dims, x, terms = self._inputs(shapes, flops, nbytes)
        relative = terms / seconds[:, None]
        scale = np.maximum(relative.max(axis=0), 1e-300)
        self._coefficients = nnls(relative / scale, np.ones(len(x)))[0] / scale
        y = np.log(seconds / (terms @ self._coefficients))
        self._x, self._width = x, np.maximum(x.std(axis=0), 1e-9)
        design = np.ones((len(x), 1))
        start = np.concatenate([np.zeros(x.shape[1]), np.log([y.std() + 1e-3, 0.05])])
        bounds = [(-2.5, 4.0)] * x.shape[1] + [(-7.0, 3.0), (-7.0, 0.0)]
        fitted = minimize(self._loss, start, args=(y, design), method="L-BFGS-B", bounds=bounds)
        self._parameters = fitted.x
        factor = cho_factor(self._covariance(x, x) + np.exp(2 * fitted.x[-1]) * np.eye(len(x)), lower=True)
        self._trend = np.linalg.lstsq(
            design.T @ cho_solve(factor, design), design.T @ cho_solve(factor, y), rcond=None
        )[0]
        self._weights = cho_solve(factor, y - design @ self._trend)
        self._factor = factor
        known = np.diag(cho_solve(factor, np.eye(len(x))))
        self._left_out = (
            np.exp(y - self._weights / known) * (terms @ self._coefficients),
            np.sqrt(1.0 / known),
        )

    @property
    def noise(self) -> float:
        """Standard deviation of the logarithm of a time that each shape has for itself."""
        return float(np.exp(self._parameters[-1]))

    @property
    def left_out(self) -> tuple[np.ndarray, np.ndarray]:
        """((n,) seconds of each measured shape, (n,) standard deviations of their logarithms), as all others predict
        them (Rasmussen and Williams 2006, equation 5.12)."""
        return self._left_out

    def seconds(self, shapes, flops, nbytes) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """((n,) seconds, (n,) standard deviations of their logarithms for a single shape, with `noise`, (n,) whether
        the shape is outside the measured ones)."""
        dims, x, terms = self._inputs(shapes, flops, nbytes)
        between = self._covariance(x, self._x)
        y = self._trend[0] + between @ self._weights
        outside = np.array([not inside_hull(self._dims, point) for point in dims])
        known = (between * cho_solve(self._factor, between.T).T).sum(axis=1)
        process, noise = np.exp(2 * self._parameters[-2:])
        errors = np.sqrt(np.maximum(process - known, 0.0) + noise)
        return np.exp(y) * (terms @ self._coefficients), errors, outside

    def _inputs(self, shapes, flops, nbytes) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """(log2 of the dims (n, dims), inputs of the process (n, inputs), terms of the sum (n, terms))."""
        shapes = np.asarray(shapes, float)
        flags, terms = self._more(shapes)
        dims, fixed = np.log2(shapes), np.ones(len(shapes))
        sums = np.column_stack([fixed, np.asarray(flops, float), np.asarray(nbytes, float), terms])
        return dims, np.column_stack([dims, flags]), sums

    def _covariance(self, a: np.ndarray, b: np.ndarray) -> np.ndarray:
        return self._kernel(a, b, self._parameters)

    def _kernel(self, a: np.ndarray, b: np.ndarray, parameters: np.ndarray) -> np.ndarray:
        """Matérn 3/2, which allows kinks, with a length for each dim."""
        lengths = np.exp(parameters[:-2]) * self._width
        far = np.sqrt(3.0 * (((a[:, None] - b[None]) / lengths) ** 2).sum(axis=2))
        return np.exp(2 * parameters[-2]) * (1.0 + far) * np.exp(-far)

    def _loss(self, parameters: np.ndarray, y: np.ndarray, design: np.ndarray) -> float:
        """The negative logarithm of the likelihood, with the trend from generalised least squares."""
        covariance = self._kernel(self._x, self._x, parameters) + np.exp(2 * parameters[-1]) * np.eye(len(y))
        try:
            factor = cho_factor(covariance, lower=True)
        except np.linalg.LinAlgError:
            return 1e12
        trend = np.linalg.lstsq(
            design.T @ cho_solve(factor, design), design.T @ cho_solve(factor, y), rcond=None
        )[0]
        rest = y - design @ trend
        return float(0.5 * rest @ cho_solve(factor, rest) + np.log(np.diag(factor[0])).sum())


def _nothing_more(shapes: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    return np.zeros((len(shapes), 0)), np.zeros((len(shapes), 0))


def inside_hull(points: np.ndarray, point: np.ndarray) -> bool:
    """Whether `point` (dims,) is a weighted mean of `points` (n, dims), by a linear program."""
    equal = np.vstack([points.T, np.ones(len(points))])
    found = linprog(
        np.zeros(len(points)), A_eq=equal, b_eq=np.append(point, 1.0), bounds=(0, None), method="highs"
    )
    return bool(found.success)


DIMS: Mapping[str, tuple[str, ...]] = {
    "matmul": ("rows", "depth", "columns"),
    "conv": ("samples", "channels", "outputs", "edge", "window"),
    "rowsum": ("rows", "depth"),
}  # parameters of a calibrated operation that form its shape
