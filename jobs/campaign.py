"""Campaigns: a TOML file that says which applications to run, on how many ranks, how often, read and checked.

Everything that can be found wrong is found here, before a job waits in a queue for hours; every error names the
line of the file. See docs/campaigns.md for the keys.
"""

from __future__ import annotations

import importlib
import re
import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

from jobs.sites import seconds
from miniapps.__main__ import applications
from miniapps.commandline import known_options
from miniapps.config import Option, UsageError, closest, convert

NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]*")
DEFAULTS = {"allocations": 1, "repeats": 1, "seeds": [1], "time": "00:20:00", "retries": 1, "threads": 1}
TOP = ("name", "out", "shuffle", "budget_node_hours", "limit", "defaults", "runs", "sites")
RUN = ("app", "ranks", "deck", "guarantee", "options", *DEFAULTS)
SITE = ("account", "queue", "environment", "nodes", "ranks_per_node", "gpus_per_node")
# Options that a campaign decides itself, and the key that is meant.
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
    """A campaign that cannot be; the message names the file, the line and what can."""


@dataclass(frozen=True)
class SiteSettings:
    """What this campaign wants of one site; None: what the site or the command line says."""

    account: str | None = None
    queue: str | None = None
    environment: str | None = None
    nodes: int | None = None  # of an allocation; None: as many as the largest task needs
    ranks_per_node: int | None = None
    gpus_per_node: int = 0


@dataclass(frozen=True)
class Runs:
    """One [[runs]]: configurations of one application, all values of which are crossed."""

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
        """Allocations in which it runs."""
        return max(runs.allocations for runs in self.runs)


def read(path: str | Path) -> Campaign:
    """The campaign in the file `path`. Raises CampaignError."""
    path = Path(path)
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or error
        raise CampaignError(f"{path}: cannot be read: {reason}; give the TOML file of a campaign") from None
    try:
        content = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise CampaignError(f"{path}: not valid TOML: {error}") from None
    return _Reader(path, text).campaign(content)


def line_of(text: str, keys: Iterable[str | int]) -> int | None:
    """The line, from 1, on which the statement begins that gives `keys` (names, and numbers in arrays of tables) a
    value; None where there is none. `text` is valid TOML.

    It is the first complete statement after which the parser itself finds the key, whatever the syntax.
    """
    keys = tuple(keys)
    lines = text.splitlines()
    before = 0
    for count in range(1, len(lines) + 1):
        try:
            content: Any = tomllib.loads("\n".join(lines[:count]) + "\n")
        except tomllib.TOMLDecodeError:  # within a statement of several lines
            continue
        try:
            for key in keys:
                content = content[key]
        except (LookupError, TypeError):
            before = count
            continue
        return before + 1
    return None


@cache
def app(name: str) -> Any:
    """The application of this name, as `miniapps.main.App`."""
    return importlib.import_module(f"miniapps.{name}").APP


@cache
def app_options(name: str) -> dict[str, Option]:
    """{section.name: option} of an application."""
    return {option.key: option for option in known_options(app(name))}


class _Reader:
    """Checks one file; knows where its keys are."""

    def __init__(self, path: Path, text: str):
        self.path, self.text = path, text

    def fail(self, keys: tuple[str | int, ...], message: str):
        line = next((found for n in range(len(keys), 0, -1) if (found := line_of(self.text, keys[:n]))), None)
        raise CampaignError(f"{self.path}{f', line {line}' if line else ''}: {message}")

    def known(self, table: Any, names: Iterable[str], place: tuple[str | int, ...], what: str) -> None:
        if not isinstance(table, dict):
            self.fail(place, f"{place[-1]} must be a table, {what}")
        for key in table:
            if key not in names:
                self.fail((*place, key), f"unknown key {key!r} in {what}{closest(key, names)}")

    def campaign(self, content: dict[str, Any]) -> Campaign:
        self.known(content, TOP, (), "a campaign")
        for key in ("name", "out", "runs"):
            if key not in content:
                raise CampaignError(f"{self.path}: {key} is missing; see docs/campaigns.md")
        name = self.text_of(content, "name", ())
        if not NAME.fullmatch(name):
            self.fail(
                ("name",), f"name {name!r}: letters, digits, '_', '-' and '.' only, no '-' or '.' in front"
            )
        out = self.text_of(content, "out", ())
        defaults = content.get("defaults", {})
        self.known(defaults, DEFAULTS, ("defaults",), "[defaults]")
        runs = content["runs"]
        if not (isinstance(runs, list) and runs and all(isinstance(table, dict) for table in runs)):
            self.fail(("runs",), "runs must be tables, each written [[runs]]")
        budget = content.get("budget_node_hours")
        if budget is not None and (
            isinstance(budget, bool) or not isinstance(budget, int | float) or not budget > 0
        ):
            self.fail(("budget_node_hours",), f"budget_node_hours {budget!r}: a number of hours above 0")
        return Campaign(
            name=name,
            path=self.path.absolute(),
            out=(self.path.absolute().parent / out).resolve(),
            shuffle=self.count(content, "shuffle", (), default=1, least=0),
            budget_node_hours=budget,
            limit_seconds=self.time(content, "limit", ()) if "limit" in content else None,
            runs=tuple(self.runs(table, n, defaults) for n, table in enumerate(runs)),
            sites=self.sites(content.get("sites", {})),
        )

    def runs(self, table: dict[str, Any], number: int, defaults: dict[str, Any]) -> Runs:
        place = ("runs", number)
        self.known(table, RUN, place, "[[runs]]")
        for key, example in (("app", '"coupled"'), ("ranks", "[1, 2]")):
            if key not in table:
                self.fail(place, f"this [[runs]] has no {key}; write {key} = {example}")
        name = self.text_of(table, "app", place)
        if name not in (names := applications()):
            self.fail((*place, "app"), f"unknown application {name!r}{closest(name, names)}")

        def source(key: str) -> tuple[dict[str, Any], str, tuple[str | int, ...], Any]:
            if key in table:
                return table, key, place, None
            return defaults, key, ("defaults",), DEFAULTS[key]

        return Runs(
            app=name,
            line=line_of(self.text, place) or 0,
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
        """Deck, guarantee and options, each as the values that are crossed."""
        found = {}
        for key in ("deck", "guarantee"):
            if key in table:
                found[f"run.{key}"] = self.values(name, f"run.{key}", table[key], (*place, key))
        options = table.get("options", {})
        if not isinstance(options, dict):
            self.fail((*place, "options"), 'options must be a table: { "section.name" = VALUE }')
        for key, value in _flat(options):
            where = (*place, "options", key if key in options else key.partition(".")[0])
            if key in TAKEN:
                self.fail(
                    where, f"option {key} is for the campaign to say; write the key {TAKEN[key]} instead"
                )
            known = app_options(name)
            if key not in known:
                self.fail(
                    where, f"{name} has no option {key}{closest(key, [k for k in known if k not in TAKEN])}"
                )
            found[key] = self.values(name, key, value, where)
        return found

    def values(self, name: str, key: str, given: Any, where: tuple[str | int, ...]) -> tuple[Any, ...]:
        option = app_options(name)[key]
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
        found = {}
        for name, table in tables.items():
            place = ("sites", name)
            self.known(table, SITE, place, f"[sites.{name}]")
            values: dict[str, Any] = {k: self.text_of(table, k, place) for k in SITE[:3] if k in table}
            for key in SITE[3:]:
                if key in table:
                    values[key] = self.count(table, key, place, least=int(key != "gpus_per_node"))
            found[name] = SiteSettings(**values)
        return found

    def text_of(self, table: dict[str, Any], key: str, place: tuple[str | int, ...]) -> str:
        value = table[key]
        if not (isinstance(value, str) and value and value.isprintable()):
            self.fail((*place, key), f"{key} must be text on one line, not {value!r}")
        return value

    def count(self, table, key: str, place, default: int | None = None, least: int = 1) -> int:
        value = table.get(key, default)
        if isinstance(value, bool) or not isinstance(value, int) or value < least:
            self.fail((*place, key), f"{key} must be a whole number, at least {least}, not {value!r}")
        return value

    def counts(
        self, table, key: str, place, default: list[int] | None = None, least: int = 1
    ) -> tuple[int, ...]:
        value = table.get(key, default)
        values = value if isinstance(value, list) else [value]
        if not values or any(isinstance(v, bool) or not isinstance(v, int) or v < least for v in values):
            self.fail(
                (*place, key), f"{key} must be a list of whole numbers, at least {least}, not {value!r}"
            )
        if len(set(values)) < len(values):
            self.fail(
                (*place, key), f"{key} has a number twice: {value!r}; for repetitions there is `repeats`"
            )
        return tuple(values)

    def time(self, table, key: str, place, default: str | None = None) -> int:
        value = table.get(key, default)
        try:
            found = seconds(value) if isinstance(value, str) else 0
        except ValueError:
            found = 0
        if found < 1:
            self.fail((*place, key), f'{key} must be a time, written "HH:MM:SS", not {value!r}')
        return found


def _flat(options: Mapping[str, Any], prefix: str = "") -> Iterable[tuple[str, Any]]:
    """(section.name, value): written "time.steps" = 20, time.steps = 20 or time = { steps = 20 }."""
    for key, value in options.items():
        if isinstance(value, dict):
            yield from _flat(value, f"{prefix}{key}.")
        else:
            yield prefix + key, value
