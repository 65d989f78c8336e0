"""What a command answers, in its three forms: lines and tables on a terminal, CSV files, one document for programs."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeAlias

from analysis.commands.choice import EQUAL
from analysis.errors import Usage
from kernels.as_json import document
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


@dataclass(frozen=True)
class Answer:
    """What a command has to say. `tables` are for CSV files and programs, `shown` for people: lines and (title, table)
    in their order. `notes` limit what is said; `files` were written. `code` is the exit code; `refused` says why there
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
    """The document of docs/reference/json.md."""
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
