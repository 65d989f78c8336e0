"""Prints the answer of a command as text, as CSV files, or as one JSON document for programs."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeAlias

from analysis.commands.choice import EQUAL
from analysis.errors import Usage
from kernels.as_json import columns, document
from miniapps.untrusted.text import printable

if TYPE_CHECKING:  # pandas takes a moment to import
    import pandas as pd

    from analysis.headline import Headline
    from analysis.load.frames import Frames
    from analysis.page.sections import Table

Part: TypeAlias = "str | tuple[str, Table]"  # a line, or a table with its title
SCHEMA = (
    1  # version of all documents; increase it when a key is removed or changes its meaning, not for a new key
)


class Bold(str):
    """A sentence with the verdict: bold on a terminal, in `sentences` of the document."""


KEYS = columns("""
    exit_code | integer | 0, or 3: `divergence` found a difference, `chain` a wrong head, `score` refused a ledger or a
      run, or `--within` is not met
    verdict | object? | of the runs, as the report begins with it: `verdict` (`failed`, `BROKEN`, `not comparable`,
      `other environment`, `differs`, `holds`, `no difference seen`, `not tested`), `badge` (the words for it, with the
      cause), `text` (the sentence). Null for commands that judge no bits: all but `report`, `variability` and
      `divergence`
    sentences | list of text | what stands in bold in the text
    tables | object | by name, lists of rows: see below
    notes | list of text | what limits the tables
    problems | list of objects | what was left out or is doubtful, a row each: `run`, `what` (its kind), `path`,
      `reason` (with the remedy), `kept` (what of the run is used), all text
    files | list of text | what was written
""")
SHARED = columns("""
    run | text | name of the launch
    repeat | integer | which repeat of it, from 0
    group cell series case family | text | which runs
      [belong together](../explanation/comparison.md#which-runs-belong-together), are judged against each other, scale
      together, compare sums, solve alike
    app problem guarantee ordering | text | of the run
    size | integer | ranks
    ..._low ..._high low_s high_s | number | 95 % interval of what they are named after; null where there are too few
      runs
""")  # columns of many tables


@dataclass(frozen=True)
class Answer:
    """The answer of a command.

    `tables` are for CSV files and documents, `shown` for people: lines and (title, table), in order. `notes` limit the
    answer; `files` names the written files. `code` is the exit code. `refused` is the reason if a command that should
    give a verdict has none."""

    frames: Frames | None
    tables: dict[str, pd.DataFrame]
    shown: Sequence[Part]
    notes: Sequence[str] = ()
    verdict: Headline | None = None
    files: Sequence[str] = field(default=())
    code: int = EQUAL
    refused: str = ""


def give(answer: Answer, options: argparse.Namespace) -> int:
    """Writes the CSV files that `options` ask for, prints the answer as text or document; returns the exit code.

    Raises Usage if the answer was refused: with --json before any output, else after the text, which has the reason."""
    if answer.refused and options.json:
        raise Usage(answer.refused)
    written = write_csv(answer.tables, options)
    if options.json:
        print(as_json(answer, options.command, [f"{options.csv}/{name}" for name in written]))
        return answer.code
    from analysis.page.terminal import printer

    say = printer()
    for what in answer.shown:
        say(what, bold=isinstance(what, Bold))
    if answer.refused:
        raise Usage(answer.refused)
    if not options.quiet:
        for note in answer.notes:
            say(note)
        if written:
            say(f"Written to {options.csv}: {', '.join(written)}")
    return answer.code


def as_json(answer: Answer, command: str, written: Sequence[str] = ()) -> str:
    """The answer as a JSON document with the keys KEYS."""
    verdict = answer.verdict
    return document(
        SCHEMA,
        command,
        exit_code=answer.code,
        verdict=verdict
        and {"verdict": verdict.verdict, "badge": verdict.badge, "text": printable(verdict.text)},
        sentences=[printable(line) for line in answer.shown if isinstance(line, Bold)],
        tables={name: rows(frame) for name, frame in answer.tables.items()},
        notes=[printable(note) for note in answer.notes],
        problems=rows(answer.frames.excluded) if answer.frames is not None else [],
        files=[printable(str(name)) for name in [*answer.files, *written]],
    )


def rows(frame: pd.DataFrame) -> list[dict[str, Any]]:
    """A table as a list of rows; texts are `printable`, as in CSV files, so that a terminal obeys and hides nothing."""
    from analysis.export.tables import texts

    plain = texts(frame).astype(object)
    return plain.where(plain.notna(), None).to_dict("records")


def write_csv(tables: dict[str, pd.DataFrame], options: argparse.Namespace) -> list[str]:
    """Writes `tables` as CSV if --csv is given; returns the names of the files. Raises Usage if that fails."""
    from analysis.export.tables import write_csv as write

    directory = getattr(options, "csv", None)
    if not directory:
        return []
    try:
        return write(tables, directory)
    except OSError as error:
        raise Usage(f"--csv {directory}: cannot be written: {error.strerror}; choose another") from error
