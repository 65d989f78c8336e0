"""The study of audits."""

from __future__ import annotations

import argparse

from analysis.overview import Overview
from analysis.page.sections import Section, folded
from analysis.studies.audits.certificates import CASES, LAYERS, SEEN, STATED, audits
from analysis.studies.audits.compare import COMPARED
from analysis.studies.audits.figures import sensitivity_figures
from analysis.studies.audits.tables import (
    PROCESSORS,
    SENSITIVITY,
    Known,
    all_tables,
    audit_tables,
    compared_tables,
    findings,
    known_of,
    largest_tables,
    mode_tables,
    processor_tables,
    refused_tables,
    sensitivity_tables,
    sentences,
)
from analysis.studies.contract import Data, Nothing, Study


def read(overview: Overview, options: argparse.Namespace | None) -> Known:
    """The audits with a certificate."""
    recorded = audits(overview.frames)
    if not recorded.certificates:
        raise Nothing(*recorded.problems)
    return known_of(recorded)


def sections(known: Known) -> list[Section]:
    """Changes that alter the bits of operations; torch's documentation and measurements; certificates compared."""
    tables = [
        *sensitivity_tables(known),
        *processor_tables(known),
        *largest_tables(known),
        *refused_tables(known),
    ]
    dependent = Section(
        "audits", "Operations: changes that alter bits", "No operation was audited.", " ".join(sentences(known)),
        sensitivity_figures(known), folded(tables),
        notes=[f"{note[:1].upper()}{note[1:]}." for note in known.notes], opened=True,
    )  # fmt: skip
    made = [dependent]
    if stated := folded([*audit_tables(known), *mode_tables(known)]):
        intro = (
            "A statement is true if cases differ between runs without torch's deterministic mode and none differs in "
            "it, or if all throw. It is not seen if no case differs."
        )
        title = "Operations: documentation and measurements"
        made.append(Section("audits-documentation", title, "", intro, tables=stated, opened=True))
    if len(known.recorded.certificates) > 1:
        title, nothing = "Operations: certificates compared", "The certificates do not differ."
        made.append(Section("audits-certificates", title, nothing, tables=folded(compared_tables(known))))
    return made


STUDY = Study(
    read=read,
    data=(
        Data("cases", "a row per case of every certificate", CASES, lambda known: known.recorded.cases),
        Data("changes", "a row per case and change", SEEN, lambda known: known.recorded.seen),
        Data("statements", "a verdict on each statement of torch's documentation, and on differences without one",
             STATED, lambda known: known.recorded.stated),
        Data("layers", "a row per case and library that was held to code for another processor", LAYERS,
             lambda known: known.recorded.layers),
        Data("processors", "a row per operation, direction and such library, over all certificates", PROCESSORS,
             lambda known: known.processors),
        Data("sensitivity", "a row per operation, direction and change, over all certificates", SENSITIVITY,
             lambda known: known.sensitivity),
        Data("certificates", "each against the first, a row per difference", COMPARED, lambda known: known.compared),
    ),
    sentences=sentences,
    tables=all_tables,
    sections=sections,
    notes=lambda known: known.notes,
    problems=lambda known: known.recorded.problems,
    findings=findings,
)  # fmt: skip
