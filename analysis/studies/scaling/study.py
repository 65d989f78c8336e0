"""The study of scaling."""

from __future__ import annotations

import argparse

from analysis.errors import Usage
from analysis.load.frames import SILENT
from analysis.load.watch import Watch
from analysis.overview import Overview
from analysis.page.sections import Section, folded
from analysis.studies.contract import Data, Study
from analysis.studies.scaling.figures import (
    communication_figures,
    path_figures,
    speedup_figures,
    straggler_figures,
)
from analysis.studies.scaling.fit import FITS
from analysis.studies.scaling.known import EFFICIENCIES, KEYS, Known, known_of
from analysis.studies.scaling.series import POINTS, SPEEDUPS
from analysis.studies.scaling.tables import (
    all_tables,
    base_notes,
    collective_tables,
    efficiency_tables,
    fit_notes,
    fit_tables,
    link_tables,
    path_tables,
    speedup_tables,
    straggler_tables,
)
from analysis.waiting.communication import COLLECTIVES, STRAGGLERS
from analysis.waiting.links import LINKS
from analysis.waiting.path import RANKS, REGIONS
from miniapps.untrusted.text import printable

IN_ALL = 1_000_000  # events read for the report


def read(overview: Overview, options: argparse.Namespace | None) -> Known:
    """The scaling of all runs. Raises Usage without a usable run; the report has a section instead."""
    watch = Watch(options.quiet, options.verbose) if options else SILENT
    known = known_of(overview.frames, in_all=None if options else IN_ALL, watch=watch)
    if options and known.points.empty:
        why = "; ".join(known.notes) or "there are no runs"
        raise Usage(f"no complete run with times ({why}); repeat one to its end without --trace off")
    return known


def sentences(known: Known) -> list[str]:
    """A sentence if no speedup is known."""
    nothing = "No problem was timed on several rank counts by one method, so no speedup is known."
    return [nothing] if known.speedups.empty else []


def sections(known: Known) -> list[Section]:
    """Speedup, efficiencies, communication, and critical path."""
    return [_speedup(known), *_traced(known)]


def _speedup(known: Known) -> Section:
    nothing = "No problem was timed on several rank counts by one method, so no scaling is known."
    if known.points.empty:
        nothing = "No complete run was timed, so no scaling is known."
    intro = _sentences(
        "Speedup is T1/Tp, efficiency is speedup over p. For weak scaling, with constant work per rank, efficiency is "
        "T1/Tp. Runs of a series agree in all options that may cost time. An interval needs six runs",
    )
    figures = speedup_figures(known)
    tables = folded([*speedup_tables(known), *fit_tables(known)])
    notes = [_sentences(note) for note in (*base_notes(known), *fit_notes(known))]
    return Section("scaling", "Scaling", nothing, intro if tables else "", figures, tables, notes=notes)


def _traced(known: Known) -> list[Section]:
    title, title_of_path = "Scaling: where the time of ranks goes", "Scaling: communication and critical path"
    if known.traced["efficiencies"].empty:
        nothing = _sentences("No trace of a timed run could be replayed", *known.notes)
        return [
            Section("scaling-time", title, nothing),
            Section("scaling-path", title_of_path, "No trace of a timed run could be replayed."),
        ]
    first = _sentences(
        "Results are from the median run on each rank count. Useful time is the time outside of collectives and "
        "exchanges. Parallel efficiency = load balance (mean over largest useful time) x communication efficiency "
        "(largest useful time over run time). Communication efficiency = serialisation x transfer; transfer is the run "
        "time on a network without cost, from a replay of the trace, over the run time. These losses as shares of the "
        "run time and the parallel efficiency add up to 1. Computation scaling is useful time over that on the "
        "smallest rank count",
    )
    second = (
        "Waiting for late ranks is the time from the end of a rank's own work until its last partner arrives; the rest "
        "is the communication itself. The gain by balance is the time of a region on the critical path less its mean "
        "over ranks: the most that even work could save."
    )
    tables = folded(efficiency_tables(known))
    return [
        Section("scaling-time", title, "", first, tables=tables, notes=list(map(_sentences, known.notes))),
        Section(
            "scaling-path", title_of_path, "", second,
            [*communication_figures(known), *straggler_figures(known), *path_figures(known)],
            folded([*collective_tables(known), *straggler_tables(known), *link_tables(known),
                    *path_tables(known)]),
        ),
    ]  # fmt: skip


def _sentences(*parts: str) -> str:
    return " ".join(f"{part[:1].upper()}{part[1:]}." for part in parts)


STUDY = Study(
    read=read,
    data=(
        Data("points", "a row per run ([meaning](../how-to/scaling.md))", POINTS,
             lambda known: known.points.assign(path=known.points["path"].map(printable))),
        Data("speedups", "a row per series and rank count, with 95 % intervals", SPEEDUPS,
             lambda known: known.speedups),
        Data("fits", "a row per series and model of the run time", FITS, lambda known: known.fits),
        Data("efficiencies", "of the median run on each rank count", KEYS | EFFICIENCIES,
             lambda known: known.traced["efficiencies"]),
        Data("collectives", "waiting in each collective", KEYS | COLLECTIVES,
             lambda known: known.traced["collectives"]),
        Data("stragglers", "ranks that others wait for", KEYS | STRAGGLERS, lambda known: known.traced["stragglers"]),
        Data("links", "links between nodes, of runs on three nodes or more ([meaning](../how-to/scaling.md))",
             KEYS | LINKS, lambda known: known.traced["links"]),
        Data("path_regions", "the critical path by region", KEYS | REGIONS, lambda known: known.traced["path_regions"]),
        Data("path_ranks", "the critical path by rank", KEYS | RANKS, lambda known: known.traced["path_ranks"]),
    ),
    sentences=sentences,
    tables=all_tables,
    sections=sections,
    notes=lambda known: [*base_notes(known), *fit_notes(known), *known.notes],
)  # fmt: skip
