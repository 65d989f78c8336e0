"""Compares a document of --json with the declaration of its command."""

import fnmatch
import json

from kernels.as_json import COMMON
from tools.reference.documents import kind, of_analysis, of_others

DECLARED = of_analysis() | of_others()
KINDS = {
    "text": lambda value: isinstance(value, str),
    "integer": lambda value: type(value) is int,
    "number": lambda value: value is None or type(value) in (int, float),
    "boolean": lambda value: isinstance(value, bool),
    "object": lambda value: isinstance(value, dict),
    "objects": lambda value: isinstance(value, dict),
}


def strict(text):
    """The document, which must have no constants but those of JSON, nothing after it, and no characters but ASCII."""

    def refuse(constant):
        raise AssertionError(constant)

    assert text.isascii() and not {chr(c) for c in (*range(10), *range(11, 32), 127)} & set(text)
    return json.loads(text, parse_constant=refuse)


def fits(value, of):
    """Whether `value` is of that type in words."""
    of = of.partition(", ")[0]
    if of.endswith("?"):
        return value is None or fits(value, of[:-1])
    if of.startswith("list of "):
        return isinstance(value, list) and all(fits(item, of.removeprefix("list of ")) for item in value)
    return KINDS[of](value)


def named(name, known):
    """The pattern among `known` that stands for `name`."""
    return next((pattern for pattern in known if fnmatch.fnmatchcase(name, pattern)), None)


def check_rows(rows, columns, where):
    """Every row has the declared columns, each of its type; none is missing in the first, but some that may be null."""
    for row in rows:
        wrong = {
            key: value for key, value in row.items() if not fits(value, kind(columns[named(key, columns)]))
        }
        assert not wrong, (where, wrong)
    missing = {column for row in rows[:1] for column in columns if not fnmatch.filter(row, column)}
    assert not missing, (where, missing)


def check(found, name):
    """The document `found` has the keys that the command `name` declares, each of its type."""
    declared = DECLARED[name]
    assert found["command"] == name and found["schema"] == 1
    lists = {rows.name.partition(".")[0] for rows in declared.rows}
    assert set(found) == {*COMMON, *declared.keys, *lists}
    for key, column in declared.keys.items():
        assert fits(found[key], kind(column)), (name, key, found[key])
    for rows in declared.rows:
        inner = found
        for part in rows.name.split("."):
            inner = inner[part]
        check_rows(inner, rows.columns, (name, rows.name))
