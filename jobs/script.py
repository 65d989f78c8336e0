"""The command `python -m jobs render`: prints batch scripts, or writes them to files."""

from __future__ import annotations

import argparse
import shlex
import sys
from dataclasses import replace
from pathlib import Path

from jobs import applications
from jobs.files import is_folder
from jobs.job import Job, JobError
from jobs.render import render
from jobs.sites import Site, names, seconds, site
from jobs.words import cut, quoted
from miniapps.runner.config import closest
from miniapps.untrusted.text import tell

DESCRIPTION = "Print the batch script of a campaign, or of one application."
EXAMPLES = """\
examples:
  python -m jobs render CAMPAIGN.toml --site frontier --account lab --output scripts
  python -m jobs render --app coupled --site frontier --account lab --nodes 4 --ranks-per-node 8 --threads 7 \\
      --deck L -- --guarantee layout --repeats 3 > job.sh && sbatch job.sh
"""
OF_ONE_APP = ("nodes", "ranks_per_node", "threads", "gpus_per_node", "time", "array", "deck", "name", "out")


def render_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the options of `python -m jobs render` to `parser`."""
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.epilog = EXAMPLES
    parser.add_argument(
        "--site", default="generic-slurm", metavar="SITE", help=f"{', '.join(names())}, or ./NAME.toml"
    )
    parser.add_argument("--account", help="project to charge")
    parser.add_argument("--queue", help="partition or queue (the site's)")
    parser.add_argument("--kind", help="kind of nodes, of those of the site (any)")
    parser.add_argument("--output", type=Path, metavar="DIR", help="write DIR/NAME.sh instead of printing")
    parser.add_argument(
        "--environment",
        metavar="DIR",
        default=sys.prefix if Path(sys.prefix, "bin/activate").exists() else None,
        help="Python environment, a directory with bin/activate (this one: %(default)s)",
    )
    one = parser.add_argument_group("one application instead of a campaign")
    one.add_argument("--app", help="its name; options for it come after --")
    one.add_argument("--nodes", type=int, help="(1)")
    one.add_argument("--ranks-per-node", type=int, metavar="RANKS", help="(1)")
    one.add_argument("--threads", type=int, metavar="CORES", help="cores per rank (1)")
    one.add_argument("--gpus-per-node", type=int, metavar="GPUS", help="(0)")
    one.add_argument("--time", metavar="HH:MM:SS", help="time limit (00:30:00)")
    one.add_argument("--array", type=int, metavar="N", help="allocations, one after another (1)")
    one.add_argument("--deck", help="S, M, L or a TOML file (S)")
    one.add_argument("--name", help="name of the job (the application's)")
    one.add_argument("--out", help="where the job makes its run directories (runs)")
    parser.add_argument("arguments", nargs="*", metavar="CAMPAIGN.toml | -- OPTION ...")


def render_command(options: argparse.Namespace) -> int:
    """Runs `python -m jobs render`; returns 0. Raises JobError, and CampaignError for an invalid campaign."""
    where = site(options.site)
    job = application_job(options, where) if options.app is not None else campaign_job(options, where)
    script = render(job, where)
    warn_of_site(job, where)
    if options.output is None:
        print(script, end="")
        return 0
    file = options.output / f"{job.name}.sh"
    _make_log_directory(Path(job.output), where)
    try:
        options.output.mkdir(parents=True, exist_ok=True)
        with file.open("x", encoding="utf-8") as out:
            out.write(script)
    except FileExistsError:
        raise JobError(f"--output: {file} exists already; move it away, or give another directory") from None
    except OSError as error:
        raise JobError(f"--output {options.output}: {error.strerror}") from None
    tell(file)
    return 0


def warn_of_site(job: Job, where: Site) -> None:
    """Warns of an account that does not look like the site's, and of nodes of several kinds."""
    for warning in (where.account_warning(job), where.mixed_nodes(job.kind, job.array, job.nodes)):
        if warning:
            warn(warning)


def warn(text: str) -> None:
    """Prints a warning to stderr."""
    tell(f"jobs: {text}", sys.stderr)


def _make_log_directory(path: Path, where: Site) -> None:
    """Makes the directory of a batch system's output, which the batch system does not. Raises Refused for a link."""
    if where.scheduler == "local" or is_folder(path):
        return
    try:
        path.mkdir(parents=True)
    except OSError as error:
        warn(
            f"{path} cannot be made here: {error.strerror}; make it where the script is submitted, as its head says: "
            "the output of the job goes there"
        )


def campaign_job(options: argparse.Namespace, where: Site) -> Job:
    """The job of a campaign, one element per allocation. Raises JobError and CampaignError."""
    if len(options.arguments) != 1:
        raise JobError("name one CAMPAIGN.toml, or an application with --app")
    if given := [name for name in OF_ONE_APP if getattr(options, name) is not None]:
        raise JobError(f"--{given[0].replace('_', '-')} is for --app; a campaign says this in its file")
    from jobs.campaign import read
    from jobs.plan import job, plan

    planned = plan(read(options.arguments[0]), where, options.site)
    return job(
        planned,
        account=options.account,
        queue=options.queue,
        environment=options.environment,
        kind=options.kind,
    )


def application_job(options: argparse.Namespace, where: Site) -> Job:
    """The job that launches one application once per allocation. Raises JobError."""
    if options.app not in (apps := applications.names()):
        raise JobError(f"--app {quoted(options.app)}: not known{closest(options.app, apps)}")
    if options.arguments and options.arguments[0].endswith(".toml"):
        raise JobError(f"{options.arguments[0]} and --app: one of them; an application's file is its --deck")
    try:
        limit = seconds(options.time or "00:30:00")
    except ValueError as error:
        raise JobError(f"--time {error}") from None
    job = Job(
        name=options.name or options.app,
        nodes=_or(options.nodes, 1),
        ranks_per_node=_or(options.ranks_per_node, 1),
        threads=_or(options.threads, 1),
        seconds=limit,
        account=options.account,
        queue=options.queue,
        environment=options.environment,
        commands=("true",),  # replaced below, after the numbers are checked
        array=_or(options.array, 1),
        gpus_per_node=_or(options.gpus_per_node, 0),
        kind=options.kind,
    )
    given = ["--deck", options.deck or "S", "--threads", str(job.threads)]
    _check_options(options.app, [*given, "--out", options.out or "runs", *options.arguments], job.ranks)
    launch = shlex.join(where.command(job.ranks, job.ranks_per_node, job.threads, job.gpus_per_node))
    program = shlex.join(["python", "-m", f"miniapps.{options.app}", *given])
    rest = "".join(" " + shlex.quote(argument) for argument in options.arguments)
    # A directory per allocation, so that a restarted job does not find the traces of the first attempt.
    out = f'--out {shlex.quote(options.out or "runs")}/"{job.name}-$FPNA_ALLOCATION_ID"'
    return replace(job, commands=(f"{launch} \\\n    {program} \\\n    {out}{rest}",))


def _check_options(app: str, arguments: list[str], ranks: int) -> None:
    """Raises JobError for options that the application would refuse when the job runs, hours later."""
    try:
        applications.check(app, arguments, ranks)
    except applications.Refusal as error:
        raise JobError(f"{app} on {ranks} rank{'s' * (ranks > 1)}: {cut(str(error), 4000)}") from None
    except (ImportError, RuntimeError) as error:  # a login node without an MPI library
        warn(f"the options of {app} are not checked, for it cannot be imported here: {cut(str(error))}")


def _or(value: int | None, default: int) -> int:
    return default if value is None else value
