"""Figures of recorded static schedules: kernels over time, and below them the buffers of the arena."""

from __future__ import annotations

from collections.abc import Callable
from itertools import accumulate, groupby, pairwise

import pandas as pd

from analysis.page import svg
from analysis.page.svg import Figure, figure_of
from miniapps.untrusted.schedule import Schedule

MOST = 40  # most kernels of a drawn schedule, a row each
DRAWN = 4  # most schedules in a report
LEAST = 0.3  # share of the width that kernels divide evenly, so that short kernels stay visible
ROW_IN, ARENA_IN = 0.2, 2.4
LETTER = 0.0165, 0.042  # width and height of a letter in a box, over those of the arena
PER = {"sample": "sample after sample", "tile": "{tile} samples together"}
LEGEND = ("one sample at a time", "all samples of a tile")


def schedule_figures(known: dict[str, Schedule]) -> list[Figure]:
    """A figure for each `drawn` schedule of `known` {label of a run: schedule}."""
    return [_figure(number, run, known[run]) for number, run in enumerate(drawn(known))]


def drawn(known: dict[str, Schedule]) -> list[str]:
    """The labels of the schedules to draw: the first DRAWN with at most MOST kernels."""
    return [run for run, schedule in known.items() if len(schedule.kernels) <= MOST][:DRAWN]


def _figure(number: int, run: str, schedule: Schedule) -> Figure:
    rate = schedule.price.flops_per_byte
    price = (
        "an operation takes as long as a byte" if rate == 1 else f"{rate:g} operations take as long as a byte"
    )
    caption = (
        f"Above: the kernels in order, with their shares of the time predicted for {_tile(schedule)}. The time of a "
        f"kernel is the longer one of its operations and its bytes read and written, if {price}. Short kernels are "
        "drawn wider than their share. Below: the buffers in the arena. The height of a box is its size, its width is "
        "its lifetime: kernel 2 writes 2→3, and kernel 3 is the last to read it. Boxes at one height share memory."
    )
    kinds = {int(kernel.per == "tile") for kernel in schedule.kernels}
    kinds |= {int(buffer.samples > 1) for buffer in schedule.buffers}
    legend = [(kind, LEGEND[kind]) for kind in sorted(kinds)]
    height = 0.5 + ROW_IN * len(schedule.kernels) + ARENA_IN
    return figure_of(
        f"schedule-{number}", f"Schedule of {run}", _plot(schedule), caption, height, legend, grid=(2, 1),
        data=_data(schedule),
    )  # fmt: skip


def _tile(schedule: Schedule) -> str:
    return "one sample" if schedule.tile == 1 else f"a tile of {schedule.tile} samples"


def edges(schedule: Schedule) -> list[float]:
    """(kernels + 1) edges of the kernels, from 0 to 1: widths are their shares, but short ones are wider."""
    least = LEAST / len(schedule.kernels)
    widths = [max(kernel.share, least) for kernel in schedule.kernels]
    return [0.0, *(edge / sum(widths) for edge in accumulate(widths))]


def _data(schedule: Schedule) -> pd.DataFrame:
    """A row for each bar and box."""
    kernels = [
        {
            "what": "kernel",
            "name": kernel.kernel,
            "first": k,
            "last": k,
            "per": kernel.per,
            "share": kernel.share,
        }
        for k, kernel in enumerate(schedule.kernels, start=1)
    ]
    buffers = [
        {
            "what": "buffer", "name": buffer.name, "first": buffer.first + 1, "last": buffer.last + 1,
            "written": buffer.written + 1, "read": buffer.read + 1, "offset": buffer.offset,
            "bytes": buffer.bytes * buffer.samples, "samples": buffer.samples,
        }
        for buffer in schedule.buffers
    ]  # fmt: skip
    whole = dict.fromkeys(("first", "last", "written", "read", "offset", "bytes", "samples"), "Int64")
    columns = [
        "what",
        "name",
        "first",
        "last",
        "per",
        "share",
        "written",
        "read",
        "offset",
        "bytes",
        "samples",
    ]
    return pd.DataFrame([*kernels, *buffers], columns=columns).astype(whole)


def _plot(schedule: Schedule) -> Callable:
    at = edges(schedule)
    rows = len(schedule.kernels)

    def plot(axes) -> None:
        kernels, arena = axes
        kernels.get_gridspec().set_height_ratios((0.3 + ROW_IN * rows, ARENA_IN))
        for each in axes:
            each.grid(visible=False)
            each.set(xlim=(0, 1), xticks=[])
            for edge in at[1:-1]:
                each.axvline(edge, color=svg.FAINT, linewidth=0.4, zorder=0)
        _draw_kernels(kernels, schedule, at)
        _draw_arena(arena, schedule, at)

    return plot


def _draw_kernels(axes, schedule: Schedule, at: list[float]) -> None:
    """A row per kernel with its share; above, brackets that say whether kernels take a sample or a tile at once."""
    rows = len(schedule.kernels)
    for k, (kernel, (start, end)) in enumerate(zip(schedule.kernels, pairwise(at), strict=True)):
        axes.barh(k, end - start, 0.72, start, color=svg.SERIES[int(kernel.per == "tile")], linewidth=0)
        left = end > 0.85
        axes.text(start - 0.01 if left else end + 0.01, k, _percent(kernel.share), fontsize=7.5, va="center",
                  ha="right" if left else "left", color=svg.INK)  # fmt: skip
    numbered = [f"{k}: {kernel.kernel}" for k, kernel in enumerate(schedule.kernels, start=1)]
    axes.set_yticks(range(rows), numbered, fontsize=7.5)
    axes.tick_params(axis="y", length=0)
    axes.set_ylim(rows - 0.4, -1.6)
    if schedule.tile > 1:
        for per, same in groupby(enumerate(schedule.kernels), lambda each: each[1].per):
            numbers = [k for k, _ in same]
            start, end = at[numbers[0]], at[numbers[-1] + 1]
            axes.plot([start + 0.004, end - 0.004], [-0.75, -0.75], color=svg.INK, linewidth=0.8)
            place, align = (start + 0.008, "left") if start < 0.5 else (end, "right")
            axes.text(place, -0.9, PER[per].format(tile=schedule.tile), fontsize=7.5, ha=align, va="bottom",
                      color=svg.INK)  # fmt: skip


def _draw_arena(axes, schedule: Schedule, at: list[float]) -> None:
    """A box per buffer over its lifetime and place; named where there is room."""
    top = (
        max((buffer.offset + buffer.bytes * buffer.samples for buffer in schedule.buffers), default=1) / 1024
    )
    for buffer in schedule.buffers:
        start, end = at[buffer.first], at[buffer.last + 1]
        low = buffer.offset / 1024
        high = low + buffer.bytes * buffer.samples / 1024
        together = buffer.samples > 1
        axes.bar((start + end) / 2, high - low, end - start, low, facecolor=svg.SERIES[int(together)], alpha=0.3,
                 linewidth=0)  # fmt: skip
        axes.bar((start + end) / 2, high - low, end - start, low, fill=False, edgecolor=svg.SERIES[int(together)],
                 linewidth=1.0, hatch="/" if together else None)  # fmt: skip
        name = f"{buffer.written + 1}→{buffer.read + 1}"
        if end - start > LETTER[0] * len(name) and high - low > LETTER[1] * top:
            axes.text((start + end) / 2, (low + high) / 2, name, fontsize=7, ha="center", va="center",
                      color=svg.INK)  # fmt: skip
    axes.set_ylabel("place in the arena, KiB", fontsize=9)
    axes.set_xlabel(f"predicted time of {_tile(schedule)}", fontsize=9)
    axes.tick_params(axis="y", labelsize=8)
    axes.set_ylim(0, 1.03 * top)


def _percent(share: float) -> str:
    """`72 %`, `0.4 %`, `< 0.1 %`."""
    percent = 100 * share
    return "< 0.1 %" if percent < 0.1 else f"{percent:.0f} %" if percent >= 10 else f"{percent:.1f} %"
