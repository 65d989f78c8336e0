"""The text of `--list`: all choices, from the declarations that the program itself uses."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

import kernels.sums  # noqa: F401 - registers its variants
from kernels import allreduce, registry
from kernels.allreduce.accumulate import ACCUMULATIONS
from kernels.guarantees import MEANINGS
from miniapps.runner import commandline
from miniapps.runner.config import Option


def listing(app: Any, known: list[Option], values: dict[str, dict[str, Any]]) -> str:
    """The decks, guarantees, orderings, accumulations, variants and options of `app` with their `values`, as text."""
    parts = [
        _table("decks", ((name, _first_comment(text)) for name, text in commandline.decks(app).items())),
        _table("guarantees, weakest first", MEANINGS.items()),
        _table("orderings of an all-reduce", ((o.name, o.guarantee, o.why) for o in allreduce.orderings())),
        _table(
            "accumulations of an all-reduce",
            ((n, a.guarantee or "", a.summary) for n, a in ACCUMULATIONS.items()),
        ),
    ]
    for operation in registry.operations():
        variants = (
            (v.name, v.backend, v.guarantee, v.unavailable() or v.why) for v in registry.variants(operation)
        )
        parts.append(_table(f"variants of {operation}", variants))
    rows = []
    for o in known:
        choices = o.allowed()
        allowed = "" if choices is None else f" {{{', '.join(map(str, choices))}}}"
        unit = f" [{', '.join(filter(None, (o.range, o.unit)))}]" if o.range or o.unit else ""
        rows.append(
            (o.key, json.dumps(values[o.section][o.name]), o.role, o.flag or "", o.help + unit + allowed)
        )
    parts.append(_table("options: value now, role, flag", rows))
    return "\n\n".join(part for part in parts if part)


def _first_comment(deck: str) -> str:
    """The first line of a deck, which describes it."""
    first = deck.partition("\n")[0]
    return first.lstrip("# ") if first.startswith("#") else ""


def _table(title: str, rows: Iterable[tuple[str, ...]]) -> str:
    rows = list(rows)
    if not rows:
        return ""
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]) - 1)]
    lines = ["  ".join([*(c.ljust(w) for c, w in zip(row, widths, strict=False)), row[-1]]) for row in rows]
    return "\n".join([title, *("  " + line.rstrip() for line in lines)])
