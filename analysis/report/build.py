"""The report: frames in, one HTML file out that needs nothing else."""

from __future__ import annotations

import base64
import hashlib
import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from importlib import resources

from analysis import studies
from analysis.export.tables import link
from analysis.headline import AS_RECORDED, BADGES, Headline, headline
from analysis.lint.rules import lint
from analysis.load.frames import SILENT, Frames
from analysis.load.watch import Watch
from analysis.overview import Overview
from analysis.page.sections import SIGNS, Section, filled, verdicts
from analysis.page.svg import GLYPHS, SERIES, Figure
from analysis.page.words import in_words
from analysis.predict.choices.whatif import WhatIf, what_if_sections
from analysis.predict.scoring.sections import predict_sections
from analysis.report.equality import first_sections, groups_sections, variability_sections
from analysis.report.launches import (
    environment_sections,
    excluded_sections,
    in_numbers,
    limits_sections,
)
from analysis.report.machine import machine_sections
from analysis.report.timelines import timeline_sections
from analysis.report.times import costs_sections, times_sections
from analysis.runs import Id
from analysis.verdict import HOLDS, MEANING, Group, counted
from miniapps.untrusted.ledger import Ledger
from miniapps.untrusted.text import printable

# The report from top to bottom: names of studies, and what makes sections of the Overview. Studies that are not named
# here come after these.
SECTIONS: tuple[str | Callable[[Overview], list[Section]], ...] = (
    groups_sections,
    first_sections,
    "nodes",
    machine_sections,
    timeline_sections,
    "watched",
    "growth",
    variability_sections,
    times_sections,
    costs_sections,
    "scaling",
    predict_sections,
    lambda overview: what_if_sections(overview.what_if),
    "components",
    "sums",
    "decisions",
    "solves",
    "learning",
    "utilisation",
    "answers",
    "audits",
)
CLOSING = (environment_sections, excluded_sections)  # after what limits the results
EXPONENT = re.compile(r"-?\b\d[\d.]*e[-+]\d+\b")
CARDS = 3  # first divergences of a section that are shown unfolded


@dataclass(frozen=True)
class Report:
    """The HTML text, and what else is worth saying in a terminal."""

    html: str
    headline: Headline
    groups: list[Group]
    overview: Overview
    figures: list[Figure]

    @property
    def verdict(self) -> str:
        """The badge and the sentence."""
        return printable(str(self.headline))


def build(
    frames: Frames,
    against: Id | None = None,
    watch: Watch = SILENT,
    ledger: Ledger | None = None,
    what_if: WhatIf | None = None,
) -> Report:
    """The report on all runs of `frames`; `against` is the run that all are compared with (None: chosen), `ledger` that
    of their predictions, `what_if` those on other machines. `watch` tells how many of its parts are made."""
    import jinja2

    overview = Overview(frames, against, ledger, what_if)
    groups = overview.groups
    verdict = headline(groups, frames, overview.findings)
    keyed = _annotated(overview, watch)  # groups by their labels, as exported figures name them
    sections = [in_words(section, overview.words) for section in keyed]
    launches = frames.runs["run"].nunique()
    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("analysis.report"), autoescape=True, undefined=jinja2.StrictUndefined,
        trim_blocks=True, lstrip_blocks=True,
    )  # fmt: skip
    script = (resources.files("analysis.report") / "templates" / "page.js").read_text(encoding="utf-8")
    environment.filters["whole"] = _whole
    html = environment.get_template("report.html.j2").render(
        title=" ".join(["Floating-point report", *([f"on {_apps(frames)}"] if len(frames.runs) else [])]),
        headline=str(verdict),
        verdict=verdict.verdict,
        badge=verdict.badge,
        text=verdict.text,
        sections=sections,
        limits=next(section for section in sections if section.id == "limits"),
        meaning=_legend(sections, verdict),
        scope=(
            f"Read: {counted(len(frames.runs), 'run')} (each repeat is one) from "
            f"{counted(launches, 'launch', 'launches')}, in {counted(len(groups), 'group')}"
        ),
        now=f"{datetime.now(UTC):%Y-%m-%d %H:%M} UTC",
        glyphs=GLYPHS,
        series=len(SERIES),
        cards=CARDS,
        link=link,
        filled=filled,
        badges=BADGES,
        script=script,
        script_hash=base64.b64encode(hashlib.sha256(script.encode()).digest()).decode(),
    )
    # Names may hold characters that UTF-8 cannot write, or that hide others.
    html = printable(html, keep="\n")
    return Report(html, verdict, groups, overview, [f for section in keyed for f in section.figures])


def _whole(text: str) -> str:
    """`text` as HTML in which no line ends inside a number with an exponent."""
    from markupsafe import Markup, escape

    return Markup(EXPONENT.sub(r'<span class="whole">\g<0></span>', str(escape(text))))


def _legend(sections: list[Section], headline: Headline) -> list[tuple[str, str, str]]:
    """(verdict, badge, meaning) of the badges that the page shows."""
    shown = verdicts(sections) | {headline.verdict}
    legend = [
        (verdict, " ".join(filter(None, [SIGNS.get(verdict, ""), BADGES[verdict]])), meaning)
        for verdict, meaning in MEANING.items()
        if verdict in shown
    ]
    texts = [
        str(cell) for section in sections for _, table in section.tables for row in table.rows for cell in row
    ]
    if any(AS_RECORDED in text for text in (headline.badge, *texts)):
        legend.append(
            (HOLDS, AS_RECORDED, "the same of runs that recorded no results, but what passes through calls")
        )
    return legend


def _apps(frames: Frames) -> str:
    return ", ".join(sorted(set(frames.runs["app"])))


def _annotated(overview: Overview, watch: Watch) -> list[Section]:
    """All sections, each with the number of findings that concern it."""
    findings = lint(overview)
    made: list[Section] = []
    others = [name for name in studies.names() if name not in SECTIONS]
    parts = (*SECTIONS, *others, *CLOSING)
    for i, part in enumerate(parts):
        watch.step(i, len(parts), f"part {i + 1} of {len(parts)} of the report")
        if part is CLOSING[0]:
            made += limits_sections(findings, {section.id: section.title for section in made})
        if not isinstance(part, str):
            made += part(overview)
        elif part in overview.known:
            study, known = overview.known[part]
            made += study.sections(known)
    watch.clear()
    return [
        replace(section, findings=in_numbers(findings[findings["section"] == section.id])) for section in made
    ]
