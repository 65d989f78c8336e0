"""The answer of `fpna cpus`: its verdict, its sentence, its table and its document."""

from __future__ import annotations

import os
import shlex
from collections.abc import Iterable
from dataclasses import asdict
from typing import Any

from miniapps.cpus import asking
from miniapps.cpus.experiment import (
    DIFFERS,
    EQUAL,
    FAILED,
    HERE,
    NEWER,
    NOT_HELD,
    QEMU_ROW,
    TOLD,
    UNSTEADY,
    UNSURE,
    Found,
    Row,
)
from miniapps.system.environment import cpu_model, instructions
from miniapps.untrusted.text import printable

OPEN = "open"
ASKING = 4  # listed files that ask the processor
CODES = {EQUAL: 0, DIFFERS: 3, OPEN: 4}
LIMITS = "no setting changes code that asks the processor itself (cpuid); --emulate shows it"


def verdict(found: Found) -> tuple[str, str]:
    """The kind of answer and its sentence."""
    if found.differing.others:
        return OPEN, (
            f"nothing can be told of processors: the program differs from launch to launch by itself, first at "
            f"{found.differing.others[0]}"
        )
    shown = [*found.rows, *found.emulated]
    differs = [
        row for row in shown if row.state == DIFFERS or (row.state == FAILED and row in found.emulated)
    ]
    if differs:
        return DIFFERS, _differs(found, differs)
    if failed := next((row for row in shown if row.state == FAILED), None):
        return OPEN, f"open: the program fails with {_name(failed)}, {failed.difference}"
    if row := next((row for row in shown if row.state == UNSURE), None):
        return (
            OPEN,
            f"open: with {_name(row)} only numbers beside a word of time differ, first at {row.difference}",
        )
    if unsteady := next((row for row in shown if row.state == UNSTEADY), None):
        return (
            OPEN,
            f"open: under {_name(unsteady)} the program differs from launch to launch, at {unsteady.difference}",
        )
    if not found.emulated:
        if found.unanswered:
            names = _listed(printable(os.path.basename(name)) for name in found.unanswered[:ASKING])
            return (
                OPEN,
                f"open: {names} did not tell its libraries: linked statically, ended by a signal, or elsewhere",
            )
        if found.unheld:
            return OPEN, f"open: equal with every setting, but no setting holds {_listed(found.unheld)}"
        if layers := _never_held(found):
            return (
                OPEN,
                f"open: equal with every setting that had an effect, but nothing held {', '.join(layers)}",
            )
    kinds = _kinds(found, EQUAL, HERE)
    emulated = [row.level for row in found.emulated]
    if not found.layers and not emulated:
        return EQUAL, "equal: the program loads no library that is known to choose code by the processor"
    ways = [(kinds, "as on"), (emulated, "under qemu as")]
    return EQUAL, f"equal {' and '.join(f'{how} {_listed(names)}' for names, how in ways if names)}"


def _kinds(found: Found, *states: str) -> list[str]:
    """The processors on which the result had one of `states`, by settings."""
    return [row.level for row in found.rows if not row.layer and row.state in states]


def _differs(found: Found, differing: list[Row]) -> str:
    """The sentence of a program that differs: on which processors, through which layers."""
    by_layer: dict[str, list[str]] = {}
    for row in differing:
        if row.layer and row.layer != QEMU_ROW:
            by_layer.setdefault(row.layer, []).append(row.level)
    kinds, equal = _kinds(found, DIFFERS), _kinds(found, EQUAL, HERE)
    text = "differs"
    if kinds:
        text += f" on processors such as {_listed(kinds)}"
    if by_layer:
        text += f", through {_listed(f'{layer} ({_listed(levels)})' for layer, levels in by_layer.items())}"
    elif not kinds:
        text += (
            f" under qemu as {_listed(row.level for row in differing)}, through code that no setting holds"
        )
    else:
        text += ", through several layers together"
    return text + (f"; equal as on {_listed(equal)}" if equal else "")


def _never_held(found: Found) -> list[str]:
    """The loaded layers of which no level was shown, or not the last."""
    return [
        layer for layer in found.layers
        if not any(row.state in TOLD for row in [row for row in found.rows if row.layer == layer][-1:])
    ]  # fmt: skip


def _listed(words: Iterable[str]) -> str:
    *before, last = list(dict.fromkeys(words))
    return f"{', '.join(before)} and {last}" if before else last


def _more(names: list[str]) -> list[str]:
    return [f"{len(names) - ASKING} more files"] if len(names) > ASKING else []


def _name(row: Row) -> str:
    return f"{row.layer} as of {row.level}" if row.layer else f"all layers as on {row.level}"


def table(found: Found) -> list[str]:
    """The rows as text, in columns."""
    cells = [("layer", "held to", "it chose", "result")]
    for row in [*found.rows, *found.emulated]:
        layer = row.layer or "all of them"
        cells.append(
            (
                layer,
                row.level,
                _short(asking.shown(row.layer, row.chose, found.chose.get(row.layer, ""))),
                _result(row),
            )
        )
    widths = [max(len(line[i]) for line in cells) for i in range(3)]
    return ["  ".join([*(word.ljust(width) for word, width in zip(line, widths, strict=False)), line[3]]).rstrip()
            for line in cells]  # fmt: skip


def _short(text: str) -> str:
    return text if len(text) <= 36 else text[:33] + "..."


def _result(row: Row) -> str:
    if row.state == DIFFERS:
        return f"differs: {row.difference}"
    if row.state == FAILED:
        last = row.why.strip().splitlines()
        return f"fails, {row.difference}{f': {last[-1][:80]}' if last else ''}"
    words = {
        EQUAL: "equal",
        HERE: "as here",
        NEWER: "not shown",
        NOT_HELD: "not held",
        UNSTEADY: "does not repeat",
        UNSURE: f"only times: {row.difference}",
    }
    return words[row.state] + (f": {row.why}" if row.why and row.state != HERE else "")


def lines(found: Found, command: tuple[str, ...], quiet: bool) -> list[str]:
    """The answer as lines of text."""
    kind, sentence = verdict(found)
    if quiet:
        return [sentence]
    text = [f"{printable(shlex.join(command))}", f"  {sentence}", ""]
    if len(found.rows) + len(found.emulated):
        text += [f"  {line}" for line in table(found)] + [""]
    if found.held is not None:
        text.append(
            f"  settings   {shlex.join(f'{name}={value}' for name, value in found.held.variables.items())}"
        )
        if found.held.holds:
            price = "" if found.held.cost is None else f", at {found.held.cost:.2f} times the processor time"
            text.append(f"             hold it to one result with every level above{price}")
        else:
            text.append(f"             do not hold it to one result: {found.held.difference}")
    for name, places in found.differing.clocks.items():
        many = f"{len(places)} times" if len(places) > 1 else "1 time"
        text.append(f"  left out   {many} in {printable(name)}, different in each launch")
    if not found.emulated:
        text.append(f"  unseen     {LIMITS}")
        if found.asking:
            text.append(f"             such as {_listed([*found.asking[:ASKING], *_more(found.asking)])}")
    text.append(f"  launches   {found.launches}, {found.wall:.2g} s each")
    return [*text, f"  next       {_next(found, kind, command)}"]


def _next(found: Found, kind: str, command: tuple[str, ...]) -> str:
    shown = printable(shlex.join(command))
    if found.differing.others:
        return (
            "make it repeat (one thread, a fixed seed, a fixed order of messages); or leave out lines and files "
            "that may differ, by a text in them: --leave-out TEXT"
        )
    if kind == OPEN and any(row.state == UNSURE for row in [*found.rows, *found.emulated]):
        return "if this number is a time, leave its line out: --leave-out TEXT"
    if kind == EQUAL or (kind == OPEN and found.emulated):
        return "on another machine: fpna cpus --against FILE -- ..., where FILE has what --json prints here"
    if kind != OPEN and found.held is not None and found.held.holds:
        return "set these variables in every batch script of this program, on every machine"
    if found.emulated:
        return (
            "run it on one kind of processor alone wherever results are compared: no setting makes them equal"
        )
    return f"fpna cpus --emulate -- {shown}"


def content(found: Found, command: tuple[str, ...]) -> dict[str, Any]:
    """The document's keys besides the common ones."""
    kind, sentence = verdict(found)

    def rows(of: list[Row]) -> list[dict[str, Any]]:
        return [
            asdict(row) | {"variables": dict(row.variables), "difference": str(row.difference or "") or None}
            for row in of
        ]

    held = found.held and {
        "variables": dict(found.held.variables), "result": found.held.result, "holds": found.held.holds,
        "difference": str(found.held.difference or "") or None, "cost": found.held.cost,
    }  # fmt: skip
    return {
        "program": list(command), "verdict": kind, "sentence": sentence, "layers": found.layers, "chose": found.chose,
        "unheld": found.unheld, "asking": found.asking, "rows": rows(found.rows), "emulated": rows(found.emulated),
        "held": held,
        "left_out": {name: sorted({line + 1 for line, _ in places}) for name, places in found.differing.clocks.items()},
        "processor": cpu_model(), "instructions": instructions(), "result": found.result,
        "launches": found.launches, "seconds": found.wall,
    }  # fmt: skip
