"""The documents of --json, from the declarations beside what writes them."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping
from importlib import import_module
from pkgutil import iter_modules

import kernels.commands
from analysis import studies
from analysis.commands import COMMANDS as ANALYSIS
from analysis.commands import OWN, command
from analysis.commands.answer import KEYS, SHARED
from fpna.commands import OTHERS
from kernels.as_json import Column, Document, Rows
from tools.reference.markdown import code, page, sentence, table

TYPES = {"str": "text", "bool": "boolean", "int64": "integer", "Int64": "integer?", "float64": "number"}
# Whose documents are declared beside what writes them, not in the module of the command.
ELSEWHERE = ("jobs.as_json", "jobs.cluster.commands", "miniapps.verify.output")
ABOUT = """\
`--json` makes a command print one JSON document on standard output and nothing else; warnings, errors and progress go
to standard error. The document is strict JSON in ASCII: `null` stands for what is not a finite number and for what is
not known. Exit codes are as without `--json`, and a document is printed exactly when the exit code is 0 or 3: after 1
(failure) and 2 (usage, or traces that cannot be used) standard output is empty.

    $ fpna divergence runs/a runs/b --json | jq -r .verdict.badge
    DIFFERS (message order)

A type is `text`, `integer`, `number`, `boolean`, `object`, or a list of one of these; `?` says that it may be null,
which every number may be. A unit follows the type: s, ns, bytes, ULP, GB/s (1e9 bytes per second). Characters of names
that a terminal would obey or hide are written out (`\\x1b`). Hashes are hexadecimal text.

Every document has `schema` (integer: counted up when a key goes or means something else, not when one is added),
`command` and `version` (text)."""


def pages() -> dict[str, str]:
    """{path: page}."""
    parts = [ABOUT, "## Commands of the analysis"]
    parts.append(
        "Rows are those of the CSV files of `--csv` and of the links in the report, under the same names and in full "
        "precision."
    )
    parts += [listed("key", KEYS), "The same columns stand in many tables:", listed("column", SHARED)]
    for name, document in of_analysis().items():
        parts += described(name, document)
    parts.append("## Other commands")
    for name, document in of_others().items():
        parts += described(name, document)
    return {"reference/json.md": page("JSON documents", *parts)}


def of_analysis() -> dict[str, Document]:
    """{command, with the option that makes it another document: Document} of the analysis."""
    found: dict[str, Document] = {}
    for name in ANALYSIS:
        found |= command(name).DOCUMENTS if name in OWN else {name: Document(rows=studies.study(name).data)}
    return found


def of_others() -> dict[str, Document]:
    """The same of all other commands."""
    found: dict[str, Document] = {}
    for module in [*instruments(), *(module for module, _ in OTHERS.values()), *ELSEWHERE]:
        found |= getattr(import_module(module), "DOCUMENTS", {})
    return found


def instruments() -> Iterator[str]:
    """The modules of instruments that start no MPI."""
    for module in iter_modules(kernels.commands.__path__, "kernels.commands."):
        if module.name.rpartition(".")[2] not in ("identify", "links"):
            yield module.name


def described(name: str, document: Document) -> Iterator[str]:
    """The section of one document."""
    yield f"### {name}"
    yield sentence(document.meaning) if document.meaning else ""
    yield listed("key", document.keys)
    for rows in document.rows:
        yield from lines(rows)


def lines(rows: Rows) -> Iterator[str]:
    """One list of objects."""
    yield f"{code(rows.name)}: {sentence(rows.meaning)[:1].lower()}{sentence(rows.meaning)[1:]}"
    yield listed("column", rows.columns)


def listed(what: str, columns: Mapping[str, Column]) -> str:
    """The table of some columns: neighbours of one type and meaning share a line."""
    grouped = itertools.groupby(columns, lambda name: (kind(columns[name]), columns[name].meaning))
    rows = [(", ".join(map(code, names)), of, meaning) for (of, meaning), names in grouped]
    return table((what, "type", "is"), rows) if rows else ""


def kind(column: Column) -> str:
    """Its type in words, and its unit."""
    return ", ".join(filter(None, (TYPES.get(column.dtype, column.dtype), column.unit)))
