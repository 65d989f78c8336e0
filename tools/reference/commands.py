"""A page for each command of `fpna`, from the parser that reads its command line."""

from __future__ import annotations

import argparse
from collections.abc import Iterator

from fpna import commands
from miniapps import applications
from tools.reference.markdown import block, code, page, prose, sentence, table

PLACE = "reference/commands"


def pages() -> dict[str, str]:
    """{path: page} of all commands that are no application, and of the list of all."""
    found = {f"{PLACE}/index.md": overview()}
    summaries = {name: text for group in commands.summaries().values() for name, text in group.items()}
    for name in commands.names():
        if name not in applications.names():
            parts = [part for words, parser in parsers([name]) for part in described(words, parser)]
            summary = sentence(summaries[name])
            parts = [part.removeprefix(summary) for part in parts]
            found[f"{PLACE}/{name}.md"] = page(f"fpna {name}", summary, *parts)
    return found


def overview() -> str:
    """Every command with a link to its page."""
    parts = []
    for heading, group in commands.summaries().items():
        rows = []
        for name, summary in group.items():
            place = f"../applications/{name}.md" if name in applications.names() else f"{name}.md"
            rows.append((f"[`fpna {name}`]({place})", summary))
        parts += [f"## {sentence(heading.partition(':')[0]).rstrip('.')}", table(("command", "is for"), rows)]
    return page("Commands", "`fpna NAME --help` prints what stands on the page of each.", *parts)


def parsers(words: list[str]) -> Iterator[tuple[list[str], argparse.ArgumentParser]]:
    """(words of the command, its parser), those of its own commands after it."""
    parser, _ = commands.parser_of(words)
    if words[0] in commands.ANALYSIS:
        parser = subcommands(parser)[words[0]]
    yield from below(words, parser)


def below(
    words: list[str], parser: argparse.ArgumentParser
) -> Iterator[tuple[list[str], argparse.ArgumentParser]]:
    """A parser, then those of its commands, as far as a command of its own has a parser that shells would ask."""
    yield words, parser
    choosing = [a for a in parser._actions if a.dest == "command" and not a.option_strings and a.choices]
    for name, sub in subcommands(parser).items():
        real = commands.parser_of([*words, name])[0]
        yield from below([*words, name], subcommands(real).get(name, sub))
    for action in choosing:
        if not isinstance(action, argparse._SubParsersAction):
            for name in action.choices or ():
                yield from below([*words, name], commands.parser_of([*words, name])[0])


def subcommands(parser: argparse.ArgumentParser) -> dict[str, argparse.ArgumentParser]:
    """{name: its parser} of the commands that a parser has."""
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            return dict(action.choices)
    return {}


def described(words: list[str], parser: argparse.ArgumentParser) -> Iterator[str]:
    """The parts of a page that say what a parser takes."""
    if len(words) > 1:
        yield f"{'#' * min(len(words), 4)} fpna {' '.join(words)}"
    parser.prog = f"fpna {' '.join(words)}"
    yield block(parser.format_usage().removeprefix("usage: ").replace("\n" + " " * len("usage: "), "\n"))
    if parser.description:
        yield prose(parser.description.replace("%(prog)s", parser.prog), "../../")
    yield arguments(parser)
    if parser.epilog:
        yield block(parser.epilog)


def arguments(parser: argparse.ArgumentParser) -> str:
    """The table of what a parser takes."""
    formatter, rows = parser._get_formatter(), []
    for action in parser._actions:
        if action.help is argparse.SUPPRESS or action.dest == "help":
            continue
        if isinstance(action, argparse._SubParsersAction):
            helps = {choice.dest: choice.help for choice in action._choices_actions}
            rows += [(code(name), helps.get(name) or "") for name in action.choices]
            continue
        expanded = formatter._expand_help(action) if action.help else ""
        rows.append((code(spelled(action, formatter)), expanded))
    return table(("argument", "is"), rows) if rows else ""


def spelled(action: argparse.Action, formatter: argparse.HelpFormatter) -> str:
    """How an argument is written."""
    if not action.option_strings:
        return formatter._metavar_formatter(action, action.dest)(1)[0]
    value = "" if action.nargs == 0 else formatter._format_args(action, action.dest.upper())
    return f"{', '.join(action.option_strings)} {value}".strip()
