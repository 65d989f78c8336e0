"""Reads and checks campaigns: TOML files that list the applications to run, on how many ranks, and how often.

Mistakes are found here, before a job waits in a queue for hours; every error names the line of the file. See
docs/how-to/campaigns.md for the keys.
"""

from __future__ import annotations

import math
import re
import tomllib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, NoReturn

from jobs import applications, example
from jobs.job import MOST
from jobs.sites import seconds
from jobs.words import cut, quoted
from miniapps.errors import UsageError
from miniapps.runner.config import closest, convert
from miniapps.system.layers import PROCESSORS
from miniapps.untrusted.records import TOML_MOST, parse_toml
from miniapps.untrusted.regular import Refused, read_text
from miniapps.untrusted.text import printable

TASKS = 10_000  # most tasks of a campaign: its application checks each before anything runs
HOURS_MOST = 1e12
SEARCHED = (
    2**19
)  # characters that may be parsed again, beyond the length of the file, to find the line of a mistake
NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,99}")
DEFAULTS = {"allocations": 1, "repeats": 1, "seeds": [1], "time": "00:20:00", "retries": 1, "threads": 1}
TOP = ("name", "out", "shuffle", "budget_node_hours", "limit", "defaults", "runs", "sites")
RUN = ("app", "ranks", "deck", "guarantee", "cpu", "options", *DEFAULTS)
CPU, THIS = (
    "cpu",
    "this",
)  # the factor that holds libraries to an older processor, and its value for the processor itself
SITE = ("account", "queue", "environment", "kind", "nodes", "ranks_per_node", "gpus_per_node")
# {option that a campaign sets itself: the key to write instead}.
TAKEN = {
    "run.repeats": "repeats",
    "run.seed": "seeds",
    "run.threads": "threads",
    "run.deck": "deck",
    "run.guarantee": "guarantee",
    "run.out": "out",
    "run.progress": "nothing: a campaign has its own",
}


class CampaignError(ValueError):
    """An invalid campaign; the message names the file, the line and the remedy."""


@dataclass(frozen=True)
class SiteSettings:
    """Settings of the campaign for one site; None leaves the choice to the site or the command line."""

    account: str | None = None
    queue: str | None = None
    environment: str | None = None
    kind: str | None = None  # of nodes
    nodes: int | None = None  # of an allocation; None: as many as the largest task needs
    ranks_per_node: int | None = None
    gpus_per_node: int = 0


@dataclass(frozen=True)
class Runs:
    """One [[runs]]: configurations of one application, all combinations of the given values."""

    app: str
    line: int
    ranks: tuple[int, ...]
    threads: int
    seeds: tuple[int, ...]
    repeats: int
    allocations: int
    seconds: int  # limit of one task
    retries: int
    options: Mapping[str, tuple[Any, ...]]  # section.name: values to cross, deck and guarantee among them

    @property
    def tasks(self) -> int:
        """The number of its tasks."""
        crossed = (self.ranks, self.seeds, *self.options.values())
        return self.allocations * math.prod(map(len, crossed))


@dataclass(frozen=True)
class Campaign:
    """A checked campaign; `out` is absolute. `shuffle` is the seed of the order of tasks."""

    name: str
    path: Path
    out: Path
    runs: tuple[Runs, ...]
    shuffle: int = 1
    budget_node_hours: float | None = None
    limit_seconds: int | None = None  # of an allocation
    sites: Mapping[str, SiteSettings] = field(default_factory=dict)

    def at(self, site: str) -> SiteSettings:
        """The settings for `site`."""
        return self.sites.get(site, SiteSettings())

    @property
    def allocations(self) -> int:
        """The number of its allocations."""
        return max(runs.allocations for runs in self.runs)


def read(path: str | Path) -> Campaign:
    """The campaign in the file `path`. Raises CampaignError."""
    path = Path(path)
    shown = printable(str(path))
    try:
        text = read_text(path, TOML_MOST, links=True)
    except Refused as error:
        raise CampaignError(str(error)) from None
    except OSError as error:
        raise CampaignError(
            f"{shown}: cannot be read: {error.strerror}; give the TOML file of a campaign{example.hint(path)}"
        ) from None
    try:
        content = parse_toml(text)
    except ValueError as error:  # TOMLDecodeError among them
        raise CampaignError(f"{shown}: not valid TOML: {cut(str(error))}") from None
    return _Reader(path, text).campaign(content)


def lines_of_keys(text: str) -> dict[tuple[str | int, ...], int]:
    """{keys: line, from 1, of the first statement that gives them a value}, for valid TOML.

    Keys are names, and indices in arrays of tables. A statement is the smallest number of lines that the parser
    accepts, which works for any syntax. If statements have so many lines that SEARCHED does not suffice, keys are
    missing.
    """
    lines: dict[tuple[str | int, ...], int] = {}
    table: tuple[str | int, ...] = ()  # the table of the statements
    counts: dict[tuple[str | int, ...], int] = {}  # lengths of arrays of tables so far
    first, statement, parsed = 1, "", 0
    for number, line in enumerate(text.split("\n"), start=1):
        if not statement:
            first = number
            if not line.strip():
                continue
        statement += line + "\n"
        parsed += len(statement)
        if parsed > len(text) + SEARCHED:
            break
        try:
            content = tomllib.loads(statement)
        except tomllib.TOMLDecodeError:  # the statement has more lines
            continue
        if statement.lstrip().startswith("["):
            table = _table(content, counts)
            for length in range(1, len(table) + 1):
                lines.setdefault(table[:length], first)
        else:
            for keys in _paths(content, table):
                lines.setdefault(keys, first)
        statement = ""
    return lines


def _table(header: Any, counts: dict[tuple[str | int, ...], int]) -> tuple[str | int, ...]:
    """The keys of the table that begins with `header`, a parsed [a.b] or [[a.b]]; `counts` the [[a.b]] so far."""
    keys: tuple[str | int, ...] = ()
    while header:
        ((name, header),) = header.items()
        keys += (name,)
        if isinstance(header, list):
            counts[keys] = counts.get(keys, 0) + 1
            header = header[0]
        if keys in counts:
            keys += (counts[keys] - 1,)
    return keys


def _paths(content: Any, above: tuple[str | int, ...]) -> Iterator[tuple[str | int, ...]]:
    """Yields the keys of every value in `content`, through dicts and lists."""
    inner = (
        content.items()
        if isinstance(content, dict)
        else enumerate(content)
        if isinstance(content, list)
        else ()
    )
    for key, value in inner:
        yield (*above, key)
        yield from _paths(value, (*above, key))


class _Reader:
    """Checks the content of one file; finds the lines of its keys for messages."""

    def __init__(self, path: Path, text: str):
        self.path, self.text = path, text

    def fail(self, keys: tuple[str | int, ...], message: str) -> NoReturn:
        line = next((self.lines[keys[:n]] for n in range(len(keys), 0, -1) if keys[:n] in self.lines), None)
        where = printable(str(self.path)) + (f", line {line}" if line else "")
        raise CampaignError(f"{where}: {cut(message, 4000)}")

    @cached_property
    def lines(self) -> dict[tuple[str | int, ...], int]:
        return lines_of_keys(self.text)

    def known(self, table: Any, names: Iterable[str], place: tuple[str | int, ...], what: str) -> None:
        if not isinstance(table, dict):
            self.fail(place, f"{place[-1]} must be a table, {what}")
        for key in table:
            if key not in names:
                self.fail((*place, key), f"unknown key {quoted(key)} in {what}{closest(key, names)}")

    def campaign(self, content: dict[str, Any]) -> Campaign:
        self.known(content, TOP, (), "a campaign")
        for key in ("name", "out", "runs"):
            if key not in content:
                raise CampaignError(f"{self.path}: {key} is missing; see docs/how-to/campaigns.md")
        name = self.text_of(content, "name", ())
        if not NAME.fullmatch(name):
            self.fail(
                ("name",),
                f"name {quoted(name)}: at most 100 letters, digits, '_', '-' and '.', no '-' or '.' in front",
            )
        out = self.text_of(content, "out", ())
        defaults = content.get("defaults", {})
        self.known(defaults, DEFAULTS, ("defaults",), "[defaults]")
        runs = content["runs"]
        if not (isinstance(runs, list) and runs and all(isinstance(table, dict) for table in runs)):
            self.fail(("runs",), "runs must be tables, each written [[runs]]")
        budget = content.get("budget_node_hours")
        if budget is not None and (
            isinstance(budget, bool) or not isinstance(budget, int | float) or not 0 < budget <= HOURS_MOST
        ):
            self.fail(
                ("budget_node_hours",),
                f"budget_node_hours {quoted(budget)}: a number of hours above 0, at most {HOURS_MOST:g}",
            )
        groups = []
        for number, table in enumerate(runs):
            groups.append(self.runs(table, number, defaults))
            self.few(sum(one.tasks for one in groups), ("runs", number))
        return Campaign(
            name=name,
            path=self.path.absolute(),
            out=self.directory(out),
            shuffle=self.count(content, "shuffle", (), default=1, least=0),
            budget_node_hours=budget,
            limit_seconds=self.time(content, "limit", ()) if "limit" in content else None,
            runs=tuple(groups),
            sites=self.sites(content.get("sites", {})),
        )

    def directory(self, out: str) -> Path:
        try:
            return (self.path.absolute().parent / out).resolve()
        except (OSError, RuntimeError) as error:  # such as a loop of links
            self.fail(("out",), f"out {quoted(out)}: leads nowhere: {error}")

    def few(self, tasks: int, place: tuple[str | int, ...]) -> None:
        if tasks > TASKS:
            number = f"{tasks:,}" if tasks < 10**15 else "more than 10^15"
            self.fail(
                place,
                f"{number} tasks up to here, and a campaign has at most {TASKS:,}: all values of all options, ranks, "
                "seeds and allocations are crossed; give fewer, or make several campaigns",
            )

    def runs(self, table: dict[str, Any], number: int, defaults: dict[str, Any]) -> Runs:
        place = ("runs", number)
        self.known(table, RUN, place, "[[runs]]")
        for key, written in (("app", '"coupled"'), ("ranks", "[1, 2]")):
            if key not in table:
                self.fail(place, f"this [[runs]] has no {key}; write {key} = {written}")
        name = self.text_of(table, "app", place)
        if name not in (names := applications.names()):
            self.fail((*place, "app"), f"unknown application {quoted(name)}{closest(name, names)}")

        def source(key: str) -> tuple[dict[str, Any], str, tuple[str | int, ...], Any]:
            if key in table:
                return table, key, place, None
            return defaults, key, ("defaults",), DEFAULTS[key]

        return Runs(
            app=name,
            line=self.lines.get(place, 0),
            ranks=self.counts(table, "ranks", place),
            threads=self.count(*source("threads")),
            seeds=self.counts(*source("seeds"), least=0),
            repeats=self.count(*source("repeats")),
            allocations=self.count(*source("allocations")),
            seconds=self.time(*source("time")),
            retries=self.count(*source("retries"), least=0),
            options=self.options(name, table, place),
        )

    def options(
        self, name: str, table: dict[str, Any], place: tuple[str | int, ...]
    ) -> dict[str, tuple[Any, ...]]:
        """{section.name: values to combine} of the deck, the guarantee and the options; CPU is a name of its own."""
        crossed = {}
        for key in ("deck", "guarantee"):
            if key in table:
                crossed[f"run.{key}"] = self.values(name, f"run.{key}", table[key], (*place, key))
        if CPU in table:
            crossed[CPU] = self.processors(table[CPU], (*place, CPU))
        options = table.get("options", {})
        if not isinstance(options, dict):
            self.fail((*place, "options"), 'options must be a table: { "section.name" = VALUE }')
        for key, value in _flat(options):
            where = (*place, "options", key if key in options else key.partition(".")[0])
            if key in TAKEN:
                self.fail(
                    where, f"option {key} is for the campaign to say; write the key {TAKEN[key]} instead"
                )
            known = applications.options(name)
            if key not in known:
                self.fail(
                    where, f"{name} has no option {key}{closest(key, [k for k in known if k not in TAKEN])}"
                )
            crossed[key] = self.values(name, key, value, where)
        return crossed

    def processors(self, given: Any, where: tuple[str | int, ...]) -> tuple[str, ...]:
        """The processors to which libraries are held."""
        values = given if isinstance(given, list) else [given]
        known = (THIS, *(processor.name for processor in PROCESSORS))
        for value in values:
            if value not in known:
                self.fail(where, f"cpu {quoted(value)}: choose of {', '.join(known)}")
        if not values or len(set(values)) < len(values):
            self.fail(where, "cpu must be a processor, or a list with each of several once")
        return tuple(values)

    def values(self, name: str, key: str, given: Any, where: tuple[str | int, ...]) -> tuple[Any, ...]:
        option = applications.options(name)[key]
        values = given if isinstance(given, list) else [given]
        if not values:
            self.fail(where, f"{key} is an empty list; give at least one value, or leave it out")
        try:
            converted = tuple(convert(option, value, name) for value in values)
        except UsageError as error:
            self.fail(where, str(error))
        if len(set(converted)) < len(converted):
            self.fail(where, f"{key} has a value twice: {', '.join(map(str, given))}")
        return converted

    def sites(self, tables: Any) -> dict[str, SiteSettings]:
        if not isinstance(tables, dict):
            self.fail(("sites",), "sites must be tables, each written [sites.NAME]")
        settings = {}
        for name, table in tables.items():
            place = ("sites", name)
            self.known(table, SITE, place, f"[sites.{name}]")
            values: dict[str, Any] = {k: self.text_of(table, k, place) for k in SITE[:4] if k in table}
            for key in SITE[4:]:
                if key in table:
                    values[key] = self.count(table, key, place, least=int(key != "gpus_per_node"))
            settings[name] = SiteSettings(**values)
        return settings

    def text_of(self, table: dict[str, Any], key: str, place: tuple[str | int, ...]) -> str:
        value = table[key]
        if not (isinstance(value, str) and value and value.isprintable()):
            self.fail((*place, key), f"{key} must be text on one line, not {quoted(value)}")
        return value

    def count(self, table, key: str, place, default: int | None = None, least: int = 1) -> int:
        value = table.get(key, default)
        if not _whole(value, least, MOST[key]):
            self.fail(
                (*place, key),
                f"{key} must be a whole number, at least {least} and at most {MOST[key]}, not {quoted(value)}",
            )
        return value

    def counts(
        self, table, key: str, place, default: list[int] | None = None, least: int = 1
    ) -> tuple[int, ...]:
        value = table.get(key, default)
        values = value if isinstance(value, list) else [value]
        if not values or not all(_whole(v, least, MOST[key]) for v in values):
            self.fail(
                (*place, key),
                f"{key} must be a list of whole numbers, at least {least} and at most {MOST[key]}, not {quoted(value)}",
            )
        if len(set(values)) < len(values):
            self.fail(
                (*place, key),
                f"{key} has a number twice: {quoted(value)}; for repetitions there is `repeats`",
            )
        return tuple(values)

    def time(self, table, key: str, place, default: str | None = None) -> int:
        value = table.get(key, default)
        try:
            duration = seconds(value) if isinstance(value, str) else 0
        except ValueError:
            duration = 0
        if duration < 1:
            self.fail((*place, key), f'{key} must be a time, written "HH:MM:SS", not {quoted(value)}')
        return duration


def _whole(value: Any, least: int, most: int) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and least <= value <= most


def _flat(options: Mapping[str, Any], prefix: str = "") -> Iterable[tuple[str, Any]]:
    """Yields (section.name, value), written as "time.steps" = 20, time.steps = 20 or time = { steps = 20 }."""
    for key, value in options.items():
        if isinstance(value, dict):
            yield from _flat(value, f"{prefix}{key}.")
        else:
            yield prefix + key, value
