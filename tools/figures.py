"""`python -m tools.figures`: fills the figures of pages from benchmarks/results; with --check it names stale ones.

A page holds a template in a comment, the filled text, and an end. The tool writes the filled text:

    <!-- figures coupled-2-cores-2026-11-23.json [part=guarantee]
    | time per step, `run` / `none` | {what=run / none -> figure %.2f rounds} |
    -->
    | time per step, `run` / `none` | 0.99 (0.93 to 1.02, 5 rounds) |
    <!-- end of figures -->

The first line names files: `FILE`, or `NAME=FILE` for `{NAME: ...}` in a page that needs several; `FILE#key` takes the
rows below another key than "rows". `[...]` there, or at the beginning of a line of the template, selects rows for what
follows. A selector is `column=value; column>=value; column~part ...`: every condition holds. A line that begins with
`[each COLUMN]` (or `[each COLUMN, COLUMN; column=value]`) is written once for every value of these columns. An
expression is

    {SELECTOR -> COLUMN %FORMAT WORDS}      {COLUMN % WORDS} where [...] selects      {A -> x // B -> y %.1f}: a ratio
    {=machine.date %.10s}: by its path in the document      {machine}: cores, processor, date      {file}: its name

%FORMAT is Python's, for `format()`; a text is written as it is. A measurement with a spread is written as median (min
to max). WORDS: `rounds` adds their number, `median`, `min`, `max` and `n` (rounds) write that alone, `spread` only the
content of the brackets; `percent`, `*1e6` scale. Where several rows are selected one of these says what is written of
their medians: `over` (smallest to largest), `least`, `most`, `mean`, `sum`, `count`; `list` writes each once. Where
no row is selected, `list` writes "none" and `count` 0.
"""

from __future__ import annotations

import argparse
import functools
import json
import operator
import re
import statistics
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
RESULTS = ROOT / "benchmarks" / "results"
BLOCK = re.compile(
    r"^(?P<head> *<!-- figures (?P<files>[^\n\[]*)(?:\[(?P<where>[^\n]*)\])?\n)(?P<template>.*?)^ *-->\n"
    r"(?P<filled>.*?)^ *<!-- end of figures -->$",
    re.MULTILINE | re.DOTALL,
)
EXPRESSION = re.compile(r"\{([^{}\n]+)\}")
OWN = re.compile(r"(?P<indent> *)\[(?P<where>each [^\]]*|[^\]]*[=~][^\]]*)\] ?(?!\()")
TEST = re.compile(r"^\s*(.+?)\s*(>=|<=|!=|=|<|>|~)\s*(.*?)\s*$")
TESTS = {">=": operator.ge, "<=": operator.le, "!=": operator.ne, "=": operator.eq, "<": operator.lt,
         ">": operator.gt, "~": lambda value, text: str(text) in str(value)}  # fmt: skip
OF_MANY = {"least": min, "most": max, "mean": statistics.fmean, "sum": sum, "count": len}
OF_ONE = ("median", "min", "max", "n")
WORDS = {*OF_MANY, *OF_ONE, "over", "list", "spread", "rounds", "percent"}


class Wrong(ValueError):
    """An expression that the result file does not answer; the message names both."""


@functools.cache
def document(name: str) -> Any:
    """The result file `name`. Raises Wrong where it does not exist."""
    path = RESULTS / name
    if not path.is_file():
        raise Wrong(f"no result file {name}")
    return json.loads(path.read_text(encoding="utf-8"))


def at(name: str, path: str) -> Any:
    """The value below a dotted path of a result file; numbers are places of a list. Raises Wrong."""
    whole = document(name)
    try:
        return follow(whole, path)
    except (KeyError, IndexError, ValueError, TypeError):
        raise Wrong(f"{name} has no {path!r}") from None


def selected(name: str, conditions: list[str], least: int = 1) -> list[dict]:
    """The rows of `name` (`FILE` or `FILE#key`) for which all conditions `column=value` hold. Raises Wrong for fewer
    than `least`."""
    file, _, key = name.partition("#")
    rows = at(file, key or "rows")
    conditions = list(filter(str.strip, conditions))
    for condition in conditions:
        found = TEST.match(condition)
        if not found:
            raise Wrong(f"{condition!r} is no condition: column=value")
        column, test, value = found.groups()
        if least == 0 and not any(column in row for row in at(file, key or "rows")):
            raise Wrong(f"{name} has no column {column!r}")
        rows = [row for row in rows if column in row and TESTS[test](*comparable(row[column], value))]
    if len(rows) < least:
        raise Wrong(f"{name} has no row with {'; '.join(map(str.strip, conditions))}")
    return rows


def comparable(value: Any, text: str) -> tuple[Any, Any]:
    """A value of a row and the text of a condition, as numbers where both are."""
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        try:
            return float(value), float(text)
        except ValueError:
            pass
    return str(value), text


def value_of(name: str, where: list[str], words: str) -> list[Any]:
    """Values, one a row, of `SELECTOR -> COLUMN` or `COLUMN`; COLUMN may be a path, `lists.0`, `a.b`."""
    selector, _, column = words.rpartition("->")
    rows, column = selected(name, [*where, *selector.split(";")]), column.strip()
    try:
        return [row[column] if column in row else follow(row, column) for row in rows]
    except (KeyError, IndexError, ValueError, TypeError):
        raise Wrong(
            f"{name} has no column {column!r} in {len(rows)} selected rows; the first has {', '.join(rows[0])}"
        ) from None


def follow(value: Any, path: str) -> Any:
    """The value below a dotted path; numbers are places of a list."""
    for part in path.split("."):
        value = value[int(part)] if isinstance(value, list) else value[part]
    return value


def middle(value: Any) -> Any:
    """The median of a measurement with a spread; another value itself."""
    return value["median"] if isinstance(value, Mapping) else value


def written(expression: str, names: Mapping[str, str], where: list[str]) -> str:
    """The text of one expression. Raises Wrong."""
    alias, colon, rest = expression.partition(":")
    name, expression = (
        (names[alias], rest) if colon and alias in names else (next(iter(names.values())), expression)
    )
    file = name.partition("#")[0]
    if expression.strip() == "file":
        return f"`{file}`"
    if expression.strip() == "machine":
        machine = at(file, "machine")
        return f"{machine['cores']} cores, {machine['cpu']}, {machine['date'][:10]}"
    body, _, tail = expression.partition("%")
    words = tail.split()
    spec = words.pop(0) if words and tail[0] != " " else ""
    scale = 100.0 if "percent" in words else 1.0
    scale *= float(next((word[1:] for word in words if word.startswith("*")), 1))
    if wrong := [word for word in words if word not in WORDS and not word.startswith("*")]:
        raise Wrong(f"{{{expression}}}: unknown word {wrong[0]!r}; known: {', '.join(sorted(WORDS))}")
    empty = [text for word, text in (("list", "none"), ("count", "0")) if word in words]
    if body.startswith("="):
        values = [at(file, body[1:].strip())]
    elif empty and not selected(name, [*where, *body.rpartition("->")[0].split(";")], least=0):
        return empty[0]
    elif " // " in body:
        above, below = (value_of(name, where, part) for part in body.split(" // "))
        values = [middle(a) / middle(b) for a, b in zip(above, below, strict=True)]
    else:
        values = value_of(name, where, body)

    def text(value: Any) -> str:
        number = isinstance(value, (int, float)) and not isinstance(value, bool)
        value = value * scale if number and scale != 1 else value
        if number:
            return format(int(value) if spec.endswith("d") else value, spec)
        return format(str(value), spec if spec.endswith("s") else "")

    if "list" in words:
        return ", ".join(dict.fromkeys(text(middle(value)) for value in values))
    if many := [word for word in words if word in OF_MANY]:
        return text(OF_MANY[many[0]]([middle(value) for value in values]))
    if "over" in words:
        low, high = (text(end([middle(value) for value in values])) for end in (min, max))
        return low if low == high else f"{low} to {high}"
    if len(values) > 1:
        raise Wrong(
            f"{{{expression}}}: {len(values)} rows of {name}; select one, or say {', '.join(OF_MANY)} or over"
        )
    (value,) = values
    if not isinstance(value, Mapping):
        return text(value)
    if one := [word for word in words if word in OF_ONE]:
        return text(value[one[0]])
    inside = f"{text(value['min'])} to {text(value['max'])}"
    inside += f", {value['n']} rounds" if "rounds" in words else ""
    return inside if "spread" in words else f"{text(value['median'])} ({inside})"


def filled(block: re.Match[str]) -> str:
    """The text that belongs below a template. Raises Wrong."""
    names = {
        alias or file: file for alias, file in (name.rpartition("=")[::2] for name in block["files"].split())
    }
    if not names:
        raise Wrong("a template without a result file")
    of_block = (block["where"] or "").split(";")
    lines = []
    for line in block["template"].splitlines(keepends=True):
        own = OWN.match(line)
        where = of_block + (own["where"].split(";") if own else [])
        for conditions in each(next(iter(names.values())), where):
            fill = functools.partial(filled_in, names, conditions)
            lines.append(EXPRESSION.sub(fill, (own["indent"] + line[own.end() :]) if own else line))
    return "".join(lines)


def filled_in(names: Mapping[str, str], where: list[str], found: re.Match[str]) -> str:
    return written(found[1], names, where)


def each(name: str, conditions: list[str]) -> list[list[str]]:
    """The conditions, with one more list for every distinct value of the columns of `each COLUMN, COLUMN`."""
    columns = [condition for condition in conditions if condition.lstrip().startswith("each ")]
    plain = [condition for condition in conditions if condition not in columns]
    if not columns:
        return [plain]
    rows, keys = selected(name, plain), [key.strip() for key in columns[0].strip()[5:].split(",")]
    if lacking := [key for key in keys if not any(key in row for row in rows)]:
        raise Wrong(f"{name} has no column {lacking[0]!r}; the first row has {', '.join(rows[0])}")
    values = dict.fromkeys(tuple(row.get(key, "") for key in keys) for row in rows)
    return [[*plain, *(f"{key}={value}" for key, value in zip(keys, found, strict=True))] for found in values]


def page(text: str) -> str:
    """A page with the text below every template filled. Raises Wrong; the message begins with the line."""

    def replace(block: re.Match[str]) -> str:
        try:
            new = filled(block)
        except Wrong as error:
            raise Wrong(f"{text.count(chr(10), 0, block.start()) + 1}: {error}") from None
        return text[block.start() : block.start("filled")] + new + text[block.end("filled") : block.end()]

    if (begun := text.count("<!-- figures ")) != (ended := len(BLOCK.findall(text))):
        raise Wrong(
            f"1: {begun} templates begin, {ended} of them end with a line --> and a line <!-- end of figures -->"
        )
    return BLOCK.sub(replace, text)


def without_templates(text: str) -> str:
    """A page as it is read: the filled texts alone."""
    return BLOCK.sub(lambda block: block["filled"].rstrip("\n"), text)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tools.figures", description=__doc__.splitlines()[0])
    parser.add_argument(
        "--check", action="store_true", help="write nothing; exit code 1 where a page is stale"
    )
    parser.add_argument("pages", nargs="*", type=Path, help="these alone (default: README.md and docs)")
    options = parser.parse_args()
    wrong = 0
    for file in options.pages or [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]:
        text = file.read_text(encoding="utf-8")
        try:
            new = page(text)
        except Wrong as error:
            print(f"{file}:{error}", file=sys.stderr)
            wrong += 1
            continue
        if new != text and options.check:
            print(f"{file}: figures differ from the result files: python -m tools.figures", file=sys.stderr)
            wrong += 1
        elif new != text:
            file.write_text(new, encoding="utf-8")
            print(f"{file}: filled")
    return int(bool(wrong))


if __name__ == "__main__":
    sys.exit(main())
