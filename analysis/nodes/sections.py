"""The section of the report on what passed between nodes."""

from __future__ import annotations

from analysis.load.frames import Frames
from analysis.nodes.figures import link_matrix
from analysis.nodes.study import study, tables
from analysis.nodes.words import all_tables, sentence
from analysis.page.sections import Section, folded

TITLE = "Nodes, and what crossed between them"
IN_REPORT = 4  # runs: each reads the attributes of its traces again


def nodes_sections(frames: Frames) -> list[Section]:
    """Placement, traffic by region and link matrix of the runs over several nodes; a sentence where there are none."""
    results = study(frames, IN_REPORT)
    if not results.runs:
        nothing = "Every run was on one node: nothing crossed a network." if not results.notes else ""
        return [Section("nodes", TITLE, nothing or " ".join(f"{note}." for note in results.notes))]
    made = tables(results)
    figures, lines = [], []
    for k, of in enumerate(results.runs):
        placed, traffic = (made[name][made[name]["run"] == of.run] for name in ("nodes", "traffic"))
        lines.append(f"{of.run}: {sentence(of, placed)}")
        figures += link_matrix(of, f"nodes-{k}", traffic)
    if results.alone:
        lines.append(f"Runs on one node, where nothing crosses: {results.alone}.")
    return [
        Section(
            "nodes", TITLE, "", " ".join(lines), figures, folded(all_tables(results, made)),
            notes=[f"{note}." for note in results.notes], opened=True,
        )
    ]  # fmt: skip
