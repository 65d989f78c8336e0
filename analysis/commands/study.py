"""The command of any study of `analysis.studies`, by its name."""

from __future__ import annotations

import argparse

from analysis import studies
from analysis.commands.answer import Answer, Bold, Part
from analysis.commands.choice import add_csv, frames_for_csv, tell_problems, without


def add_options(name: str, parser: argparse.ArgumentParser) -> None:
    """Adds the options of a study, and the options of all studies."""
    parser.add_argument("runs", nargs="+", metavar="RUN")
    add = getattr(studies.about(name), "add_options", None)
    if add:
        add(parser)
    add_csv(parser)


def run(name: str, options: argparse.Namespace) -> Answer:
    """Answers with the sentences, tables, notes and files of a study. Raises Usage if no run has its records."""
    from analysis.overview import Overview
    from analysis.page.words import tables_in_words
    from analysis.studies.contract import Nothing

    study = studies.study(name)
    frames = frames_for_csv(options)
    try:
        known = study.read(Overview(frames), options)
    except Nothing as nothing:
        tell_problems(nothing.args)
        raise without(frames, studies.about(name).NEEDS) from None
    tell_problems(study.problems(known))
    files = study.draw(known, options)
    shown: list[Part] = [
        *map(Bold, study.sentences(known)),
        *tables_in_words(study.tables(known), study.words(known)),
    ]
    notes = [*(f"Note: {note}." for note in study.notes(known)), *(f"Written: {file}" for file in files)]
    return Answer(frames, {data.name: data.frame(known) for data in study.data}, shown, notes, files=files)
