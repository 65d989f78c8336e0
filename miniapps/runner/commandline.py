"""From the command line, the environment and a deck to the configuration of one application."""

from __future__ import annotations

import argparse
import os
import textwrap
from collections.abc import Callable, Mapping
from importlib import resources
from typing import Any

from kernels.commands.options import add_version
from miniapps import applications
from miniapps.errors import UsageError
from miniapps.runner.config import (
    Option,
    build,
    closest,
    convert,
    cut,
    from_deck,
    from_environment,
    from_settings,
    options,
)
from miniapps.runner.options import SERVED, SHORTHANDS, Common, RunOptions
from miniapps.untrusted.records import TOML_MOST
from miniapps.untrusted.regular import Refused, read_text

DECK_BYTES = 4 * TOML_MOST  # a character of UTF-8 has at most 4 bytes

EXAMPLES = """\
examples:
  mpirun -n 4 {command}
      {first}, no guarantee
  mpirun -n 4 {command} --guarantee layout
      the same bits on any number of ranks
  mpirun -n 4 {command} --allreduce arrival --repeats 3
      three repeats that may differ in their bits
  {command} --list
      all decks, orderings, variants and options

Every option can also be given as --set section.name=value, as environment variable FPNA_SECTION_NAME, or in a
deck; the command line wins over the environment, the environment over the deck.
Exit codes: 0 done; 1 failure; 2 usage or configuration; 3 done, but a check failed.
"""


def parse(
    app: Any,
    argv: list[str],
    environ: Mapping[str, str],
    problem_of: Callable[[str], Mapping[str, Any]] | None = None,
) -> tuple[RunOptions, Any, bool]:
    """Returns (common options, configuration of the application, whether to list and stop).

    `problem_of(run)` returns the options that define the problem of the run of `--replay`; they replace the default
    deck's. Raises UsageError; `--help` prints and raises SystemExit as argparse does.
    """
    known = known_options(app)
    arguments, unknown = parser(app, known).parse_known_args(argv)
    if unknown:
        spelled = [flag for o in known for flag in _spellings(o)]
        spelled += [*SHORTHANDS, "--set", "--list", "--version", "--help"]
        name = unknown[0].partition("=")[0]
        raise UsageError(
            f"unknown argument {cut(unknown[0])}{_of_another(app, name) or closest(name, spelled)}"
        )
    flags = {
        o.key: convert(o, value, f"option {o.flag}")
        for o in known
        if o.flag and (value := getattr(arguments, o.key)) is not None
    }
    settings = from_settings(known, arguments.settings)
    short = SHORTHANDS[arguments.short][0] if arguments.short else {}
    for key, value in short.items():
        if (flags | settings).get(key, value) != value:
            raise UsageError(f"{arguments.short} and another {key} are both given; leave one out")
    if twice := [key for key in settings if key in flags and flags[key] != settings[key]]:
        raise UsageError(f"{twice[0]} is given twice, by its option and by --set; leave one out")
    above = from_environment(known, environ) | settings | flags | short
    deck = above.get("run.deck")
    values = _deck(app, known, deck)
    if problem_of and not arguments.list and (run := above.get("run.replay")) is not None:
        recorded = _recorded(known, problem_of(run), run)
        values = recorded | values if deck else values | recorded
    values |= above | {"run.deck": deck or _default_deck(app)}
    return build(Common, values).run, build(app.config, values), arguments.list


def known_options(app: Any) -> list[Option]:
    """The common options that the application supports, then its own options."""
    common = [o for o in options(Common) if o.name not in SERVED or o.name in app.serves]
    return common + options(app.config)


def decks(app: Any) -> dict[str, str]:
    """The decks that ship with the application: {name: TOML text}."""
    folder = resources.files(app.package) / "decks"
    if not folder.is_dir():
        return {}
    files = sorted((f for f in folder.iterdir() if f.name.endswith(".toml")), key=lambda f: f.name)
    return {f.name.removesuffix(".toml"): f.read_text(encoding="utf-8") for f in files}


def _recorded(known: list[Option], problem: Mapping[str, Any], run: str) -> dict[str, Any]:
    """The options of a recorded problem, checked, since anybody may have written the trace."""
    by_key = {o.key: o for o in known}
    return {
        key: convert(by_key[key], value, f"--replay {run}") for key, value in problem.items() if key in by_key
    }


def _default_deck(app: Any) -> str | None:
    return "S" if "S" in decks(app) else None


def _deck(app: Any, known: list[Option], name: str | None) -> dict[str, Any]:
    """The values of the requested deck: the application's own by name, any other by path."""
    own = decks(app)
    name = name or _default_deck(app)
    if name is None:
        return {}
    if name in own:
        return from_deck(known, own[name], name)
    if not name.endswith(".toml") and not os.path.isfile(name):
        other = next((other for other in name.split("-") if other in applications.names()), "")
        if other and other != app.name:
            raise UsageError(
                f"unknown deck {cut(name)}: {other} is an application of its own: python -m miniapps.{other}"
            )
        raise UsageError(f"unknown deck {cut(name)}{closest(name, own)}; or give the path of a .toml file")
    try:
        return from_deck(known, read_text(name, DECK_BYTES, links=True), name)
    except Refused as error:
        raise UsageError(f"deck {error}") from error
    except OSError as error:
        raise UsageError(
            f"deck {name} cannot be read: {error.strerror}; {app.name} ships {', '.join(own) or 'none'}"
        ) from error


def _of_another(app: Any, flag: str) -> str:
    """The applications that have `flag` although this one lacks it, as the end of a message; empty for none."""
    others = [applications.app(name) for name in applications.names() if name != app.name]
    have = [
        f"python -m {other.package}"
        for other in others
        for o in known_options(other)
        if flag in _spellings(o)
    ]
    verb = "has" if len(have) == 1 else "have"
    return f": {app.name} has no such option, {' and '.join(have)} {verb}" if have else ""


class _Parser(argparse.ArgumentParser):
    def error(self, message: str):
        raise UsageError(message)


class _Formatter(argparse.RawDescriptionHelpFormatter):
    def __init__(self, prog: str):
        super().__init__(prog, max_help_position=34, width=110)


def parser(app: Any, known: list[Option] | None = None) -> argparse.ArgumentParser:
    """The command line of an application, with the options `known` (None: all)."""
    known = known_options(app) if known is None else known
    first = "deck S" if _default_deck(app) else "the defaults"
    example = f"example:\n  mpirun -n 4 {app.command} {app.example}"
    top = _Parser(
        prog=app.command,
        usage=f"[mpirun -n N] {app.command} [options]",
        description=f"{textwrap.fill(app.summary, 110)}\n\n{example.rstrip()}",
        epilog=EXAMPLES.format(command=app.command, first=first),
        formatter_class=_Formatter,
        allow_abbrev=False,
    )
    groups: dict[str, Any] = {}
    for o in known:
        if not o.flag:
            continue
        if o.section not in groups:
            title = "common options" if o.section == "run" else f"{app.name}: {o.section}"
            groups[o.section] = top.add_argument_group(title)
        text = ", ".join([*decks(app), "or the path of a TOML file"]) if o.key == "run.deck" else _help(o)
        groups[o.section].add_argument(o.flag, dest=o.key, default=None, help=text, **_action(o))
    top.add_argument(
        "--set",
        dest="settings",
        action="append",
        default=[],
        metavar="SECTION.NAME=VALUE",
        help="set any option",
    )
    shorthands = top.add_mutually_exclusive_group()
    for flag, (_, text) in SHORTHANDS.items():
        shorthands.add_argument(flag, dest="short", action="store_const", const=flag, help=text)
    add_version(top)
    top.add_argument(
        "--list", action="store_true", help="list decks, orderings, variants and all options, then stop"
    )
    return top


def _action(o: Option) -> dict[str, Any]:
    if o.type is bool:
        return dict(action=argparse.BooleanOptionalAction)
    metavar = {int: "N", float: "X"}.get(o.type, o.name.upper())
    if isinstance(o.choices, tuple):
        metavar = "{" + ",".join(str(c) for c in o.choices) + "}"
    return dict(metavar=metavar, action="append" if o.many else "store")


def _help(o: Option) -> str:
    if o.type is bool:
        default = f" (default: {'yes' if o.default else 'no'})"
    else:
        default = "" if o.default in (None, (), "") else f" (default: {o.default})"
    unit = f" [{', '.join(filter(None, (o.range, o.unit)))}]" if o.range or o.unit else ""
    names = f"; choices: {', '.join(o.choices())}" if callable(o.choices) else ""
    return (o.help + names + unit + default).replace("%", "%%")


def _spellings(o: Option) -> list[str]:
    if o.flag is None:
        return []
    return [o.flag, "--no-" + o.flag.removeprefix("--")] if o.type is bool else [o.flag]
