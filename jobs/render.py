"""Renders the batch script of a job for a site, from templates that are readable as scripts."""

from __future__ import annotations

import shlex
import textwrap
from importlib.resources import files

from jobs.job import Job
from jobs.sites import Additions, Line, ShellTemplate, Site, clock

PREFIX = {"slurm": "#SBATCH ", "pbs": "#PBS ", "pjm": "#PJM ", "sge": "#$ "}
ACCOUNT = {"slurm": "--account={account}", "pbs": "-P {account}", "pjm": "-g {account}"}
QUEUE = {
    "slurm": "--partition={queue}",
    "pbs": "-q {queue}",
    "pjm": '-L "rscgrp={queue}"',
    "sge": "-q {queue}",
}
IN_TURN = "repeats across allocations, one after another"
ARRAY = {
    "slurm": (Line("--array=0-{last}%1", IN_TURN),),
    "pbs": (Line("-J 0-{last}%1", IN_TURN),),
    "pjm": (
        Line('--bulk --sparam "0-{last}"', "repeats across allocations; PJM may run some at the same time"),
    ),
    "sge": (Line("-t 1-{count}", IN_TURN), Line("-tc 1", "")),
}


def render(job: Job, site: Site) -> str:
    """The batch script of `job` for `site`. Raises JobError naming the field and the remedy."""
    site.check(job)
    text = files("jobs").joinpath(f"templates/{site.scheduler}.sh").read_text(encoding="utf-8")
    commands = "\n".join(job.commands)
    return ShellTemplate(text).substitute(
        _values(job, site),
        header=_header(job, site),
        name=job.name,
        time=clock(job.seconds),
        output=_output(job, site.scheduler),
        directives="".join(f"{line}\n" for line in _directives(job, site)),
        setup=_setup(job, site),
        commands=textwrap.indent(commands, "    ") if site.scheduler == "local" else commands,
        indices=" ".join(map(str, range(job.array))),
    )


def _values(job: Job, site: Site) -> dict[str, int]:
    return site.values(job.nodes, job.ranks, job.ranks_per_node, job.threads, job.gpus_per_node)


def _header(job: Job, site: Site) -> str:
    """The comment at the head of the script: its job, how to submit it, the page it follows, and unchecked points."""
    nodes, ranks, cores = (
        _plural(job.nodes, "node"),
        _plural(job.ranks_per_node, "rank"),
        _plural(job.threads, "core"),
    )
    submit = site.submit.replace("{account}", job.account or "ACCOUNT")
    if site.scheduler == "local":
        return _comment(f"{job.name}, without a scheduler: {ranks} x {cores}. To run: {submit} SCRIPT")
    lines = [
        f"{job.name}, on {site.name}: {nodes} x {ranks} x {cores}. To submit: {submit} SCRIPT",
        f"Follows {site.page}",
        f"looked at on {site.date}." + (" Not checked there:" if site.unchecked else ""),
        *(f"- {thing}" for thing in site.unchecked),
    ]
    first, *others = map(_comment, lines)
    return "\n".join([first, *_log_directory(job), *others])


def _log_directory(job: Job) -> list[str]:
    """Comment lines with the command that makes the directory of the output.

    The script cannot make it, since the scheduler needs it before the script runs."""
    if job.output == ".":
        return []
    before = "The scheduler writes its output into a directory that it does not make. Before you submit:"
    return [_comment(before), f"#     mkdir -p {job.output}"]


def _plural(count: int, noun: str) -> str:
    return f"{count} {noun}{'s' if count > 1 else ''}"


def _output(job: Job, scheduler: str) -> str:
    """The pattern of the scheduler's output file: job name, job id and, in an array, the number of the element."""
    place = "" if job.output == "." else job.output.rstrip("/") + "/"
    alone, element = {
        "slurm": ("%x_%j.out", "%x_%A_%a.out"),
        "pjm": ("%n.%j.out", "%n.%j.out"),
        "sge": ("$JOB_NAME.$JOB_ID.out", "$JOB_NAME.$JOB_ID.$TASK_ID.out"),
    }.get(scheduler, ("", ""))
    return place + (element if job.array > 1 else alone)


def _directives(job: Job, site: Site) -> list[str]:
    """The directives that the template of the scheduler lacks, each below a comment with its reason."""
    kind = site.scheduler
    if kind == "local":
        return []
    queue = job.queue or site.queue
    account = site.account or ACCOUNT.get(kind)  # None: it is on the command line, see Site.submit
    lines = [
        *([Line(account.replace("{account}", job.account), "")] if job.account and account else []),
        *([Line(QUEUE[kind].replace("{queue}", queue), "")] if queue else []),
        *([Line(f"-o {job.output.rstrip('/')}/", "")] if kind == "pbs" and job.output != "." else []),
    ]
    if job.array > 1:
        lines += [Line(x.text.format(last=job.array - 1, count=job.array), x.why) for x in ARRAY[kind]]
    values = _values(job, site)
    wanted = (*site.directives, *_additions(job, site).directives)
    if job.kind is not None:
        line = site.kinds[job.kind]
        wanted = (*wanted, Line(line.text, f"nodes of one kind, {line.why}"))
    lines += [Line(line.text.format(**values), line.why) for line in wanted]
    return [_below_reason(line, PREFIX[kind]) for line in lines]


def _setup(job: Job, site: Site) -> str:
    """The part of the script before the commands: modules, variables, the Python environment and the doctor."""
    more = _additions(job, site)
    modules = [f"module load {module}" for module in (*site.modules, *more.modules)]
    variables = [_below_reason(line, "export ") for line in (*site.environment, *more.environment)]
    environment = shlex.quote(job.environment.rstrip("/") or "/")
    activate = ShellTemplate(site.staging.strip() or ". @{environment}/bin/activate")
    launch = site.launcher(job.gpus_per_node)
    one = shlex.join(site.command(1, job.ranks_per_node, job.threads, job.gpus_per_node))
    paragraphs = [
        site.setup.strip(),
        "\n".join(modules),
        "\n".join(variables),
        activate.substitute(_values(job, site), environment=environment),
        "# Into the output, before anything can go wrong: what one rank finds here, and what is missing.\n"
        + _below_reason(Line(one, launch.why), "")
        + " \\\n    python -m miniapps doctor ||\n"
        '    echo "doctor: something is missing (above); going on" >&2',
    ]
    return "\n\n".join(paragraph for paragraph in paragraphs if paragraph)


def _additions(job: Job, site: Site) -> Additions:
    return site.with_gpus if job.gpus_per_node else Additions()


def _below_reason(line: Line, before: str) -> str:
    return (_comment(f"{line.why[0].upper()}{line.why[1:]}.") + "\n" if line.why else "") + before + line.text


def _comment(text: str) -> str:
    """`text` as lines of comment; a word longer than a line, such as an address, stays whole."""
    lines = textwrap.wrap(text, 116, break_long_words=False, break_on_hyphens=False)
    return "\n".join(f"# {line}" for line in lines)
