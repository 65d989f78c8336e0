"""The figures of solves."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np
import pandas as pd

from analysis.page import svg
from analysis.page.axes import floor_of, log_axis, powers
from analysis.page.svg import Figure, figure_of
from analysis.page.text import interval, number
from analysis.pairs import EACH_OTHER
from analysis.runs import label
from analysis.studies.growth.law import typical
from analysis.studies.solves.growth import differences
from analysis.studies.solves.pairs import drift
from analysis.studies.solves.runs import TRUE_RESIDUAL
from analysis.studies.solves.tables import Known

DRAWN = 6  # most families, and cases with a drift study, with figures; the tables have all
COLOURS = 7  # most cases of a family in a figure
ROWS = 24  # most cases in the figure of iterations
POINTS = 3000  # most points of a figure: beyond, it shows every k-th iteration, but all solves and samples
LETTERS = 62  # most characters of a label above a row
MARKS = 24  # most marks of a line
MEDIAN, FITTED = "median", "fitted"  # lines of a drift study beside the samples


def left_out(known: Known) -> int:
    """The number of families without figures."""
    return max(0, known.cases["family"].nunique() - DRAWN)


def history_figures(known: Known) -> list[Figure]:
    """The residual of every solve against the iteration, true residuals as marks."""
    figures = []
    for k, (family, title) in enumerate(_families(known)):
        names, more = _coloured(known, family)
        own = known.recorded.solves[(known.recorded.solves["family"] == family).to_numpy()]
        own = own[own["case"].isin(names)]
        lines, marks, data = [], [], []
        for row in own.itertuples(index=False):
            run, case = (row.run, row.repeat), names.index(row.case)
            x, y = _thin(*_drawable(*known.recorded.history(run)), len(own))
            lines.append((case, x, y))
            data.append(_drawn(x, y, case=row.case, solve=label(run), kind="residual"))
            x, y = _marked(*_drawable(*known.recorded.history(run, TRUE_RESIDUAL)))
            marks.append((case, x, y))
            data.append(_drawn(x, y, case=row.case, solve=label(run), kind="true residual"))
        if not any(len(x) for _, x, _ in lines):
            continue
        true = any(len(x) for _, x, _ in marks)
        caption = (
            "Relative residual of every solve after each iteration, from the recurrence, on a logarithmic scale; one "
            "line per solve, a colour per case. Lines that coincide are equal or nearly so."
            + (
                " Marks: the true residual |b - Ax| / |b|, computed separately. Where it stays above its line, the "
                "recurrence no longer follows the solution: that level is the attained accuracy."
                if true
                else ""
            )
            + (
                " Dotted: the tolerance."
                if own["tolerance"].notna().any()
                else ""
            )
            + more
        )  # fmt: skip
        plot = _histories(lines, marks, own["tolerance"].iloc[0])
        legend = tuple(enumerate(names))
        drawn = pd.concat(data, ignore_index=True)
        figures.append(
            figure_of(f"solves-history-{k}", f"Residual{title}", plot, caption, 3.3, legend, data=drawn)
        )
    return figures


def iteration_figures(known: Known) -> list[Figure]:
    """Iterations of every complete solve and sample, one row per case."""
    solves = known.recorded.solves[
        known.recorded.solves["complete"] & np.isfinite(known.recorded.solves["iterations"])
    ]
    names = ("solves", "injected orders", "not converged")
    figures = []
    for k, (family, title) in enumerate(_families(known)):
        rows = []
        for case in known.cases.loc[known.cases["family"] == family, "case"]:
            own = solves[(solves["family"] == family) & (solves["case"] == case)]
            ends = known.recorded.ends[
                (known.recorded.ends["family"] == family) & (known.recorded.ends["case"] == case)
            ]
            rest = (own["converged"] != 1).to_numpy()
            taken, drawn = own["iterations"].to_numpy(), ends["iterations"].to_numpy()
            points = [taken[~rest], drawn[np.isfinite(drawn)], taken[rest]]
            if any(len(x) for x in points):
                rows.append((case, points))
        if not rows:
            continue
        hidden = len(rows) - ROWS
        caption = (
            "Iterations until each solve stopped; every solve is a point. Different numbers in a row are decisions "
            "that rounding alone changed." + (f" {hidden} more cases are in the table." if hidden > 0 else "")
        )
        rows = rows[:ROWS]
        legend = tuple((i, name) for i, name in enumerate(names) if any(len(points[i]) for _, points in rows))
        figures.append(
            figure_of(
                f"solves-iterations-{k}",
                f"Iterations{title}",
                _dots(rows),
                caption,
                0.75 + 0.5 * len(rows),
                legend,
                data=pd.DataFrame(
                    [
                        (case, names[i], value)
                        for case, points in rows
                        for i, x in enumerate(points)
                        for value in x
                    ],
                    columns=["case", "kind", "iterations"],
                ),
            )
        )
    return figures


def drift_figures(known: Known) -> list[Figure]:
    """Relative difference of residual histories against the iteration, a line per pair."""
    figures = []
    for k, (family, title) in enumerate(_families(known)):
        same = known.pairs[(known.pairs["family"] == family).to_numpy()]
        lines, data = [], []
        for row in same.itertuples(index=False):
            a, b = (row.a_run, row.a_repeat), (row.b_run, row.b_repeat)
            steps, _, relative = drift(known.recorded, a, b)
            good = np.isfinite(relative)
            if good.any():
                x, y = _thin(steps[good], relative[good], len(same))
                lines.append((int(row.against != EACH_OTHER), x, y))
                data.append(_drawn(x, y, "relative", a=label(a), b=label(b), against=row.against))
        if not any((y > 0).any() for _, _, y in lines):
            continue
        kinds = [i for i in (0, 1) if any(kind == i for kind, _, _ in lines)]
        legend = tuple((i, ("repeats of a case", "cases against the reference")[i]) for i in kinds)
        caption = (
            "Relative difference of the residuals of two solves after each iteration, one line per pair; points at the "
            "bottom are equal to the last bit. A straight rise is exponential growth. Near 1, the two solves are "
            "unrelated, though both may converge."
        )
        plot = _drift(lines)
        figures.append(
            figure_of(
                f"solves-drift-{k}",
                f"Residuals drift apart{title}",
                plot,
                caption,
                3.1,
                legend,
                data=pd.concat(data, ignore_index=True),
            )
        )
    return figures


def growth_figures(known: Known) -> list[Figure]:
    """The difference of each sample of the drift study against the iteration, with the median and the fitted growth."""
    figures = []
    several = len(known.growth) > 1
    for k, row in enumerate(known.growth.head(DRAWN).itertuples(index=False)):
        samples = known.recorded.samples
        same = samples[((samples["family"] == row.family) & (samples["case"] == row.case)).to_numpy()]
        table = differences(same)
        if not (np.isfinite(table) & (table > 0)).to_numpy().any():
            continue
        caption = (
            f"Relative distance between the iterates of {row.samples} solves with injected orders of addition and of "
            "a solve with exact sums, on a logarithmic scale. Thin lines are samples, the dark line is their median. A "
            "straight rise is exponential growth."
            + (" Dotted: the tolerance of the solver." if row.tolerance > 0 else "")
        )
        legend = [(0, "samples")]
        if row.rate == row.rate:
            between = interval(row.rate_low, row.rate_high)
            legend.append((1, f"fitted: exp({number(row.rate)} k)" + (f", {between}" if between else "")))
        else:
            caption += f" No growth is fitted: {row.nothing}."
        title = (
            f"Growth of the difference: {row.family}, {row.case}" if several else "Growth of the difference"
        )
        shown = _growth_data(table, row)
        figures.append(
            figure_of(
                f"solves-growth-{k}", title, _growth(shown, row.tolerance), caption, 3.3, legend, data=shown
            )
        )
    return figures


def _families(known: Known) -> Iterator[tuple[str, str]]:
    """(family, end of the title) of the families with figures."""
    every = list(dict.fromkeys(known.cases["family"]))
    return iter([(family, f": {family}" if len(every) > 1 else "") for family in every[:DRAWN]])


def _coloured(known: Known, family: str) -> tuple[list[str], str]:
    """The cases of a family to draw, and a sentence on the others."""
    every = known.cases.loc[known.cases["family"] == family, "case"].tolist()
    rest = len(every) - COLOURS
    return every[:COLOURS], f" {rest} more cases are in the table." if rest > 0 else ""


def _drawable(steps: np.ndarray, values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The points with a finite, positive value, which a logarithmic axis can show."""
    good = np.isfinite(values) & (values > 0)
    return steps[good], values[good]


def _thin(x: np.ndarray, y: np.ndarray, lines: int) -> tuple[np.ndarray, np.ndarray]:
    """Every k-th point of a line, so that `lines` such lines have at most about POINTS points."""
    some = slice(None, None, max(1, -(-len(x) * max(lines, 1) // POINTS)))
    return x[some], y[some]


def _marked(x: np.ndarray, y: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """At most MARKS evenly chosen points of a line."""
    some = slice(None, None, max(1, -(-len(x) // MARKS)))
    return x[some], y[some]


def _drawn(x: np.ndarray, y: np.ndarray, column: str = "value", **where: str) -> pd.DataFrame:
    """The points of one line as rows."""
    return pd.DataFrame({"iteration": x, column: y}).assign(**where)[[*where, "iteration", column]]


def _histories(lines: list, marks: list, tolerance: float) -> Callable:
    def plot(axes) -> None:
        for i, x, y in lines:
            axes.plot(x, y, color=svg.series(i)["color"], alpha=0.75)
        for i, x, y in marks:
            look = svg.series(i) | {"markersize": 5}
            axes.plot(x, y, linestyle="none", markerfacecolor="none", alpha=0.9, **look)
        _tolerance(axes, tolerance)
        axes.set(xlabel="iteration", ylabel="relative residual", yscale="log")
        axes.xaxis.get_major_locator().set_params(integer=True)
        powers(axes.yaxis)

    return plot


def _tolerance(axes, tolerance: float) -> None:
    if tolerance > 0:
        axes.axhline(tolerance, color=svg.INK, linewidth=0.9, linestyle=":")


def _dots(rows: list[tuple[str, list[np.ndarray]]]) -> Callable:
    def plot(axes) -> None:
        for y, (text, points) in enumerate(rows):
            for i, x in enumerate(points):
                at = y + 0.02 + 0.14 * i + 0.05 * (np.arange(len(x)) % 3 - 1)
                axes.plot(x, at, linestyle="none", alpha=0.7, clip_on=False, **svg.series(i))
            axes.annotate(
                _cut(text), (0.0, y - 0.3), xycoords=("axes fraction", "data"), va="center", fontsize=9
            ).set_in_layout(False)
        axes.set_ylim(len(rows) - 0.45, -0.6)
        axes.set_yticks([])
        axes.spines["left"].set_visible(False)
        axes.set_xlabel("iterations")
        every = np.concatenate([x for _, points in rows for x in points])
        low, high = every.min(), every.max()
        room = max(2.0, 0.08 * (high - low))
        axes.set_xlim(low - room, high + room)
        axes.xaxis.get_major_locator().set_params(integer=True)

    return plot


def _drift(lines: list) -> Callable:
    def plot(axes) -> None:
        floor = floor_of(np.concatenate([y for _, _, y in lines]))
        # Repeats last, so that they stay visible.
        for i, x, y in sorted(lines, key=lambda line: -line[0]):
            look = svg.series(i) | {"markersize": 2.5}
            axes.plot(x, np.where(y == 0, np.nan, y), color=look["color"], alpha=0.6)
            axes.plot(x, np.where(y == 0, floor, y), linestyle="none", alpha=0.7, **look)
        axes.set(xlabel="iteration", ylabel="relative difference of residuals")
        axes.xaxis.get_major_locator().set_params(integer=True)
        log_axis(axes.yaxis, axes.set_yscale, floor)

    return plot


def _growth_data(table: pd.DataFrame, row) -> pd.DataFrame:
    """The lines of a drift study: columns line, iteration, difference (NaN if not finite and positive)."""
    steps = table.index.to_numpy(float)
    lines = [
        (f"sample {name}", column) for name, column in zip(table.columns, table.to_numpy().T, strict=True)
    ]
    pieces = []
    for name, y in [*lines, (MEDIAN, typical(table))]:
        y = np.where(np.isfinite(y) & (y > 0), y, np.nan)
        x, y = _thin(steps, y, table.shape[1] + 1)
        pieces.append(_drawn(x, y, "difference", line=name))
    if row.rate == row.rate:
        ends = np.array([row.first, row.last])
        pieces.append(_drawn(ends, row.start * np.exp(row.rate * ends), "difference", line=FITTED))
    return pd.concat(pieces, ignore_index=True)


def _growth(shown: pd.DataFrame, tolerance: float) -> Callable:
    thin = {"color": svg.SERIES[0], "linewidth": 0.6, "alpha": 0.45}
    looks = {
        MEDIAN: {"color": svg.INK, "linewidth": 1.5},
        FITTED: {"color": svg.SERIES[1], "linewidth": 2.2},
    }

    def plot(axes) -> None:
        for name, same in shown.groupby("line", sort=False):
            axes.plot(same["iteration"], same["difference"], **looks.get(name, thin))
        _tolerance(axes, tolerance)
        axes.set(xlabel="iteration k", ylabel="difference of iterates", yscale="log")
        axes.xaxis.get_major_locator().set_params(integer=True)
        powers(axes.yaxis)

    return plot


def _cut(text: str) -> str:
    return text if len(text) <= LETTERS else f"{text[: LETTERS - 1]}…"
