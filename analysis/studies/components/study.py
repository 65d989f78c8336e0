"""The study of variance components."""

from __future__ import annotations

import argparse

import pandas as pd

from analysis.errors import Usage
from analysis.overview import Overview
from analysis.page.sections import Section, folded
from analysis.studies.components.estimates import COMPONENTS, components
from analysis.studies.components.figures import component_figures
from analysis.studies.components.tables import component_tables, notes, sentences
from analysis.studies.contract import Data, Study

TITLE = "Where the variance is"
OUTCOMES_NAMED = 2  # outcomes of a problem that the introduction of the section speaks of


def read(overview: Overview, options: argparse.Namespace | None) -> pd.DataFrame:
    """Raises Usage where no run is complete; the report says so in a section."""
    if options and not overview.frames.runs["complete"].any():
        raise Usage("no complete run among these, so nothing can be said of their variance; repeat one")
    return components(overview.frames)


def sections(known: pd.DataFrame) -> list[Section]:
    """Shares of allocation, node, launch and repeat in the variance from run to run, apart from the algorithm's."""
    tables, limits = component_tables(known), [f"{note}." for note in notes(known)]
    if not tables:
        nothing = " ".join(["No outcome of two complete runs of one problem varies.", *limits])
        return [Section("components", TITLE, nothing)]
    intro = " ".join(
        [
            "Wall time (its logarithm) and the final value of each global quantity, split by Henderson's method 3 into "
            "what differs between allocations, nodes, launches and repeats of a launch: run-to-run. What changes with "
            "ordering, kernel, guarantee or rank count is taken out before, and given apart.",
            *sentences(known, OUTCOMES_NAMED),
        ]
    )
    return [Section("components", TITLE, "", intro, component_figures(known), folded(tables), notes=limits)]


STUDY = Study(
    read=read,
    data=(
        Data("components",
             "a row per problem, outcome and factor ([what it says](../how-to/components.md))",
             COMPONENTS, lambda known: known),
    ),
    sentences=sentences,
    tables=component_tables,
    sections=sections,
    notes=notes,
)  # fmt: skip
