"""The figures of sums, without prices (`price_figures`)."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator

import numpy as np
import pandas as pd

from analysis.page import svg
from analysis.page.axes import floor_of, log_axis, powers
from analysis.page.svg import Figure, figure_of
from analysis.page.text import interval, number
from analysis.studies.sums.runs import CELL, SERIES, pieces
from analysis.studies.sums.shape import FEWEST_SAMPLES, Cells, cells, v_s_and_grid
from analysis.studies.sums.tables import Known

DRAWN = 6  # most cases and operations with figures; the tables have all
PANELS = 12  # most histograms of a figure
BARS = 120  # most bars of a histogram: more are not distinguishable
VARIANTS = 6  # most variants of a figure, with a colour each
ROWS = 26  # most variants of a dot plot
POINTS = 1500  # most points of a figure: beyond, it shows every k-th array
GREY = len(svg.SERIES) - 1


def drawn(known: Known) -> list[tuple[str, str]]:
    """The first DRAWN (case, operation), which have figures."""
    return _pairs(known.series)[:DRAWN]


def left_out(known: Known) -> int:
    """The number of (case, operation) without figures."""
    return len(_pairs(known.series)) - len(drawn(known))


def bits_figures(known: Known) -> list[Figure]:
    """Run-to-run variation and, separately, the change of algorithm at the largest size; every array is a point."""
    figures = []
    for k, (title, arrays) in each_drawn(known, known.arrays):
        n = int(arrays["n"].max())
        here = arrays[arrays["n"] == n]
        rows = [
            (name_of(*key), same["pair_max"].to_numpy(), same["shift"].to_numpy())
            for key, same in here.groupby(["variant", "backend"], observed=True, sort=True)
        ]
        # Variants that differ most from run to run come first.
        rows.sort(key=lambda row: -np.nanmax(row[1], initial=-1.0))
        hidden = max(0, len(rows) - ROWS)
        rows = rows[:ROWS]
        each = max(1, POINTS // (2 * len(rows)))
        rows = [(text, _thin(pair, each), _thin(shift, each)) for text, pair, shift in rows]
        if not any(np.isfinite(x).any() for _, *both in rows for x in both):
            continue
        caption = (
            f"N = {n:,}, {_count_of(here, each)}. Circles: the largest difference of two samples of an array, which is "
            "run-to-run variation. Squares: the difference of the median sample from the reference, which is the "
            "change of algorithm. Points at the left edge are equal."
            + (f" {hidden} more variants are in the table." if hidden else "")
        )
        legend = ((0, "run to run"), (1, "change of algorithm"))
        figures.append(
            figure_of(f"sums-bits-{k}", f"Run to run, and algorithm{title}", _dots(rows), caption,
                    0.8 + 0.31 * len(rows), legend, data=_dots_data(rows, n, [name for _, name in legend]))
        )  # fmt: skip
    return figures


def shape_figures(known: Known) -> list[Figure]:
    """Histograms of V_s for each variant and size, of the first array whose samples differ, as small multiples."""
    figures = []
    begin = pieces(known.recorded.samples, CELL)  # a piece is a row of `arrays`
    end = np.append(begin[1:], len(known.recorded.samples))
    values = known.recorded.samples["value"].to_numpy()
    for k, (title, arrays) in each_drawn(known, known.arrays):
        differ = arrays[(arrays["distinct"] > 1) & (arrays["samples"] >= FEWEST_SAMPLES)]
        firsts = differ.groupby(SERIES, observed=True, sort=True).head(1)
        panels = []
        for i, one in _panels(firsts).iterrows():
            against = one["s_d"] if one["reference"] else one["median"]
            x, grid = v_s_and_grid(values[begin[i] : end[i]], against)
            x = np.sort(x[np.isfinite(x)])
            if len(x) and x[0] != x[-1]:
                panels.append((name_of(one["variant"], one["backend"]), int(one["n"]), x, cells(x, grid)))
        if not panels:
            continue
        caption = (
            "V_s of the samples of the first array whose samples differ. Bars are cells, or single floating-point "
            "results if there are few. The line is the normal distribution with the same mean and variance. Each panel "
            "has its own scale."
        )
        rows = -(-len(panels) // 2)
        figures.append(
            figure_of(f"sums-shape-{k}", f"Distribution of V_s{title}", _histograms(panels), caption,
                    0.2 + 1.75 * rows, (), (rows, 2), _bars_data(panels))
        )  # fmt: skip
    return figures


def growth_figures(known: Known) -> list[Figure]:
    """max |V_s| against N, a point per array, with the fitted power laws and the results of the search for worst
    orders."""
    figures = []
    for k, (title, fits) in each_drawn(known, known.fits):
        fits = fits[fits["metric"] == "v_s_max"].head(VARIANTS)
        case, operation = fits.iloc[0][["case", "operation"]]
        arrays = _of(known.arrays, case, operation)
        worst = _of(known.worst, case, operation)
        if arrays["n"].nunique() < 2:
            continue
        lines = []
        for row in fits.itertuples(index=False):
            own = arrays[(arrays["variant"] == row.variant) & (arrays["backend"] == row.backend)]
            own = own[own["v_s_max"].notna() & np.isfinite(own["v_s_max"]) & (own["n"] > 0)]
            reached = worst[(worst["variant"] == row.variant) & (worst["backend"] == row.backend)]
            reached = reached[np.isfinite(reached["bound"])].groupby("n")["bound"].max()
            lines.append((row, own, reached))
        if not any(len(own) for _, own, _ in lines):
            continue
        each = max(2, POINTS // sum(own["n"].nunique() for _, own, _ in lines))
        legend = tuple((i, _law(row)) for i, (row, _, _) in enumerate(lines))
        caption = (
            "Largest |V_s| of the samples of each array against the number of elements, both axes logarithmic: "
            f"{_count_of(arrays, each)}. For points at the bottom, all samples equal the reference. Lines are power "
            "laws through the medians."
        )
        if any(len(reached) for _, _, reached in lines):
            caption += (
                " Large hollow marks: the largest result of the search for worst orders over all arrays."
            )
        figures.append(
            figure_of(
                f"sums-growth-{k}",
                f"Growth with N{title}",
                _growth(lines, each),
                caption,
                3.4,
                legend,
                data=_growth_data(lines, each),
            )
        )
    return figures


def _pairs(frame: pd.DataFrame) -> list[tuple[str, str]]:
    keys = frame[["case", "operation"]].astype("str").drop_duplicates()
    return list(keys.itertuples(index=False, name=None))


def _of(frame: pd.DataFrame, case: str, operation: str) -> pd.DataFrame:
    return frame[((frame["case"] == case) & (frame["operation"] == operation)).to_numpy(bool)]


def each_drawn(known: Known, frame: pd.DataFrame) -> Iterator[tuple[int, tuple[str, pd.DataFrame]]]:
    """(number, (end of the title, rows)) of each drawn case and operation with rows in `frame`."""
    every = _pairs(known.series)
    for k, (case, operation) in enumerate(drawn(known)):
        same = _of(frame, case, operation)
        if len(same):
            yield k, (f": {operation} of {case}" if len(every) > 1 else "", same)


def name_of(variant: str, backend: str) -> str:
    """`spa (native)`, cut to 28 characters."""
    text = f"{variant} ({backend})"
    return text if len(text) <= 28 else f"{text[:27]}…"


def _thin(x: np.ndarray, most: int) -> np.ndarray:
    return x[:: -(-len(x) // most)] if len(x) else x


def _count_of(arrays: pd.DataFrame, each: int) -> str:
    """How many arrays the figure shows as points, in words."""
    most = int(arrays.groupby(SERIES, observed=True).size().max())
    shown = len(range(0, most, -(-most // each)))
    return "every array a point" if shown == most else f"{shown} of {most} arrays of each variant are points"


def _law(row) -> str:
    """A line of the legend: the variant and its power law."""
    text = f"{row.variant} ({row.backend}): "
    if row.alpha != row.alpha:
        return text + "too few sizes for a power law"
    between = interval(row.alpha_low, row.alpha_high)
    return text + f"alpha = {number(row.alpha)}" + (f" ({between})" if between else ", no interval")


def _dots(rows: list[tuple[str, np.ndarray, np.ndarray]]) -> Callable:
    def plot(axes) -> None:
        floor = floor_of(np.concatenate([x for _, *both in rows for x in both]))
        for y, (_, *both) in enumerate(rows):
            for i, x in enumerate(both):
                x = x[np.isfinite(x)]
                at = np.full(len(x), y - 0.17 + 0.34 * i)
                look = svg.series(i) | {"markersize": 3.5}
                axes.plot(np.where(x == 0, floor, x), at, linestyle="none", alpha=0.6, clip_on=False, **look)
        axes.set_yticks(range(len(rows)), [text for text, _, _ in rows], fontsize=9)
        axes.set_ylim(len(rows) - 0.4, -0.6)
        axes.set_xlabel("relative difference |V_s|")
        log_axis(axes.xaxis, axes.set_xscale, floor)

    return plot


def _panels(firsts: pd.DataFrame) -> pd.DataFrame:
    """At most PANELS rows of `firsts` (one per variant and size): the first variants, at the largest sizes."""
    variants = list(firsts.groupby(["variant", "backend"], observed=True, sort=False).groups)[: PANELS // 2]
    each = PANELS // max(len(variants), 1)
    chosen = [
        same.sort_values("n").tail(each)
        for key, same in firsts.groupby(["variant", "backend"], observed=True, sort=False)
        if key in variants
    ]
    return pd.concat(chosen) if chosen else firsts


def _histograms(panels: list[tuple[str, int, np.ndarray, Cells]]) -> Callable:
    def plot(grid) -> None:
        flat = np.ravel(grid)
        for axes in flat[len(panels) :]:
            axes.set_visible(False)
        colours = {name: i % GREY for i, name in enumerate(dict.fromkeys(name for name, *_ in panels))}
        for j, (axes, (name, n, x, histogram)) in enumerate(zip(flat, panels, strict=False)):
            edges, counts = _bars(histogram)
            unit = 10.0 ** math.floor(math.log10(np.abs(edges).max()))
            axes.stairs(counts, edges / unit, fill=True, color=svg.SERIES[colours[name]], alpha=0.65)
            at = np.linspace(edges[0], edges[-1], 121)
            mean, deviation = x.mean(), x.std()
            share = np.exp(-0.5 * ((at - mean) / deviation) ** 2) / (deviation * math.sqrt(2 * math.pi))
            axes.plot(at / unit, len(x) * (edges[1] - edges[0]) * share, color=svg.INK, linewidth=1.1)
            axes.set_title(f"{name}\nN = {n:,}", fontsize=9, loc="left")
            axes.set_xlabel(f"V_s / {svg.power_of_ten(unit)}", fontsize=9)
            if j % 2 == 0:
                axes.set_ylabel("samples", fontsize=9)
            axes.tick_params(labelsize=9)
            axes.locator_params(nbins=4)
            axes.set_ylim(bottom=0)

    return plot


def _bars(histogram: Cells) -> tuple[np.ndarray, np.ndarray]:
    """Edges and counts of at most BARS bars, each of one or more neighbouring cells."""
    together = -(-len(histogram.counts) // BARS)
    begin = np.arange(0, len(histogram.counts), together)
    counts = np.add.reduceat(histogram.counts, begin)
    width = histogram.edges[1] - histogram.edges[0]
    return histogram.edges[0] + width * together * np.arange(len(counts) + 1), counts


def _dots_data(rows: list[tuple[str, np.ndarray, np.ndarray]], n: int, kinds: list[str]) -> pd.DataFrame:
    pieces = [
        {"variant": text, "n": n, "kind": kind, "v_s": value}
        for text, *both in rows
        for kind, x in zip(kinds, both, strict=True)
        for value in x[np.isfinite(x)]
    ]
    return pd.DataFrame(pieces)


def _bars_data(panels: list[tuple[str, int, np.ndarray, Cells]]) -> pd.DataFrame:
    pieces = []
    for name, n, _, histogram in panels:
        edges, counts = _bars(histogram)
        bars = {"variant": name, "n": n, "from": edges[:-1], "to": edges[1:], "samples": counts}
        pieces.append(pd.DataFrame(bars))
    return pd.concat(pieces, ignore_index=True)


def _growth_data(lines: list, each: int) -> pd.DataFrame:
    rows = []
    for row, own, reached in lines:
        name = name_of(row.variant, row.backend)
        for n, same in own.groupby("n"):
            rows += [(name, "array", n, value) for value in _thin(same["v_s_max"].to_numpy(), each)]
        rows += [(name, "fitted", n, value) for n, value in zip(*_law_ends(row, own), strict=True)]
        rows += [(name, "worst found", n, value) for n, value in reached.items()]
    return pd.DataFrame(rows, columns=["variant", "kind", "n", "v_s_max"])


def _law_ends(row, own: pd.DataFrame) -> tuple[np.ndarray, np.ndarray]:
    """The two ends of the fitted power law; empty without a fit."""
    if row.alpha != row.alpha:
        return np.empty(0), np.empty(0)
    used = own.groupby("n")["v_s_max"].median()
    ends = np.array([used[used > 0].index.min(), used.index.max()], float)
    return ends, row.beta * ends**row.alpha


def _growth(lines: list, each: int) -> Callable:
    def plot(axes) -> None:
        floor = floor_of(np.concatenate([own["v_s_max"].to_numpy() for _, own, _ in lines]))
        for i, (row, own, reached) in enumerate(lines):
            look = svg.series(i)
            aside = 1.12 ** (i - (len(lines) - 1) / 2)  # points of one size side by side
            for n, same in own.groupby("n"):
                y = _thin(same["v_s_max"].to_numpy(), each)
                axes.plot(
                    np.full(len(y), n * aside), np.where(y == 0, floor, y), linestyle="none", alpha=0.45,
                    **look | {"markersize": 3},
                )  # fmt: skip
            axes.plot(*_law_ends(row, own), color=look["color"], linewidth=1.6)
            if len(reached):
                y = np.where(reached == 0, floor, reached)
                axes.plot(
                    reached.index * aside, y, linestyle="none", markerfacecolor="none", markeredgewidth=1.3,
                    **look | {"markersize": 9},
                )  # fmt: skip
        axes.set(xscale="log", xlabel="elements N", ylabel="max |V_s| of an array")
        powers(axes.xaxis)
        log_axis(axes.yaxis, axes.set_yscale, floor)

    return plot
