"""The sections of the report about scaling."""

from __future__ import annotations

from collections.abc import Sequence

from analysis.load.frames import Frames
from analysis.page.sections import Section, folded
from analysis.scaling.figures import communication_figures, path_figures, speedup_figures, straggler_figures
from analysis.scaling.study import Study, study
from analysis.scaling.tables import (
    base_notes,
    collective_tables,
    efficiency_tables,
    fit_tables,
    link_tables,
    path_tables,
    speedup_tables,
    straggler_tables,
)

IN_ALL = 1_000_000  # events read for the report


def scaling_sections(frames: Frames, labels: Sequence[str] = ()) -> list[Section]:
    """Speedup, efficiencies, communication, and critical path; little where nothing was timed. `labels` are the groups
    in the order of their colours."""
    results = study(frames, in_all=IN_ALL)
    return [_speedup(results, labels), *_traced(results, labels)]


def _speedup(results: Study, labels: Sequence[str]) -> Section:
    nothing = "No problem was timed on several rank counts by one method, so nothing is known of its scaling."
    if results.points.empty:
        nothing = "No complete run was timed, so nothing is known of its scaling."
    intro = _sentences(
        "Speedup is T1/Tp, efficiency speedup over p; for weak scaling, where the work per rank is constant, efficiency"
        " is T1/Tp. Runs of a series are alike in all options that could cost time. An interval takes six runs",
        *base_notes(results),
    )
    figures = speedup_figures(results, labels)
    tables = folded([*speedup_tables(results), *fit_tables(results)])
    return Section("scaling", "Scaling", nothing, intro if tables else "", figures, tables)


def _traced(results: Study, labels: Sequence[str]) -> list[Section]:
    title, title_of_path = "Scaling: where the time of ranks goes", "Scaling: communication and critical path"
    if results.traced["efficiencies"].empty:
        nothing = _sentences("No trace of a timed run could be replayed", *results.notes)
        return [
            Section("scaling-time", title, nothing),
            Section("scaling-path", title_of_path, "No trace of a timed run could be replayed."),
        ]
    first = _sentences(
        "Of the median run on each rank count. Useful time is spent outside of collectives and exchanges. Parallel "
        "efficiency = load balance (mean over largest useful time) x communication efficiency (largest useful time "
        "over run time), the latter = serialisation x transfer, where transfer is the run time on a network that costs "
        "nothing, found by replay of the trace, over the run time. The same losses as shares of the run time and the "
        "parallel efficiency add up to 1. Computation scaling is useful time against the smallest rank count",
        *results.notes,
    )
    second = (
        "Waiting for late ranks is the time from when a rank had nothing else to do until the last of its partners had "
        "come; the rest is the communication itself. The gain by balance is the time of a region on the critical path "
        "less its mean over ranks: what spreading it evenly could save at most."
    )
    tables = folded(efficiency_tables(results))
    return [
        Section("scaling-time", title, "", first, tables=tables),
        Section(
            "scaling-path", title_of_path, "", second,
            [*communication_figures(results), *straggler_figures(results, labels), *path_figures(results)],
            folded([*collective_tables(results), *straggler_tables(results), *link_tables(results),
                    *path_tables(results)]),
        ),
    ]  # fmt: skip


def _sentences(*parts: str) -> str:
    return " ".join(f"{part[:1].upper()}{part[1:]}." for part in parts)
