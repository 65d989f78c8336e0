"""The report: frames in, one HTML file out that needs nothing else."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import UTC, datetime

from analysis.components.sections import components_section
from analysis.export.tables import link
from analysis.lint.rules import lint
from analysis.load.frames import Frames
from analysis.overview import Overview
from analysis.page.sections import Section
from analysis.page.svg import GLYPHS, SERIES, Figure
from analysis.report.equality import first_sections, groups_sections, growth_sections, variability_sections
from analysis.report.launches import environment_sections, excluded_sections, limits_sections
from analysis.report.timelines import timeline_sections
from analysis.report.times import costs_sections, times_sections
from analysis.runs import Id
from analysis.scaling.sections import scaling_sections
from analysis.solves.sections import solves_sections
from analysis.solves.tables import changed
from analysis.sums.sections import sums_sections
from analysis.verdict import MEANING, Group, by_weight, clause, counted, doubts, sentence
from miniapps.received.text import printable

# The report from top to bottom. Each makes sections of the Overview: none, one or several.
SECTIONS: tuple[Callable[[Overview], list[Section]], ...] = (
    groups_sections,
    first_sections,
    timeline_sections,
    growth_sections,
    variability_sections,
    times_sections,
    costs_sections,
    lambda overview: scaling_sections(overview.frames),
    lambda overview: [components_section(overview.frames)],
    lambda overview: sums_sections(overview.frames),
    lambda overview: solves_sections(overview.solves) if overview.solves else [],
    environment_sections,
    excluded_sections,
)


@dataclass(frozen=True)
class Report:
    """The HTML text, and what else is worth saying in a terminal."""

    html: str
    verdict: str
    groups: list[Group]
    overview: Overview
    figures: list[Figure]


def build(frames: Frames, against: Id | None = None) -> Report:
    """The report on all runs of `frames`; `against` is the run that all are compared with (None: chosen)."""
    import jinja2

    overview = Overview(frames, against)
    groups = overview.groups
    decisions = changed(overview.solves) if overview.solves else []
    verdict = sentence(groups, frames, decisions)
    sections = _annotated(overview)
    launches = frames.runs["run"].nunique()
    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("analysis.report"), autoescape=True, undefined=jinja2.StrictUndefined,
        trim_blocks=True, lstrip_blocks=True,
    )  # fmt: skip
    html = environment.get_template("report.html.j2").render(
        verdict=verdict,
        lead=counted(len(groups), "group") if groups else "No group",
        clauses=[*((group.label, group.verdict, clause(group)) for group in by_weight(groups)), *decisions],
        doubts=doubts(frames, groups),
        sections=sections,
        meaning=MEANING,
        scope=f"{counted(len(frames.runs), 'run')} from {launches} launch{'es' if launches != 1 else ''}",
        now=f"{datetime.now(UTC):%Y-%m-%d %H:%M} UTC",
        glyphs=GLYPHS,
        series=len(SERIES),
        link=link,
    )
    html = printable(
        html, keep="\n"
    )  # names may hold characters that UTF-8 cannot write, or that hide others
    return Report(html, verdict, groups, overview, [f for section in sections for f in section.figures])


def _annotated(overview: Overview) -> list[Section]:
    """All sections, each with the findings that concern it."""
    findings = lint(overview)
    every = [section for sections in SECTIONS for section in sections(overview)]
    every[-2:-2] = limits_sections(findings)  # before environments and what was left out
    return [
        replace(section, findings=[(row.severity, f"{row.found}; {row.remedy}") for row in same.itertuples()])
        for section in every
        for same in [findings[findings["section"] == section.title]]
    ]
