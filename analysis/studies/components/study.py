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
OUTCOMES_NAMED = 2  # most outcomes of a problem in the introduction of the section


def read(overview: Overview, options: argparse.Namespace | None) -> pd.DataFrame:
    """The variance components of all runs. Raises Usage without a complete run; the report has a section instead."""
    if options and not overview.frames.runs["complete"].any():
        raise Usage("no complete run among these, so they have no variance components; repeat one")
    return components(overview.frames)


def sections(known: pd.DataFrame) -> list[Section]:
    """Shares of allocation, node, launch and repeat in the run-to-run variance; separately, the algorithm's shares."""
    tables, limits = component_tables(known), [f"{note}." for note in notes(known)]
    if not tables:
        nothing = " ".join(["No outcome of two complete runs of one problem varies.", *limits])
        return [Section("components", TITLE, nothing)]
    intro = " ".join(
        [
            "Henderson's method 3 splits the variance of the wall time (its logarithm) and of the final value of each "
            "global quantity. Run-to-run variance is between allocations, nodes, launches and repeats of a launch. The "
            "effects of ordering, kernel, guarantee and rank count are removed first, and shown separately.",
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
