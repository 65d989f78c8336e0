"""Job and site to the text of a batch script, from templates that stay readable as scripts."""

from __future__ import annotations

import shlex
from importlib.resources import files
from string import Template

from jobs.job import Job
from jobs.sites import Additions, Line, Site, clock

PREFIX = {"slurm": "#SBATCH", "pbs": "#PBS", "pjm": "#PJM", "sge": "#$", "local": "#"}
# How each scheduler is told the account, the queue and the array's last index, unless the site's file says more.
ACCOUNT = {"slurm": "--account={account}", "pbs": "-P {account}", "pjm": "-g {account}"}
QUEUE = {
    "slurm": "--partition={queue}",
    "pbs": "-q {queue}",
    "pjm": '-L "rscgrp={queue}"',
    "sge": "-q {queue}",
}
ARRAY = {
    "slurm": ("--array=0-{last}%1", "repeats across allocations: %1 lets them run one after another"),
    "pbs": ("-J 0-{last}%1", "repeats across allocations: %1 lets them run one after another"),
    "sge": ("-t 1-{count}", "repeats across allocations; -tc 1 lets them run one after another"),
}


class ShellTemplate(Template):
    """`@{name}` is filled in; `$` belongs to the shell."""

    delimiter = "@"


def render(job: Job, site: Site) -> str:
    """The batch script of `job` for `site`. Raises JobError naming the field and the remedy."""
    site.check(job)
    return _template(site.scheduler).substitute(
        name=job.name,
        site=site.name,
        page=site.page,
        date=site.date,
        submit=site.submit.format(account=job.account or "ACCOUNT"),
        nodes=job.nodes,
        ranks=job.ranks,
        ranks_per_node=job.ranks_per_node,
        threads=job.threads,
        time=clock(job.seconds),
        directives=_directives(job, site),
        setup=_setup(job, site),
        commands="\n".join(job.commands),
        indices=" ".join(map(str, range(job.array))),
        output=_output(job, site),
    )


def _template(name: str) -> ShellTemplate:
    return ShellTemplate(
        files("jobs").joinpath(f"templates/{name}.sh").read_text(encoding="utf-8").rstrip() + "\n"
    )


def _directives(job: Job, site: Site) -> str:
    """The directives that not every job of this scheduler has, each below the reason for it."""
    lines = []
    account = site.account or ACCOUNT.get(site.scheduler)
    if job.account and account:
        lines.append(Line(account.replace("{account}", job.account), ""))
    queue = job.queue or site.queue
    if queue and site.scheduler in QUEUE:
        lines.append(Line(QUEUE[site.scheduler].replace("{queue}", queue), ""))
    if job.array > 1 and site.scheduler in ARRAY:
        text, why = ARRAY[site.scheduler]
        lines.append(Line(text.format(last=job.array - 1, count=job.array), why))
    more = _additions(job, site).directives
    lines += [Line(_fill(line.text, job), line.why) for line in (*site.directives, *more)]
    return "\n".join(_below_reason(line, PREFIX[site.scheduler] + " ") for line in lines)


def _setup(job: Job, site: Site) -> str:
    """Modules, variables, the Python environment and the doctor's word: what comes before the commands."""
    more = _additions(job, site)
    parts = []
    if modules := (*site.modules, *more.modules):
        parts.append("\n".join(f"module load {module}" for module in modules))
    if variables := (*site.environment, *more.environment):
        parts.append("\n".join(_below_reason(line, "export ") for line in variables))
    environment = shlex.quote(job.environment)
    if site.staging:
        parts.append(ShellTemplate(site.staging.strip()).substitute(environment=environment, nodes=job.nodes))
    else:
        parts.append(f". {environment}/bin/activate")
    doctor = shlex.join(site.command(1, job.ranks_per_node, job.threads, job.gpus_per_node))
    parts.append(
        "# Into the job's output, before anything can go wrong: what one rank finds here, and what is missing.\n"
        f"{doctor} python -m miniapps doctor ||\n"
        '    echo "doctor: something is missing (above); going on" >&2'
    )
    parts.append(f"# Ranks are started by {site.launch.text.split()[0]}: {site.launch.why}.")
    return "\n\n".join(parts)


def _output(job: Job, site: Site) -> str:
    """What the scheduler names the job's output: name, job and, in an array, element."""
    return {"slurm": f"{job.output}/%x_%A_%a.out" if job.array > 1 else f"{job.output}/%x_%j.out"}.get(
        site.scheduler, ""
    ).removeprefix("./")


def _additions(job: Job, site: Site) -> Additions:
    return site.with_gpus if job.gpus_per_node else Additions()


def _fill(text: str, job: Job) -> str:
    return text.format(
        name=job.name,
        nodes=job.nodes,
        ranks=job.ranks,
        ranks_per_node=job.ranks_per_node,
        threads=job.threads,
        gpus_per_node=job.gpus_per_node,
    )


def _below_reason(line: Line, before: str) -> str:
    return (f"# {line.why[0].upper()}{line.why[1:]}.\n" if line.why else "") + before + line.text
