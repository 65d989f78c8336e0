"""Plans a campaign: its tasks, their places and order, and the most that they can cost."""

from __future__ import annotations

import contextlib
import hashlib
import json
import math
import random
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import product
from pathlib import Path
from shlex import quote
from typing import Any

from jobs import applications
from jobs.campaign import CPU, THIS, Campaign, CampaignError, Runs
from jobs.job import Job, JobError
from jobs.sites import Site
from jobs.words import cut
from miniapps.untrusted.regular import Refused

START_SECONDS = 60  # time of a batch job before its first task: environment, modules, trying the launcher
REPORT_SECONDS = 1800
SHORT = 24  # characters of a value in a name
NAME_MOST = 240  # bytes of a task's name: file names hold 255, and logs and failed attempts append a number


@dataclass(frozen=True)
class Task:
    """One launch of one application. Two tasks are the same if their `key` is equal."""

    app: str
    ranks: int
    threads: int
    seed: int
    repeats: int
    allocation: int
    options: tuple[tuple[str, Any], ...]  # (section.name, value), sorted
    seconds: int  # limit
    retries: int
    varied: tuple[str, ...]  # the options that have several values in the campaign
    line: int

    @property
    def key(self) -> tuple[Any, ...]:
        return (*self.configuration, self.seed, self.allocation)

    @property
    def configuration(self) -> tuple[Any, ...]:
        """The key shared by tasks that differ only in seed and allocation."""
        return self.app, self.ranks, self.threads, self.repeats, self.options

    @cached_property
    def id(self) -> str:
        """The readable name of the task, independent of other tasks; its last 8 digits are a hash of `key`."""
        digest = hashlib.blake2b(json.dumps(self.key).encode(), digest_size=4).hexdigest()
        values = [_plain(value)[:SHORT] for name, value in self.options if name in self.varied]
        return "-".join([self.app, *values, f"{self.ranks}r", f"s{self.seed}", f"a{self.allocation}", digest])

    @property
    def label(self) -> str:
        """The options in words."""
        return options_text(self.options)

    @property
    def cpu(self) -> str:
        """The processor to which libraries are held; THIS for none."""
        return str(dict(self.options).get(CPU, THIS))

    @property
    def arguments(self) -> list[str]:
        """The arguments of `python -m miniapps.APP`, without `--out`."""
        settings = {
            **{name: value for name, value in self.options if name != CPU},
            "run.seed": self.seed,
            "run.repeats": self.repeats,
            "run.threads": self.threads,
            "run.progress": False,
        }
        return [word for key, value in settings.items() for word in ("--set", f"{key}={_text(value)}")]


@dataclass(frozen=True)
class Plan:
    """The tasks of a campaign on one site; the tasks of each allocation are in the order in which they run."""

    campaign: Campaign
    site: str
    site_argument: str  # the value for --site, valid in any directory
    tasks: tuple[Task, ...]
    nodes: int  # of an allocation
    ranks_per_node: Mapping[int, int]  # by threads per rank
    seconds: tuple[int, ...]  # limit of each allocation
    mixed: str = ""  # a sentence if jobs may get nodes of several kinds

    def of(self, allocation: int) -> list[Task]:
        """The tasks of one allocation."""
        return [task for task in self.tasks if task.allocation == allocation]

    def nodes_of(self, task: Task) -> int:
        """The nodes that a task occupies."""
        return -(-task.ranks // self.ranks_per_node[task.threads])

    def node_hours(self, allocation: int | None = None) -> float:
        """The most node-hours of `allocation` (None: of all), with all nodes up to the time limit."""
        limits = self.seconds if allocation is None else [self.seconds[allocation]]
        return self.nodes * sum(limits) / 3600

    def require_budget(self) -> None:
        """Raises CampaignError if the campaign can cost more than its budget."""
        budget = self.campaign.budget_node_hours
        if budget is not None and self.node_hours() > budget:
            raise CampaignError(
                f"{self.campaign.path}: {self.node_hours():.2f} node-hours at most on {self.site}, and "
                f"budget_node_hours is {budget:g}; take fewer ranks, seeds or allocations, a shorter time or limit, "
                "or raise the budget"
            )


def plan(campaign: Campaign, site: Site | None = None, named: str | None = None) -> Plan:
    """The plan of `campaign` on `site` (None: this machine); `named`: the value of --site, a name or a file.

    Raises CampaignError for a configuration that its application refuses, for a task that needs too many nodes, for
    the same task twice, and for a limit too short for a task.
    """
    name = site.name if site else "local"
    settings = campaign.at(name)
    tasks = [task for runs in campaign.runs for task in _tasks(runs)]
    _check_once(campaign, tasks)
    per_node = {
        threads: _ranks_per_node(campaign, site, threads, max(task.ranks for task in tasks))
        for threads in sorted({task.threads for task in tasks})
    }
    most = settings.nodes or (site.most_nodes(settings.queue) if site else 1)
    for task in tasks:
        nodes = -(-task.ranks // per_node[task.threads])
        if most is not None and nodes > most:
            raise CampaignError(
                f"{campaign.path}, line {task.line}: {task.ranks} ranks, {per_node[task.threads]} per node, need "
                f"{nodes} nodes, and an allocation on {name} has {most}; ask for fewer ranks, more ranks_per_node, or "
                f"more nodes in [sites.{name}]"
            )
    _check_with_applications(campaign, tasks)
    shared: list[list[Task]] = [[] for _ in range(campaign.allocations)]
    for task in sorted(tasks, key=lambda task: task.id):
        shared[task.allocation].append(task)
    for allocation, own in enumerate(shared):
        random.Random(f"{campaign.shuffle} {allocation}").shuffle(own)
    nodes = settings.nodes or max(-(-task.ranks // per_node[task.threads]) for task in tasks)
    mixed = None
    if site is not None:
        try:
            site.require_kind(settings.kind)
        except JobError as error:
            raise CampaignError(f"{campaign.path}: [sites.{name}]: {error}") from None
        mixed = site.mixed_nodes(settings.kind, campaign.allocations, nodes)
    return Plan(
        campaign=campaign,
        site=name,
        site_argument=str(Path(named).absolute()) if named and named.endswith(".toml") else name,
        tasks=tuple(task for own in shared for task in own),
        nodes=nodes,
        ranks_per_node=per_node,
        seconds=_limits(campaign, shared),
        mixed=mixed or "",
    )


def options_text(options: Iterable[tuple[str, Any]]) -> str:
    """Options as `name=value`; options that all applications share are without their section `run`."""
    return " ".join(f"{name.removeprefix('run.')}={_text(value)}" for name, value in options)


def job(
    plan: Plan,
    *,
    account: str | None = None,
    queue: str | None = None,
    environment: str | None = None,
    kind: str | None = None,
    retry_failed: bool = False,
) -> Job:
    """The batch job that runs the campaign, one array element per allocation. Raises JobError.

    Arguments that are not None take precedence over the campaign's settings for the site. `retry_failed` also runs
    tasks that failed for good."""
    settings = plan.campaign.at(plan.site)
    threads = max(plan.ranks_per_node)
    file = quote(str(plan.campaign.path))
    return Job(
        name=plan.campaign.name,
        nodes=plan.nodes,
        ranks_per_node=min(plan.ranks_per_node[threads], _needed(plan, threads)),
        threads=threads,
        seconds=max(plan.seconds),
        account=account or settings.account,
        queue=queue or settings.queue,
        environment=environment or settings.environment or "",
        commands=(
            f'python -m jobs run {file} --site {quote(plan.site_argument)} --allocation "$FPNA_ARRAY_INDEX"'
            + " --retry-failed" * retry_failed,
        ),
        array=plan.campaign.allocations,
        output=str(plan.campaign.out / "logs"),
        gpus_per_node=settings.gpus_per_node,
        kind=kind or settings.kind,
    )


def report_job(plan: Plan, job: Job) -> Job:
    """The job that makes the report on the campaign after `job`."""
    return replace(
        job,
        name=f"{job.name}-report",
        nodes=1,
        ranks_per_node=1,
        threads=1,
        gpus_per_node=0,
        kind=None,
        seconds=REPORT_SECONDS,
        commands=(f"python -m jobs collect {quote(str(plan.campaign.path))}",),
        array=1,
    )


def _tasks(runs: Runs) -> list[Task]:
    names = sorted(runs.options)
    varied = tuple(n for n in names if len(runs.options[n]) > 1 or n in ("run.deck", "run.guarantee"))
    return [
        Task(
            app=runs.app,
            ranks=ranks,
            threads=runs.threads,
            seed=seed,
            repeats=runs.repeats,
            allocation=allocation,
            options=tuple(zip(names, values, strict=True)),
            seconds=runs.seconds,
            retries=runs.retries,
            varied=varied,
            line=runs.line,
        )
        for values in product(*(runs.options[name] for name in names))
        for ranks in runs.ranks
        for seed in runs.seeds
        for allocation in range(runs.allocations)
    ]


def _check_once(campaign: Campaign, tasks: list[Task]) -> None:
    """Raises CampaignError for a task that occurs twice, and for names that no directory can have."""
    seen: dict[tuple[Any, ...], Task] = {}
    names: dict[str, Task] = {}
    for task in tasks:
        if first := seen.get(task.key):
            raise CampaignError(
                f"{campaign.path}, line {task.line}: {task.app} on {task.ranks} ranks with seed {task.seed} "
                f"({cut(task.label) or 'defaults'}) is in the [[runs]] of line {first.line} already; leave one out, "
                "and for more repetitions use repeats, seeds or allocations"
            )
        seen[task.key] = task
        if (size := len(task.id.encode())) > NAME_MOST:
            raise CampaignError(
                f"{campaign.path}, line {task.line}: names of {size} bytes, and a directory's has at most {NAME_MOST}: "
                "every option with several values is in it; give fewer options several values in one [[runs]]"
            )
        if first := names.get(task.id):
            raise CampaignError(
                f"{campaign.path}, line {task.line}: a task has the name of one of line {first.line}, {task.id}, by "
                "chance; change any of its options"
            )
        names[task.id] = task


def _check_with_applications(campaign: Campaign, tasks: list[Task]) -> None:
    """Lets the applications check every configuration, without starting them. Raises CampaignError."""
    with contextlib.chdir(campaign.path.parent):  # paths in options are relative to the campaign
        for configuration, task in {task.configuration: task for task in tasks}.items():
            try:
                applications.check(task.app, task.arguments, task.ranks)
            except (applications.Refusal, Refused) as error:
                raise CampaignError(
                    f"{campaign.path}, line {task.line}: {configuration[0]} on {task.ranks} "
                    f"rank{'s' * (task.ranks > 1)} ({cut(task.label) or 'defaults'}): {cut(str(error), 4000)}"
                ) from None


def _ranks_per_node(campaign: Campaign, site: Site | None, threads: int, largest: int) -> int:
    """The ranks per node with `threads` threads each; on this machine, where ranks may share cores, `largest`."""
    if site is None or site.scheduler == "local":
        return largest
    cores = site.cores
    if asked := campaign.at(site.name).ranks_per_node:
        return asked
    if cores is None:
        raise CampaignError(
            f"{campaign.path}: how many ranks fit on a node of {site.name} is not known; add [sites.{site.name}] "
            "with ranks_per_node = N"
        )
    if threads > cores:
        raise CampaignError(
            f"{campaign.path}: threads {threads}: a node of {site.name} has {cores} cores; use at most {cores}"
        )
    return cores // threads


def _needed(plan: Plan, threads: int) -> int:
    """The ranks per node, with `threads` threads each, that give every task enough cores."""
    cores = (min(task.ranks, plan.ranks_per_node[task.threads]) * task.threads for task in plan.tasks)
    return max(-(-each // threads) for each in cores)


def _limits(campaign: Campaign, shared: list[list[Task]]) -> tuple[int, ...]:
    """The time limit of each allocation in seconds: START_SECONDS and its tasks' limits, at most the campaign's."""
    most = [sum(task.seconds for task in own) + START_SECONDS for own in shared]
    if campaign.limit_seconds is None:
        return tuple(most)
    longest = max((task for own in shared for task in own), key=lambda task: task.seconds)
    if longest.seconds + START_SECONDS > campaign.limit_seconds:
        raise CampaignError(
            f"{campaign.path}, line {longest.line}: time of {longest.seconds} s and {START_SECONDS} s to start do not "
            f"fit into the limit of {campaign.limit_seconds} s of an allocation; shorten time or raise limit"
        )
    return tuple(min(campaign.limit_seconds, seconds) for seconds in most)


def _text(value: Any) -> str:
    """`value` as text for `--set`."""
    if isinstance(value, tuple):
        return " ".join(map(_text, value))
    if isinstance(value, bool) or value is None:
        return str(value).lower()
    return repr(value) if isinstance(value, float) and math.isfinite(value) else str(value)


def _plain(value: Any) -> str:
    """`value` as a part of a name."""
    return "".join(c if c.isalnum() or c in "._" else "_" for c in _text(value)).strip("._") or "_"
