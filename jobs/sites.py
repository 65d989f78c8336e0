"""Reads sites from short TOML files: the requirements of a machine on batch scripts, and how it starts ranks."""

from __future__ import annotations

import datetime
import re
import shlex
import string
from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib.resources import files
from pathlib import Path
from typing import Any

from jobs.job import MOST, PLAIN, Job, JobError
from jobs.words import cut, quoted
from miniapps.runner.config import closest
from miniapps.untrusted.records import TOML_MOST, parse_toml
from miniapps.untrusted.regular import Refused, read_text
from miniapps.untrusted.text import printable

SCHEDULERS = {"slurm": "sbatch", "pbs": "qsub", "pjm": "pjsub", "sge": "qsub", "local": "bash"}
KEYS = {
    **dict.fromkeys(("scheduler", "page", "submit", "queue", "account", "setup", "staging"), str),
    **dict.fromkeys(("account_hint", "account_like"), str),
    **dict.fromkeys(("cores", "threads_per_core", "memory"), int),
    **dict.fromkeys(("modules", "directives", "launch", "unchecked"), list),
    **dict.fromkeys(("limits", "environment", "gpus", "kinds"), dict),
    "date": datetime.date,
    "needs_account": bool,
}
GPU_KEYS = {"per_node": int, **dict.fromkeys(("modules", "directives", "launch"), list), "environment": dict}
HAS_MEANING = {
    "pbs": ":,",
    "sge": ":,",
}  # special characters in the path of a job's output: [HOST:]PATH[,...]
PLACES = {"nodes", "ranks", "ranks_per_node", "threads", "cpus", "gpus_per_node"}
VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
CLOCK = re.compile(r"([0-9]{1,5}):([0-5][0-9]):([0-5][0-9])")
COUNT_MOST = 10**6  # cores, GiB, GPUs of a node
SHELL = ("setup", "staging")  # the keys whose texts have several lines


class ShellTemplate(string.Template):
    """A template in which `@{name}` is replaced; `$` is left to the shell."""

    delimiter = "@"


@dataclass(frozen=True)
class Line:
    """A directive, a variable NAME=value or a command, and the reason for it, which scripts have as a comment."""

    text: str
    why: str


@dataclass(frozen=True)
class Additions:
    """Additions to the script of a job that asks for GPUs."""

    modules: tuple[str, ...] = ()
    environment: tuple[Line, ...] = ()
    directives: tuple[Line, ...] = ()
    launch: Line | None = None  # replaces the launch line of the site


@dataclass(frozen=True)
class Site:
    """One machine; docs/how-to/sites.md explains the keys of its file."""

    name: str
    source: str  # the value for --site: the name, or the full path of the file
    scheduler: str  # slurm, pbs, pjm, sge or local; it chooses the template
    page: str  # address of the page that the file follows
    date: datetime.date  # when the page was read
    launch: Line  # starts ranks; PLACES in braces are filled in
    submit: str = ""  # the command that submits a script; {account} is filled in
    queue: str | None = None
    account: str | None = None  # the directive that names the account; None: the scheduler's own
    needs_account: bool = False
    account_hint: str = ""  # the form of its accounts, in words
    account_like: str = ""  # a regular expression that its accounts match as a whole
    cores: int | None = None  # per node, for programs; None: not known, not checked
    threads_per_core: int = 1  # hardware threads that the scheduler counts as CPUs
    memory: int | None = None  # GiB per node
    gpus: int | None = None  # per node
    limits: Mapping[str, tuple[tuple[int, int], ...]] = field(default_factory=dict)  # queue: (nodes, seconds)
    modules: tuple[str, ...] = ()
    environment: tuple[Line, ...] = ()
    directives: tuple[Line, ...] = ()
    with_gpus: Additions = Additions()
    kinds: Mapping[str, Line] = field(
        default_factory=dict
    )  # of nodes: the directive that asks for one, its processor
    setup: str = ""  # shell, before modules are loaded
    staging: str = ""  # shell: copies @{environment} to the nodes' disks and activates it there
    unchecked: tuple[str, ...] = ()  # facts that could not be found on the page

    def command(self, ranks: int, ranks_per_node: int, threads: int = 1, gpus_per_node: int = 0) -> list[str]:
        """The words to put before a program to start it on `ranks` ranks, on as few nodes as possible."""
        nodes = -(-ranks // ranks_per_node)
        values = self.values(nodes, ranks, min(ranks, ranks_per_node), threads, gpus_per_node)
        return [word.format(**values) for word in shlex.split(self.launcher(gpus_per_node).text)]

    def launcher(self, gpus_per_node: int) -> Line:
        """The command that starts ranks, with unfilled PLACES, and the reason for its options."""
        return (gpus_per_node and self.with_gpus.launch) or self.launch

    def values(
        self, nodes: int, ranks: int, ranks_per_node: int, threads: int, gpus_per_node: int
    ) -> dict[str, int]:
        """{place: value} of PLACES in directives and in the command that starts ranks."""
        cpus = threads * self.threads_per_core
        return {
            "nodes": nodes,
            "ranks": ranks,
            "ranks_per_node": ranks_per_node,
            "threads": threads,
            "cpus": cpus,
            "gpus_per_node": gpus_per_node,
        }

    def limit(self, queue: str | None, nodes: int) -> int | None:
        """The longest time in seconds for a job of `nodes` nodes in `queue`; None if it is not known."""
        steps = self.limits.get(queue or self.queue or "", ())
        return next((seconds for most, seconds in steps if nodes <= most), None)

    def most_nodes(self, queue: str | None) -> int | None:
        """The most nodes of one job in `queue`; None if it is not known."""
        return max((most for most, _ in self.limits.get(queue or self.queue or "", ())), default=None)

    def check(self, job: Job) -> None:
        """Raises JobError, with the numbers, for a job that this site cannot run."""
        if self.needs_account and job.account is None:
            hint = f"; {self.account_hint}" if self.account_hint else ""
            raise JobError(
                f"account: {self.name} needs one, the project that is charged (--account NAME{hint})"
            )
        if wrong := [c for c in HAS_MEANING.get(self.scheduler, "") if c in job.output]:
            raise JobError(
                f"output {quoted(job.output)}: {self.name} takes what is before {quoted(wrong[0])} for a host or "
                "another path; rename the directory, or give the campaign another `out`"
            )
        self.require_kind(job.kind)
        if self.scheduler == "local" and job.nodes > 1:
            raise JobError(f"nodes {job.nodes}: site {self.name} is one machine")
        cores = job.ranks_per_node * job.threads
        if self.cores is not None and job.threads > self.cores:
            raise JobError(
                f"threads {job.threads}: a node of {self.name} has {self.cores} cores; no more than that"
            )
        if self.cores is not None and cores > self.cores:
            raise JobError(
                f"ranks_per_node {job.ranks_per_node} x threads {job.threads} are {cores} cores, and a node of "
                f"{self.name} has {self.cores}: at most {self.cores // job.threads} ranks per node with these threads"
            )
        if self.gpus is not None and job.gpus_per_node > self.gpus:
            raise JobError(f"gpus_per_node {job.gpus_per_node}: a node of {self.name} has {self.gpus}")
        queue = job.queue or self.queue
        most = self.most_nodes(queue)
        if most is not None and job.nodes > most:
            raise JobError(f"nodes {job.nodes}: queue {queue} of {self.name} gives at most {most} to one job")
        limit = self.limit(queue, job.nodes)
        if limit is not None and job.seconds > limit:
            raise JobError(
                f"seconds {job.seconds} ({clock(job.seconds)}): queue {queue} of {self.name} gives a job of "
                f"{job.nodes} nodes at most {clock(limit)}"
            )

    def require_kind(self, kind: str | None) -> None:
        """Raises JobError for a kind of nodes that this site does not have."""
        if kind is not None and kind not in self.kinds:
            known = closest(kind, self.kinds) if self.kinds else "; its file states no [kinds]"
            raise JobError(f"kind {quoted(kind)}: {self.name} has no such nodes{known}")

    def mixed_nodes(self, kind: str | None, allocations: int, nodes: int) -> str | None:
        """A sentence for jobs of any `kind` (None) on a site with nodes of several kinds, and how to ask for one; None
        if all ranks get nodes of one kind."""
        if kind is not None or len(self.kinds) < 2 or allocations * nodes < 2:
            return None
        among = "; ".join(f"{name}: {line.why}" for name, line in self.kinds.items())
        name, line = next(iter(self.kinds.items()))
        who = "a job may get nodes" if nodes > 1 else "allocations may get nodes"
        return (
            f'{who} of {len(self.kinds)} kinds ({among}), and no guarantee covers both; ask for one: kind = "{name}" '
            f"in [sites.{self.name}] of the campaign, or --kind {name} ({line.text})"
        )

    def account_warning(self, job: Job) -> str | None:
        """A sentence on an account that does not have the form of this site's accounts; None if it has."""
        if not job.account or not self.account_like or re.fullmatch(self.account_like, job.account):
            return None
        return f"account {job.account} does not look like one of {self.name}: {self.account_hint}"


def clock(seconds: int) -> str:
    """`seconds` as HH:MM:SS with any number of hours, which all these schedulers read."""
    return f"{seconds // 3600:02d}:{seconds // 60 % 60:02d}:{seconds % 60:02d}"


def seconds(text: str) -> int:
    """The seconds in `text`, HH:MM:SS: the inverse of `clock`. Raises ValueError."""
    match = CLOCK.fullmatch(text)
    if match is None:
        raise ValueError(f"{quoted(text)} is not HH:MM:SS, at most 99999:59:59")
    hours, minutes, rest = map(int, match.groups())
    return 3600 * hours + 60 * minutes + rest


def names() -> list[str]:
    """The sites that come with the program."""
    return sorted(
        path.name[:-5] for path in files("jobs").joinpath("sites").iterdir() if path.name.endswith(".toml")
    )


def site(name: str) -> Site:
    """The site of this name, or of this file if the name ends in .toml. Raises JobError."""
    if name.endswith(".toml"):
        path = Path(name)
        try:
            text = read_text(path, TOML_MOST, links=True)
            return read(path.stem, text, printable(str(path)), source=str(path.resolve()))
        except (Refused, OSError) as error:
            raise JobError(f"site {printable(name)}: cannot be read: {error}") from None
    if name not in names():
        raise JobError(f"site {quoted(name)}: not known{closest(name, names())}; or give a file, ./NAME.toml")
    text = files("jobs").joinpath(f"sites/{name}.toml").read_text(encoding="utf-8")
    return read(name, text, f"jobs/sites/{name}.toml")


def read(name: str, text: str, where: str, source: str | None = None) -> Site:
    """The site that `text`, TOML, describes. Raises JobError that names `where` and the key."""
    try:
        content = parse_toml(text)
    except ValueError as error:  # TOMLDecodeError among them
        raise JobError(f"site {where}: not TOML: {cut(str(error))}") from None
    try:
        return _site(name, source or name, content)
    except ValueError as error:
        raise JobError(f"site {where}: {cut(str(error))}") from None


def _site(name: str, source: str, content: dict[str, Any]) -> Site:
    _known(content, KEYS, "")
    for key, value in content.items():
        _printable(value, key, keep="\n\t" if key in SHELL else "")
    for key in ("scheduler", "page", "date", "launch"):
        if key not in content:
            raise ValueError(f"{key} is missing")
    if content["scheduler"] not in SCHEDULERS:
        raise ValueError(
            f"scheduler {quoted(content['scheduler'])}{closest(content['scheduler'], SCHEDULERS)}"
        )
    if not PLAIN.fullmatch(name):
        raise ValueError(f"the file's name, {quoted(name)}, may have letters, digits, '_', '-' and '.' only")
    _staging(content.get("staging", ""))
    _account_pattern(content)
    gpus = content.pop("gpus", {})
    _known(gpus, GPU_KEYS, "gpus.")
    plain = {key: value for key, value in content.items() if not isinstance(value, dict | list)}
    return Site(
        name=name,
        source=source,
        **{"submit": SCHEDULERS[content["scheduler"]], **plain},
        gpus=gpus.get("per_node"),
        launch=_launch(content["launch"], "launch"),
        limits={
            queue: _limits(steps, f"limits.{queue}") for queue, steps in content.get("limits", {}).items()
        },
        modules=_words(content.get("modules", []), "modules"),
        environment=_variables(content.get("environment", {}), "environment"),
        directives=_lines(content.get("directives", []), "directives"),
        with_gpus=Additions(
            modules=_words(gpus.get("modules", []), "gpus.modules"),
            environment=_variables(gpus.get("environment", {}), "gpus.environment"),
            directives=_lines(gpus.get("directives", []), "gpus.directives"),
            launch=_launch(gpus["launch"], "gpus.launch") if "launch" in gpus else None,
        ),
        kinds=_kinds(content.get("kinds", {})),
        unchecked=_words(content.get("unchecked", []), "unchecked"),
    )


def _known(content: Mapping[str, Any], keys: Mapping[str, type], prefix: str) -> None:
    for key, value in content.items():
        if key not in keys:
            raise ValueError(f"no key {prefix}{cut(key, 80)}{closest(key, keys)}")
        if type(value) is not keys[key]:
            raise ValueError(f"{prefix}{key} = {quoted(value)}: must be of type {keys[key].__name__}")
        least = 0 if key == "per_node" else 1  # nodes without GPUs
        if type(value) is int and not least <= value <= COUNT_MOST:
            raise ValueError(f"{prefix}{key} = {quoted(value)}: at least {least} and at most {COUNT_MOST}")


def _printable(value: Any, key: str, keep: str = "") -> None:
    """Raises ValueError for text in `value`, at any depth, that a terminal would obey or hide, or that spans lines."""
    if isinstance(value, str):
        if printable(value, keep) != value:
            raise ValueError(f"{key}: {quoted(value)} has control characters; scripts are shown as they are")
    elif isinstance(value, dict | list):
        for inner in value.items() if isinstance(value, dict) else enumerate(value):
            for item in inner:
                _printable(item, key)


def _words(values: list, key: str) -> tuple[str, ...]:
    if not all(isinstance(value, str) for value in values):
        raise ValueError(f"{key}: a list of texts")
    return tuple(values)


def _line(value: Any, key: str) -> Line:
    if not (isinstance(value, list) and len(value) == 2 and all(isinstance(v, str) for v in value)):
        raise ValueError(f'{key} = {quoted(value)}: written ["TEXT", "the reason for it"], each on one line')
    try:
        parts = list(string.Formatter().parse(value[0]))
    except ValueError as error:
        raise ValueError(f"{key} = {quoted(value[0])}: {error}") from None
    for _, place, width, conversion in parts:
        if place is None:
            continue
        if place not in PLACES:
            raise ValueError(f"{key} = {quoted(value[0])}: no {{{cut(place, 80)}}}{closest(place, PLACES)}")
        if width or conversion:  # {ranks:>1000000000} is a gigabyte
            raise ValueError(f"{key} = {quoted(value[0])}: {{{place}}} as it is, without ':' and '!'")
    return Line(*value)


def _launch(value: Any, key: str) -> Line:
    line = _line(value, key)
    try:
        shlex.split(line.text)
    except ValueError as error:
        raise ValueError(f"{key} = {quoted(line.text)}: {error}") from None
    return line


def _staging(text: str) -> None:
    template, known = ShellTemplate(text), {"environment", *PLACES}
    if not template.is_valid() or set(template.get_identifiers()) - known:
        raise ValueError(
            f"staging: '@' only in {', '.join(f'@{{{place}}}' for place in sorted(known))}; @@ is '@'"
        )


def _account_pattern(content: Mapping[str, Any]) -> None:
    if "account_like" not in content:
        return
    if "account_hint" not in content:
        raise ValueError("account_like: needs account_hint, the same in words")
    try:
        re.compile(content["account_like"])
    except re.error as error:
        raise ValueError(f"account_like = {quoted(content['account_like'])}: {error}") from None


def _lines(values: list, key: str) -> tuple[Line, ...]:
    return tuple(_line(value, key) for value in values)


def _kinds(values: Mapping[str, Any]) -> dict[str, Line]:
    for name in values:
        if not PLAIN.fullmatch(name):
            raise ValueError(f"kinds.{cut(name, 80)}: a name has letters, digits, '_', '-' and '.' only")
    return {name: _line(value, f"kinds.{name}") for name, value in values.items()}


def _variables(values: Mapping[str, Any], key: str) -> tuple[Line, ...]:
    lines = []
    for name, value in values.items():
        if not VARIABLE.fullmatch(name):
            raise ValueError(f"{key}.{cut(name, 80)}: not a variable's name")
        line = _line(value, f"{key}.{name}")
        lines.append(Line(f"{name}={shlex.quote(line.text)}", line.why))
    return tuple(lines)


def _limits(steps: Any, key: str) -> tuple[tuple[int, int], ...]:
    try:
        limits = tuple(sorted((nodes, seconds(time)) for nodes, time in steps))
        if all(type(nodes) is int and 1 <= nodes <= MOST["nodes"] for nodes, _ in limits):
            return limits
    except (TypeError, ValueError):
        pass
    written = '[[NODES, "HH:MM:SS"], ...], the longest time up to NODES'
    raise ValueError(f"{cut(key, 80)} = {quoted(steps)}: written {written}")
