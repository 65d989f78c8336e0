"""The study of nodes."""

from __future__ import annotations

import argparse

from analysis.overview import Overview
from analysis.page.sections import Section, folded
from analysis.studies.contract import Data, Study
from analysis.studies.nodes.crossed import NODES, REGIONS, TRAFFIC, Known, between_nodes
from analysis.studies.nodes.figures import link_matrix
from analysis.studies.nodes.words import all_tables, sentence
from analysis.verdict import counted

TITLE = "Nodes, and traffic between them"
IN_REPORT = 4  # most runs in the report: each reads the attributes of its traces again


def read(overview: Overview, options: argparse.Namespace | None) -> Known:
    """The traffic of all runs; for the report, of the first IN_REPORT over several nodes."""
    return between_nodes(overview.frames, None if options else IN_REPORT)


def sentences(known: Known) -> list[str]:
    """A sentence on the placement and traffic of each run."""
    alone = [f"{counted(known.alone, 'run')} on one node: nothing crossed a network."] if known.alone else []
    return [
        *(f"{of.run}: {sentence(of, known.nodes[known.nodes['run'] == of.run])}" for of in known.runs),
        *alone,
    ]


def sections(known: Known) -> list[Section]:
    """Placement, traffic by region and link matrix of the runs over several nodes; a sentence without such runs."""
    if not known.runs:
        nothing = "Every run was on one node: nothing crossed a network." if not known.notes else ""
        return [Section("nodes", TITLE, nothing or " ".join(f"{note}." for note in known.notes))]
    figures = [
        figure
        for k, of in enumerate(known.runs)
        for figure in link_matrix(of, f"nodes-{k}", known.traffic[known.traffic["run"] == of.run])
    ]
    return [
        Section(
            "nodes", TITLE, "", " ".join(sentences(known)), figures, folded(all_tables(known)),
            notes=[f"{note}." for note in known.notes], opened=True,
        )
    ]  # fmt: skip


STUDY = Study(
    read=read,
    data=(
        Data("nodes", "a row per run and node", NODES, lambda known: known.nodes),
        Data("traffic", "a row per pair of nodes with known traffic", TRAFFIC,
             lambda known: known.traffic),
        Data("regions", "a row per region that sent", REGIONS, lambda known: known.regions),
    ),
    sentences=sentences,
    tables=all_tables,
    sections=sections,
    notes=lambda known: known.notes,
)  # fmt: skip
