"""The sections of the report on time: regions, and the cost of guarantees."""

from __future__ import annotations

from dataclasses import replace

from analysis.groups import grouped
from analysis.lint.conditions import sharing
from analysis.lint.experiment import Experiment
from analysis.load.frames import Frames
from analysis.overview import Overview
from analysis.page.sections import Section, Table, filled, said_once
from analysis.page.tables import few_regions, region_table
from analysis.page.text import interval, number
from analysis.regions import cost_summary, costs, regions, summary, withheld
from analysis.report import figures

FOLD_FROM = 24  # rows


def times_sections(overview: Overview) -> list[Section]:
    """Wall time per region."""
    measured = regions(overview.frames)
    medians = summary(measured)
    if medians.empty:
        nothing = "No times were recorded (--trace off), or no run is complete."
        return [Section("times", "Wall time per region", nothing)]
    intro = (
        "Inclusive time is spent inside a region, exclusive time inside it and in no region within it; "
        "both are means over ranks, and medians over runs. Share is exclusive time over the wall time of "
        "the run. Imbalance is the slowest rank over the mean, less one."
    )
    if medians["size"].nunique() > 1:
        intro += (
            " A column ends with its number of ranks: exclusive time has all, share and imbalance the fewest and the "
            "most, inclusive time the most, where other regions are inside."
        )
    few, counted = few_regions(medians)
    table = replace(region_table(few), folded=len(few) > FOLD_FROM)
    drawn = figures.time_figures(measured, overview.labels)
    return [Section("times", "Wall time per region", "", intro, drawn, [(f"All regions{counted}", table)])]


def costs_sections(overview: Overview) -> list[Section]:
    """What guarantees cost."""
    launches = Experiment(overview).launches
    crowded = {row.run for row in launches.itertuples() if sharing(row.flat, row.size)}
    return [_costs(overview.stepped, overview.labels, crowded)]


def _costs(frames: Frames, labels: list[str], crowded: set[str]) -> Section:
    """`crowded`: the runs whose ranks share cores."""
    points = costs(frames)
    runs = grouped(frames.runs)
    runs = runs[runs["complete"] & runs["wall_s"].notna()]
    intro = "No guarantee was measured beside another way on the same problem and rank count, so no cost can be given."
    tables = []

    def order(groups):
        return groups.map(labels.index)

    if len(points):
        columns = ("group", "ranks", "runs", "median, s", "relative", "95 % interval", "lowest", "highest",
                   "relative to")  # fmt: skip
        rows = [
            (
                row.group, row.size, row.runs, number(row.median_s), *_relative(row, points, crowded),
                f"{row.base} (n = {row.base_runs})",
            )
            for row in cost_summary(points).sort_values("group", key=order, kind="stable").itertuples(index=False)
        ]  # fmt: skip
        table, once = said_once(filled(Table(columns, rows, columns[1:8], by="group")), but="relative")
        tables = [(f"Wall time of whole repeats{once}", table)]
        intro = (
            "Medians of whole repeats. A cost is shown from six runs on each side, on cores that no ranks share; "
            "fpna cost A B measures it by launches in pairs. Only runs are compared that "
            "agree in all but the guarantee and what it chooses: orderings, and kernels by block or by rank."
        )
    return Section(
        "costs",
        "Cost of the guarantees",
        "",
        intro,
        figures.cost_figures(points, runs, labels, crowded),
        tables,
    )


def _relative(row, points, crowded: set[str]) -> tuple[str, str, str, str]:
    """The cost of a group with its interval, its least and its greatest; or why it is not shown."""
    if row.group == row.base:
        return "1", "", f"{row.lowest:.3f}", f"{row.highest:.3f}"
    if reason := withheld(row, points, crowded):
        return f"not shown: {reason}", "", "", ""
    return (f"{row.relative:.3f}", interval(row.relative_low, row.relative_high), f"{row.lowest:.3f}",
            f"{row.highest:.3f}")  # fmt: skip
