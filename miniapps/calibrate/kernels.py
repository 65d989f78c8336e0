"""Kernels by shape and variant, and the cost of an empty call."""

from __future__ import annotations

import math

import numpy as np

from kernels import contract
from miniapps.calibrate.cases import Case

DTYPE = np.float32
MOST_FLOPS = 2**27  # of one call, which takes some milliseconds
EDGES = (2**3, 2**9)  # the least and largest edge of matrices


def kernel_cases(ctx) -> list[Case]:
    """Products of matrices, convolutions, sums of rows and empty calls."""
    options = ctx.config.calibrate
    rng = np.random.default_rng([ctx.seed, 1])
    matrices = [_matrix_shape(rng) for _ in range(options.shapes)]
    images = [_image_shape(rng) for _ in range(options.shapes)]
    cases = [_matmul(v, shape, ctx.options.threads) for v in options.variants for shape in matrices]
    cases += [_conv(v, shape, ctx.options.threads) for v in options.variants for shape in images]
    return cases + [_rowsum(shape[:2]) for shape in matrices] + _overheads()


def _matrix_shape(rng) -> tuple[int, int, int]:
    """(rows, depth, columns), drawn uniformly in the logarithm."""
    while True:
        low, high = map(math.log2, EDGES)
        shape = np.rint(2.0 ** rng.uniform(low, high, 3)).astype(int).tolist()
        if 2 * math.prod(shape) <= MOST_FLOPS:
            return tuple(shape)


def _image_shape(rng) -> tuple[int, int, int, int, int]:
    """(samples, channels, outputs, edge of the image, edge of the window), drawn at random."""
    while True:
        samples, channels, outputs, edge = np.rint(
            2.0 ** rng.uniform([0, 0, 2, 2.6], [4, 6, 6, 5], 4)
        ).astype(int)
        window = int(rng.choice([1, 3, 5]))
        if 2 * samples * channels * outputs * edge**2 * window**2 <= MOST_FLOPS and edge >= window:
            return int(samples), int(channels), int(outputs), int(edge), window


def _normal(*shape: int) -> np.ndarray:
    return np.random.default_rng(0).standard_normal(shape, DTYPE)


def _matmul(variant: str, shape: tuple[int, int, int], threads: int) -> Case:
    m, k, n = shape
    a, b, out = _normal(m, k), _normal(k, n), np.empty((m, n), DTYPE)
    return Case(
        f"matmul.{variant}",
        lambda: contract.matmul(a, b, out, variant=variant, threads=threads),
        {"rows": m, "depth": k, "columns": n},
        flops=2 * m * k * n,
        nbytes=DTYPE().itemsize * (m * k + k * n + m * n),
    )


def _conv(variant: str, shape: tuple[int, int, int, int, int], threads: int) -> Case:
    samples, channels, outputs, edge, window = shape
    x, w = _normal(samples, channels, edge, edge), _normal(outputs, channels, window, window)
    out = np.empty((samples, outputs, edge, edge), DTYPE)
    return Case(
        f"conv.{variant}",
        lambda: contract.conv(x, w, out, variant=variant, padding=window // 2, threads=threads),
        {"samples": samples, "channels": channels, "outputs": outputs, "edge": edge, "window": window},
        flops=2 * out.size * channels * window**2,
        nbytes=x.nbytes + w.nbytes + out.nbytes,
    )


def _rowsum(shape: tuple[int, int]) -> Case:
    x, out = _normal(*shape), np.empty(shape[0], DTYPE)
    return Case(
        "rowsum.own",
        lambda: contract.rowsum(x, 1, out),
        {"rows": shape[0], "depth": shape[1]},
        flops=x.size,
        nbytes=x.nbytes,
    )


def _overheads() -> list[Case]:
    """Calls with almost no work, whose time is the overhead of a node of the graph."""
    matrix, product = np.ones((1, 1), DTYPE), np.ones((1, 1), DTYPE)
    return [
        Case("overhead.region", lambda: None, {}),
        Case("overhead.kernel", lambda: contract.matmul(matrix, matrix, product), {}),
    ]
