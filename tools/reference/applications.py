"""A page for each application: its decks and its options, from the dataclasses that hold them."""

from __future__ import annotations

import dataclasses
import typing
from collections.abc import Sequence

from miniapps import applications
from miniapps.runner import commandline
from miniapps.runner.config import Option
from miniapps.runner.options import SHORTHANDS, Common
from miniapps.trace.schema import EFFECTS
from tools.reference.markdown import block, code, docstring, linked, page, sentence, table

PLACE = "reference/applications"
SOURCES = """\
Every option can be given as `--set SECTION.NAME=VALUE`, as the environment variable `FPNA_SECTION_NAME`, or in a
deck, a TOML file. Some have a flag of their own. The command line wins over the environment, the environment over the
deck.

A role says what runs that differ in the option are: `problem`, other experiments; `method`, the same experiment by
other means; `control`, the same in every bit."""


def pages() -> dict[str, str]:
    """{path: page} of the options that all share, and of each application."""
    found = {f"{PLACE}/index.md": common()}
    return found | {f"{PLACE}/{name}.md": of(name) for name in applications.names()}


def common() -> str:
    """The options that all applications share."""
    known = commandline.options(Common)
    rows = [(code(flag), text) for flag, (_, text) in SHORTHANDS.items()]
    rows += [(f"[`{name}`]({name}.md)", applications.app(name).summary) for name in applications.names()]
    served = sorted(o.name for o in known if o.name in commandline.SERVED)
    names = ", ".join(f"[{name}]({name}.md)" for name in applications.names())
    effects = table(("effect", "the option"), ((code(name), text) for name, text in EFFECTS.items()))
    return page(
        "Common options", f"The options that all applications share: {names}.", SOURCES, listed(known),
        f"Some applications do not serve {', '.join(map(code, served))}: their `--help` leaves them out.",
        table(("shorthand", "stands for"), rows[: len(SHORTHANDS)]),
        "## Effects", "A trace states of an option what it is for a promise and for a comparison of times.", effects,
    )  # fmt: skip


def of(name: str) -> str:
    """One application."""
    app = applications.app(name)
    sections = typing.get_type_hints(app.config)
    known = [o for o in commandline.known_options(app) if o.section in sections]
    decks = commandline.decks(app)
    parts = [
        sentence(app.summary),
        block(f"mpirun -n 4 fpna {name} [options]", "sh"),
        f"The [common options](index.md) are these of all applications. [`python -m miniapps.{name} --list`](index.md) "
        "prints all with their values.",
    ]
    if decks:
        rows = [(code(deck), text.partition("\n")[0].lstrip("# ")) for deck, text in decks.items()]
        parts += ["## Decks", table(("`--deck`", "is"), rows)]
    for section, cls in sections.items():
        own = [o for o in known if o.section == section]
        parts += [f"## {section}", said(cls), listed(own)]
    return page(name, *parts)


def said(cls: type) -> str:
    """The docstring of a section of options, if somebody wrote one."""
    text = docstring(cls)
    return "" if text.startswith(f"{cls.__name__}(") else linked(text, "../../")


def listed(known: Sequence[Option]) -> str:
    """The table of some options."""
    return table(
        ("option", "flag", "type", "default", "is", "role", "effect"),
        [
            (code(o.key), code(o.flag or ""), kind(o), default(o), meaning(o), code(o.role), code(o.effect))
            for o in known
        ],
    )


def kind(option: Option) -> str:
    """Type and range in words."""
    name = {int: "integer", float: "number", str: "text", bool: "boolean"}.get(
        option.type, option.type.__name__
    )
    several = f"list of {name}" if option.many else name
    return ", ".join(filter(None, (several, option.range, option.unit)))


def default(option: Option) -> str:
    """The default as it is written on the command line; empty where there is none."""
    value = option.default
    if value is dataclasses.MISSING or value is None or value in ((), ""):
        return ""
    if isinstance(value, bool):
        return "yes" if value else "no"
    return code(", ".join(map(str, value)) if isinstance(value, tuple) else value)


def meaning(option: Option) -> str:
    """What it says, and what can be chosen."""
    allowed = option.allowed()
    return option.help + (f": {', '.join(map(code, allowed))}" if allowed else "")
