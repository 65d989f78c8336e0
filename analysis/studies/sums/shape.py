"""The shape of a distribution of V_s: histogram, distance from a normal distribution, number of modes.

No test assumes a normal distribution. Sums are on the grid of floating-point numbers. If its spacing is visible, the
data is called discrete and every point of the grid has its own cell: cells narrower than the grid, or not a multiple of
it, would show a comb that the distribution does not have.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import pandas as pd

from analysis.studies.sums.runs import CELL, SERIES, Sums, pieces
from kernels import bits

GRID_POINTS = 4  # points per cell below which the grid is visible
FEW = 16  # points of a grid that is discrete for any number of samples
REPEATED = 10  # mean number of equal samples from which data is discrete
MOST_CELLS = 2000  # of a histogram: more than figures and estimates need
GRID = 1024  # points of a density
FINEST = 2.5  # grid points of the smallest bandwidth: below, the FFT rings
SHAPED = 4  # most arrays of a variant and size, each with its own shape, since arrays differ in their spread
FEWEST_SAMPLES = 20
MOST_MODES = 9  # larger numbers are given as "more than 9"
LEVEL = 0.05  # at which k modes are refused
CALIBRATION = 1.13  # lambda of Hall & York for that level
DRAWS = 200
SEED = 20240805
SHAPES = [*SERIES, "shaped", "samples", "discrete", "kl", "normal_95", "not_normal", "modes", "modes_most"]


@dataclass(frozen=True)
class Cells:
    """A histogram that counts every number: `edges` (k + 1,), `counts` (k,), `places` (k,) between the edges. If
    `discrete`, the places are all points of the data's grid between its extremes."""

    edges: np.ndarray
    counts: np.ndarray
    places: np.ndarray
    discrete: bool


@dataclass(frozen=True)
class Shape:
    """The shape of `count` finite numbers, of which `distinct` differ: `kl`, the divergence from the normal
    distribution with their mean and variance; `normal_95`, its 95 % quantile for normal samples; `modes` (0: no number;
    MOST_MODES + 1: more); and whether they are `discrete`. A single value has divergence NaN."""

    count: int
    distinct: int
    discrete: bool
    kl: float
    normal_95: float
    modes: int


def shapes(sums: Sums, arrays: pd.DataFrame) -> pd.DataFrame:
    """The shape of V_s, a row per variant and n, over the first SHAPED arrays whose samples differ and number at least
    FEWEST_SAMPLES. `arrays` is from `analysis.studies.sums.statistics.of_arrays`. Columns SHAPES: SERIES, `shaped`
    (arrays), `samples` (fewest), `discrete` (number of arrays), `kl` and `normal_95` (medians over arrays),
    `not_normal` (arrays with kl above normal_95), `modes`, `modes_most` (fewest, most)."""
    chosen = (arrays["distinct"] > 1) & (arrays["samples"] >= FEWEST_SAMPLES)
    chosen &= chosen.groupby([arrays[key] for key in SERIES], observed=True).cumsum() <= SHAPED
    begin = pieces(sums.samples, CELL)
    end = np.append(begin[1:], len(sums.samples))
    values = sums.samples["value"].to_numpy()
    rows = []
    for i in np.flatnonzero(chosen.to_numpy()):
        one = arrays.iloc[i]
        described = shape(
            *v_s_and_grid(values[begin[i] : end[i]], one["s_d"] if one["reference"] else one["median"])
        )
        if described.distinct > 1:
            rows.append({**{key: one[key] for key in SERIES}, **described.__dict__})
    if not rows:
        return pd.DataFrame(columns=SHAPES)
    frame = pd.DataFrame(rows)
    frame["above"] = frame["kl"] > frame["normal_95"]
    return frame.groupby(SERIES, sort=False, observed=True).agg(
        shaped=("kl", "size"), samples=("count", "min"), discrete=("discrete", "sum"), kl=("kl", "median"),
        normal_95=("normal_95", "median"), not_normal=("above", "sum"), modes=("modes", "min"),
        modes_most=("modes", "max"),
    ).reset_index()  # fmt: skip


def v_s_and_grid(sums: np.ndarray, reference: float) -> tuple[np.ndarray, float]:
    """(V_s of the finite samples of `sums` (n,), the spacing of their possible values, 0 if unknown)."""
    sums = sums[np.isfinite(sums)]
    if not len(sums) or (sums == sums[0]).all() or reference == 0 or not np.isfinite(reference):
        return bits.v_s(np.full(len(sums), reference), sums), 0.0
    return bits.v_s(np.full(len(sums), reference), sums), grid_of(sums) / abs(reference)


def shape(x: np.ndarray, grid: float = 0.0) -> Shape:
    """The shape of the finite numbers in `x` float64 (n,), whose differences are multiples of `grid` (0: unknown)."""
    x = np.sort(x[np.isfinite(x)])
    if not len(x) or x[0] == x[-1]:
        return Shape(len(x), min(len(x), 1), True, math.nan, math.nan, min(len(x), 1))
    histogram = cells(x, grid)
    _, high = normal_divergence(histogram)
    distinct = 1 + int((x[1:] != x[:-1]).sum())
    return Shape(
        len(x),
        distinct,
        histogram.discrete,
        divergence(histogram, x.mean(), x.std()),
        high,
        modes(histogram),
    )


def grid_of(sums: np.ndarray) -> float:
    """The spacing of the floating-point numbers of `sums` (n,), finite and not all equal, or 0 if unknown. It is the
    unit in the last place of the largest sum, times the largest power of two that divides all differences. So it finds
    the grid of float32 in sums stored as float64."""
    unit = np.spacing(np.abs(sums).max())
    steps = (sums - sums[0]) / unit
    if not np.abs(steps).max() < 2**62:
        return 0.0
    bits = int(np.bitwise_or.reduce(np.rint(steps).astype(np.int64)))
    return float(unit * (bits & -bits)) if bits else float(unit)


def cells(x: np.ndarray, grid: float = 0.0) -> Cells:
    """A histogram of finite, sorted, not all equal `x`, with cells of width 2 IQR n^(-1/3) (Freedman & Diaconis 1981).

    If the quartiles coincide, the width is the range over sqrt(n). There are at most MOST_CELLS cells. The data is
    discrete if a cell would have fewer than GRID_POINTS points of the `grid`, if the grid has at most FEW points, or if
    each value occurs REPEATED times on average.
    """
    n, low, high = len(x), x[0], x[-1]
    quarter = np.quantile(x, [0.25, 0.75])
    width = 2 * (quarter[1] - quarter[0]) / n ** (1 / 3)
    wanted = (high - low) / width if width > 0 else math.sqrt(n)
    count = int(min(max(math.ceil(wanted), 1), MOST_CELLS))
    points = (high - low) / grid + 1 if grid > 0 else math.inf
    shows = points <= max(GRID_POINTS * count, FEW) or np.count_nonzero(x[1:] != x[:-1]) < n / REPEATED
    if shows and points <= MOST_CELLS:
        at = np.rint((x - low) / grid).astype(np.int64)
        counts = np.bincount(at)
        return Cells(
            low + (np.arange(len(counts) + 1) - 0.5) * grid, counts, low + np.arange(len(counts)) * grid, True
        )
    edges = np.linspace(low, high, count + 1)
    counts, _ = np.histogram(x, edges)
    return Cells(edges, counts, (edges[:-1] + edges[1:]) / 2, False)


def divergence(histogram: Cells, mean: float, deviation: float) -> float:
    """The Kullback-Leibler divergence sum p log(p / q), in nats: p are the shares of the cells, q their probabilities
    under the normal distribution with this `mean` and standard `deviation`. The outermost cells extend to infinity.

    The plug-in estimator is too large by about (k - 1) / 2n for k occupied cells (Miller 1955): compare it with
    `normal_divergence`.
    """
    return float(_kl(histogram.counts[None], normal_shares(histogram.edges, mean, deviation))[0])


def normal_divergence(histogram: Cells) -> tuple[float, float]:
    """(median, 95 % quantile) of `divergence` for normal samples of the same size in the same cells, from DRAWS
    simulations with a fixed seed."""
    share = histogram.counts / histogram.counts.sum()
    mean = float((share * histogram.places).sum())
    deviation = math.sqrt((share * (histogram.places - mean) ** 2).sum())
    q = normal_shares(histogram.edges, mean, deviation)
    drawn = np.random.default_rng(SEED).multinomial(histogram.counts.sum(), q / q.sum(), DRAWS)
    middle, high = np.quantile(_kl(drawn, q), [0.5, 0.95])
    return float(middle), float(high)


def normal_shares(edges: np.ndarray, mean: float, deviation: float) -> np.ndarray:
    """(k,) probabilities of the cells between `edges` (k + 1,); the outermost extend to infinity."""
    z = (edges[1:-1] - mean) / (deviation * math.sqrt(2))
    below = np.array([0.0, *(math.erf(v) for v in z.tolist()), 0.0])
    below[0], below[-1] = -1.0, 1.0
    # In the tails, erfc keeps digits that 1 - erf would lose.
    tail = np.array([0.0, *(math.erfc(abs(v)) for v in z.tolist()), 0.0])
    side = np.concatenate([[-1], np.sign(z), [1]])
    both = np.diff(below)
    same = (side[1:] == side[:-1]) & (side[1:] != 0)
    return np.where(same, np.abs(np.diff(tail)), both) / 2


def _kl(counts: np.ndarray, q: np.ndarray) -> np.ndarray:
    """sum p log(p / q) of each row of `counts` (rows, k)."""
    p = counts / counts.sum(axis=1, keepdims=True)
    with np.errstate(divide="ignore", invalid="ignore"):
        terms = np.where(p > 0, p * (np.log(p) - np.log(q)), 0.0)
    return terms.sum(axis=1)


def modes(histogram: Cells) -> int:
    """The number of modes: the least k that Silverman's test (1981) does not reject at LEVEL, up to MOST_MODES + 1.

    h is the least bandwidth at which the Gaussian kernel density estimate has at most k modes. The test draws DRAWS
    samples from that estimate, scaled to the variance of the data. It rejects k if fewer than the share LEVEL of them
    have more than k modes at h. For k = 1, it uses the bandwidth CALIBRATION h, which gives the test its nominal level
    (Hall & York 2001). For more modes no such factor is known, and the test is conservative: it needs clear modes, and
    counts many equal adjacent modes as few. Discrete data is compared with samples rounded to the same grid.
    """
    kernel = _Density(histogram)
    for k in range(1, MOST_MODES + 1):
        h = kernel.bandwidth(k)
        if h == 0.0 or kernel.exceeding(h, k, CALIBRATION if k == 1 else 1.0) >= LEVEL:
            return k
    return MOST_MODES + 1


class _Density:
    """Kernel density estimates of a histogram on a grid, by FFT; the unit of length is the range of the data."""

    def __init__(self, histogram: Cells):
        self.unit, self.origin = histogram.edges[-1] - histogram.edges[0], histogram.edges[0]
        places = (histogram.places - self.origin) / self.unit
        # A margin of one range on each side keeps all used bandwidths from wrapping around in the FFT.
        self.step = 3.0 / GRID
        at = (places + 1.0) / self.step
        left = np.floor(at).astype(np.int64)
        self.left, self.right_share = left, at - left
        self.edges = (histogram.edges - self.origin) / self.unit
        self.counts = histogram.counts
        self.places = places
        share = histogram.counts / histogram.counts.sum()
        self.mean = float((share * places).sum())
        self.variance = float((share * (places - self.mean) ** 2).sum())
        self.total = int(histogram.counts.sum())
        self.frequency = np.fft.rfftfreq(GRID, self.step) * 2 * np.pi
        self.data = np.fft.rfft(self.spread(self.counts[None]))[0]

    def spread(self, counts: np.ndarray) -> np.ndarray:
        """(rows, GRID) `counts` (rows, k) on the grid, each divided between its two neighbouring points."""
        grid = np.zeros((GRID + 1, len(counts)))
        np.add.at(grid, self.left, (counts * (1 - self.right_share)).T)
        np.add.at(grid, self.left + 1, (counts * self.right_share).T)
        return grid[:GRID].T

    def smooth(self, spectrum: np.ndarray, h: float) -> np.ndarray:
        return np.fft.irfft(spectrum * np.exp(-0.5 * (self.frequency * h) ** 2), GRID)

    def count(self, density: np.ndarray) -> np.ndarray:
        """The number of local maxima of each row; values below 1e-9 of the largest are rounding of the FFT."""
        floor = 1e-9 * density.max(axis=-1, keepdims=True)
        slope = np.diff(density, axis=-1)
        slope = np.where(np.abs(slope) <= floor / 10, 0.0, np.sign(slope))
        # Flat stretches get the sign before them, so that a plateau is one maximum.
        place = np.where(slope != 0, np.arange(slope.shape[-1]), 0)
        slope = np.take_along_axis(slope, np.maximum.accumulate(place, axis=-1), axis=-1)
        peak = (slope[..., :-1] > 0) & (slope[..., 1:] < 0) & (density[..., 1:-1] > floor)
        return peak.sum(axis=-1)

    def bandwidth(self, k: int) -> float:
        """The least bandwidth with at most `k` modes, to 1 part in 1000; 0 if the grid cannot resolve more modes."""
        low, high = FINEST * self.step, 1.0
        if self.count(self.smooth(self.data, low)) <= k:
            return 0.0
        while high / low > 1.001:
            h = math.sqrt(low * high)
            low, high = (low, h) if self.count(self.smooth(self.data, h)) <= k else (h, high)
        return high

    def exceeding(self, h: float, k: int, factor: float) -> float:
        """The share of samples from the estimate at bandwidth `h` with more than `k` modes at `factor` h."""
        cumulated = np.cumsum(np.maximum(self.smooth(self.data, h), 0.0))
        cumulated = np.concatenate([[0.0], cumulated / cumulated[-1]])
        x = (np.arange(GRID + 1) - 0.5) * self.step - 1.0
        # Smoothing adds h^2 to the variance, so drawn numbers are scaled towards the mean.
        x = self.mean + (x - self.mean) / math.sqrt(1 + h * h / self.variance)
        below = np.interp(self.edges, x, cumulated)
        below[0], below[-1] = 0.0, 1.0
        q = np.maximum(np.diff(below), 0.0)
        drawn = np.random.default_rng(SEED).multinomial(self.total, q / q.sum(), DRAWS)
        return float((self.count(self.smooth(np.fft.rfft(self.spread(drawn)), factor * h)) > k).mean())
