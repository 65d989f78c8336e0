"""The answer of a command in three forms: lines and tables on a terminal, CSV files, one document for programs."""

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
SCHEMA = 1  # of all documents; a key that goes or means something else counts it up, a new one does not


class Bold(str):
    """A sentence that says the verdict: bold on a terminal, among `sentences` for programs."""


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
""")  # the same columns stand in many tables


@dataclass(frozen=True)
class Answer:
    """The answer of a command. `tables` are for CSV files and programs, `shown` for people: lines and (title, table)
    in their order. `notes` limit the answer; `files` were written. `code` is the exit code; `refused` says why there
    is no verdict, where there should be one."""

    frames: Frames | None
    tables: dict[str, pd.DataFrame]
    shown: Sequence[Part]
    notes: Sequence[str] = ()
    verdict: Headline | None = None
    files: Sequence[str] = field(default=())
    code: int = EQUAL
    refused: str = ""


def give(answer: Answer, options: argparse.Namespace) -> int:
    """Write the CSV files that `options` ask for, print the answer as text or as a document; returns the exit code.

    Raises Usage where there is no verdict: without a document, which says one, but after the text, which says why."""
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
    """The document, with the keys of KEYS."""
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
    """A table as a list of rows, the texts as in CSV files: whatever a terminal would obey or hide is written out."""
    from analysis.export.tables import texts

    plain = texts(frame).astype(object)
    return plain.where(plain.notna(), None).to_dict("records")


def write_csv(tables: dict[str, pd.DataFrame], options: argparse.Namespace) -> list[str]:
    """Write `tables` as CSV where --csv asks for it; the names of the files. Raises Usage where that cannot be."""
    from analysis.export.tables import write_csv as write

    directory = getattr(options, "csv", None)
    if not directory:
        return []
    try:
        return write(tables, directory)
    except OSError as error:
        raise Usage(f"--csv {directory}: cannot be written: {error.strerror}; choose another") from error
