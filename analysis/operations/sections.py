"""The sections of the report about audits of operations."""

from __future__ import annotations

from analysis.operations.figures import sensitivity_figures
from analysis.operations.tables import (
    Study,
    audit_tables,
    compared_tables,
    largest_tables,
    mode_tables,
    refused_tables,
    sensitivity_tables,
    sentences,
)
from analysis.page.sections import Section, folded


def operations_sections(results: Study) -> list[Section]:
    """What bits of operations depend on; torch's documentation against what was seen."""
    tables = [*sensitivity_tables(results), *largest_tables(results), *refused_tables(results)]
    notes = [f"{note[:1].upper()}{note[1:]}." for note in results.notes]
    nothing = "No operation was audited."
    dependent = Section(
        "audits",
        "Operations: what their bits depend on", nothing, " ".join(sentences(results)), sensitivity_figures(results),
        folded(tables), notes=notes, opened=True,
    )  # fmt: skip
    stated = folded([*audit_tables(results), *mode_tables(results)])
    sections = [dependent]
    if stated:
        intro = (
            "A statement is true where cases differ between runs without torch's deterministic mode and none in it, or "
            "where all throw; it is not seen where no case differs."
        )
        sections.append(
            Section(
                "audits-documentation",
                "Operations: documentation against what was seen",
                "",
                intro,
                tables=stated,
                opened=True,
            )
        )
    certificates = folded(compared_tables(results))
    if len(results.recorded.certificates) > 1:
        title = "Operations: certificates compared"
        sections.append(
            Section("audits-certificates", title, "The certificates say the same.", "", [], certificates)
        )
    return sections
