"""One repeat of k-means, by Lloyd's algorithm: assign every point to the nearest centre, move centres to the mean.

An all-reduce adds what each block contributes: the sum and the number of points of each cluster, how many points
changed their cluster, and the squared distances. The first can round, so its order decides the last bits of a centre,
and these the cluster of a point that is almost as near to another. Products are chains (`kernels.contract`), so the
bits of a block follow neither the number of ranks nor the processor.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from mpi4py import MPI

from kernels.contract.native import matmul, rowsum
from miniapps.layout.owners import contiguous_owner, shuffled
from miniapps.learning.samples.images import Labelled, load, share
from miniapps.learning.seeds import INIT, generator
from miniapps.runner.outcome import Check, Outcome
from miniapps.trace import fingerprint
from miniapps.trace.records import INPUT
from miniapps.trace.schema import COMPUTE, OTHER

SLACK = 1e-5  # a sum of squared distances may grow by this part, which is rounding


@dataclass
class Block:
    """Some points (m, dims), their numbers, squared lengths and clusters (m,), and the margins of these."""

    numbers: np.ndarray
    points: np.ndarray
    squares: np.ndarray
    clusters: np.ndarray
    margins: np.ndarray

    def assign(self, centres: np.ndarray) -> np.ndarray:
        """Assign each point to its nearest centre (k, dims), the first of equally near ones. Returns the contribution
        to the all-reduce: sums (k, dims), numbers (k,), changed points, squared distances."""
        count = len(centres)
        halves = rowsum(centres * centres, 1) * centres.dtype.type(0.5)
        # |x - c|^2 = |x|^2 + 2 (|c|^2 / 2 - x c)
        found = halves - matmul(self.points, np.ascontiguousarray(centres.T))
        nearest = found.argmin(1)
        changed = np.count_nonzero(nearest != self.clusters)
        squares = np.maximum(self.squares[:, None] + 2 * found, 0)
        own = squares[np.arange(len(nearest)), nearest]
        squares[np.arange(len(nearest)), nearest] = np.inf
        second = squares.min(1)
        with np.errstate(invalid="ignore"):  # no second of one cluster
            self.margins = np.where(second > 0, (second - own) / second, 0.0)
        self.clusters = nearest
        chosen = (nearest == np.arange(count)[:, None]).astype(centres.dtype)
        sums = matmul(chosen, self.points)
        rest = np.array([changed, rowsum(own[None], 1)[0]], centres.dtype)
        return np.concatenate([sums.reshape(-1), chosen.sum(1), rest])


def run(ctx) -> Outcome:
    """Iterate until no point changes its cluster; collective."""
    asked, tracer = ctx.config.clusters, ctx.tracer
    read = load(ctx.config.data.name, ctx.config.data.dir, ctx.config.seeds.data) if ctx.rank == 0 else None
    given = share(ctx.comm, read, Labelled)
    if ctx.rank == 0:
        tracer.array(f"{INPUT}images", 0, given.images)
    points = scaled(given.images, np.dtype(asked.dtype))
    n, dims = points.shape
    drawn = generator(ctx.config.seeds.init, INIT).permutation(n)[: asked.count]
    centres = points[drawn]
    count = -(-n // asked.block)
    owner = shuffled(contiguous_owner(count, ctx.size), ctx.options.shuffle_blocks)
    own = np.flatnonzero(owner == ctx.rank)
    blocks = [made(points, np.arange(b * asked.block, min(n, (b + 1) * asked.block))) for b in own.tolist()]
    del points, given
    add = ctx.reducer("sums", (asked.count * (dims + 1) + 2,), asked.dtype, blocks=own)
    assign, record = tracer.name("assign", COMPUTE), tracer.name("record", OTHER)
    distances: list[float] = []
    converged, step, begin = False, 0, time.perf_counter()
    while not converged and step < asked.iterations:
        step += 1
        ctx.begin_step(step, asked.iterations, lambda cluster: centres[cluster])
        start = tracer.clock()
        contributions = np.stack([block.assign(centres) for block in blocks])
        tracer.event(assign, start)
        total = add(contributions)
        sums, (changed, distance) = (
            total[: asked.count * dims].reshape(asked.count, dims),
            total[-2:].tolist(),
        )
        numbers = total[asked.count * dims : -2]
        filled = numbers > 0  # an empty cluster keeps its centre
        centres[filled] = sums[filled] / numbers[filled, None]
        distances.append(distance)
        converged = changed == 0
        start = tracer.clock()
        if ctx.rank == 0:
            for name, value in (("squared_distance", distance), ("changed", changed)):
                tracer.value(name, value)
            for cluster, centre in enumerate(centres):
                tracer.array("centre", cluster, centre)
        tracer.event(record, start)
    wall = time.perf_counter() - begin
    ctx.end_steps(step + 1)
    least = ctx.comm.allreduce(min(float(block.margins.min()) for block in blocks), MPI.MIN)
    for block in blocks:
        tracer.decisions("cluster", block.numbers, block.clusters, block.margins)
    if ctx.rank == 0:
        tracer.decision("iterations", step, least)
        tracer.decision("converged", converged, least)
    figures = {
        "squared_distance": (distances[-1], ""),
        "iterations": (float(step), ""),
        "iteration": (wall / step, "s/iteration"),
    }
    falls = all(b <= a * (1 + SLACK) for a, b in pairwise(distances))
    checks = [
        Check("counted", numbers.sum() == n, f"{numbers.sum():g} of {n} points are in a cluster"),
        Check("falls", falls, f"squared distances {distances[0]:g} to {distances[-1]:g}"),
    ]
    return Outcome(figures, checks, fingerprint(centres).hex())


def scaled(images: np.ndarray, dtype: np.dtype) -> np.ndarray:
    """Points (n, pixels) of uint8 `images`: each pixel less its mean, by its standard deviation; 0 where all images are
    alike. Sums of whole numbers are exact, so that the order of images does not matter."""
    pixels = images.reshape(len(images), -1)
    n, dims = pixels.shape
    mean = pixels.sum(0, np.int64) / n
    square = np.zeros(dims, np.int64)
    for first in range(0, n, 4096):
        part = pixels[first : first + 4096].astype(np.int64)
        square += (part * part).sum(0)
    deviation = np.sqrt(np.maximum(square / n - mean * mean, 0.0))
    with np.errstate(divide="ignore", invalid="ignore"):
        scale = np.where(deviation > 0, 1 / deviation, 0.0)
    points = np.empty((n, dims), dtype)
    for first in range(0, n, 4096):
        points[first : first + 4096] = (pixels[first : first + 4096] - mean) * scale
    return points


def made(points: np.ndarray, numbers: np.ndarray) -> Block:
    """The block of the points with these numbers; none has a cluster."""
    own = np.ascontiguousarray(points[numbers])
    none = np.full(len(own), -1)
    return Block(numbers, own, rowsum(own * own, 1), none, np.full(len(own), np.nan))
