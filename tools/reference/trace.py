"""The schema of a trace, from the declarations that its writer and its reader share."""

from __future__ import annotations

import inspect
import re
from collections.abc import Mapping

import msgspec

from miniapps.trace import head, schema
from tools.reference.markdown import code, docstring, page, sentence, table


def pages() -> dict[str, str]:
    """{path: page}."""
    tables = []
    for name, columns in schema.TABLES.items():
        rows = [(code(column), code(kind)) for column, kind in columns.items()]
        tables += [f"### {name}", sentence(schema.MEANINGS[name]), table(("column", "type"), rows)]
    structs = [
        thing for _, thing in inspect.getmembers(head, inspect.isclass)
        if issubclass(thing, msgspec.Struct) and thing is not head.Head and thing.__module__ == head.__name__
    ]  # fmt: skip
    parts = [
        f"The HDF5 file of a rank, format `{schema.FORMAT}`, schema {schema.SCHEMA}. [The trace](trace.md) says what "
        "each part means.",
        "## Attributes",
        fields(head.Head, head.MEANINGS),
        f"Stored as JSON: {', '.join(map(code, schema.JSON_ATTRIBUTES))}.",
    ]
    for struct in structs:
        parts += [f"### {struct.__name__}", docstring(struct), fields(struct)]
    parts += ["## Tables", "Groups of datasets of equal length, one for each column.", *tables]
    parts += [
        "### names",
        "`names/text` (uint8) holds the names that the columns "
        f"{', '.join(map(code, schema.NAMED))} index, each as a line of JSON in UTF-8.",
        "## Kinds of regions",
        ", ".join(map(code, schema.KINDS)) + ".",
        "## Effects of options",
        table(("effect", "the option"), ((code(name), text) for name, text in schema.EFFECTS.items())),
    ]
    return {"reference/trace-schema.md": page("Schema of the trace", *parts)}


def fields(struct: type, meanings: Mapping[str, str] | None = None) -> str:
    """The table of what a struct holds."""
    known = meanings or {}
    rows = [
        (code(f.encode_name), code(kind(f.type)), "yes" if f.required else "no", known.get(f.encode_name, ""))
        for f in msgspec.structs.fields(struct)
    ]
    return table(("key", "type", "always there", "is"), rows)


def kind(annotation: object) -> str:
    """A type in short: without modules, and without what marks a key that may be missing."""
    text = annotation.__name__ if isinstance(annotation, type) else str(annotation)
    text = re.sub(r"typing\.|msgspec\.|miniapps\.[\w.]*\.|kernels\.[\w.]*\.", "", text)
    text = re.sub(r"Annotated\[([\w\[\], ]+), Meta\((?:[^()]|\([^()]*\))*\)\]", r"\1", text)
    return text.replace(" | UnsetType", "").replace(" | _core.UnsetType", "")
