"""The study of watched models."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from dataclasses import dataclass

from analysis.limits import NOTE, Limit
from analysis.overview import Overview
from analysis.page.sections import Section, Table, folded
from analysis.studies.contract import Data, Nothing, Study
from analysis.studies.watched.figures import figures_of
from analysis.studies.watched.runs import (
    FIRSTS,
    SIZES,
    STATES,
    Pair,
    firsts,
    gathered,
    pair,
    watched_runs,
)
from analysis.studies.watched.tables import pair_tables, sentence
from analysis.verdict import counted
from miniapps.trace.records import BEFORE

IN_REPORT = 3  # most pairs in the report, those that differ first


@dataclass(frozen=True)
class Known:
    """The `pairs` of watched runs; `left`: pairs that are not in the report; `alone`: runs without another."""

    pairs: list[Pair]
    left: int
    alone: list[str]


def read(overview: Overview, options: argparse.Namespace | None) -> Known:
    """Each watched run compared with the first of its problem; for the report at most IN_REPORT pairs."""
    groups = watched_runs(overview.frames)
    if not groups:
        raise Nothing
    alone = [run for run, _ in (group[0] for group in groups if len(group) == 1)]
    every = [(group[0], other) for group in groups for other in group[1:]]
    chosen = every if options else every[:IN_REPORT]
    found = [each for a, b in chosen if (each := pair(overview.frames, a, b)) is not None]
    return Known(found, len(every) - len(chosen), alone)


def tables(known: Known) -> list[tuple[str, Table]]:
    """The tables of all pairs."""
    return [table for each in known.pairs for table in pair_tables(each)]


def sections(known: Known) -> list[Section]:
    """A map of modules and steps, and the sizes of differences, of each pair."""
    figures = [figure for i, each in enumerate(known.pairs) for figure in figures_of(each, i)]
    nothing = "No two complete runs watched one model."
    intro = " ".join(sentences(known))
    notes = [f"{counted(known.left, 'more pair')}: see `fpna watched`."] if known.left else []
    return [
        Section(
            "watched",
            "Watched models",
            nothing,
            intro,
            figures,
            folded(tables(known)),
            notes=notes,
            opened=True,
        )
    ]


def sentences(known: Known) -> list[str]:
    """A sentence for each pair."""
    return [sentence(each) for each in known.pairs]


def unrecorded_steps(known: Known) -> Iterator[Limit]:
    """First differences in a step without records."""
    for each in known.pairs:
        if each.first and each.first[3].startswith(BEFORE):
            run, against = each.names
            fact = f"differ first before step {each.first[0]}: an earlier step, without records, is the cause"
            yield Limit(NOTE, "watched", f"{run}, {against}", fact, "watch with every=1")


STUDY = Study(
    read=read,
    data=(
        Data("firsts", "the first difference of each run from the first of its problem", FIRSTS,
             lambda known: firsts(known.pairs)),
        Data("states", "a row per run, module, pass and recorded step", STATES,
             lambda known: gathered(known.pairs, "states", STATES)),
        Data("sizes", "how far gradients and weights lie apart, by step", SIZES,
             lambda known: gathered(known.pairs, "sizes", SIZES)),
    ),
    sentences=sentences,
    tables=tables,
    sections=sections,
    notes=lambda known: [f"{run}: no other run of this model to compare with" for run in known.alone],
    rules=(unrecorded_steps,),
)  # fmt: skip
