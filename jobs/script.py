"""The command `python -m jobs render`: scripts on standard output or in files."""

from __future__ import annotations

import argparse
import shlex
import sys
from dataclasses import replace
from importlib.resources import files
from pathlib import Path

from jobs.job import Job, JobError
from jobs.render import render
from jobs.sites import Site, names, seconds, site
from miniapps.config import closest


def render_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of `python -m jobs render`."""
    parser.add_argument(
        "--site", default="generic-slurm", help=f"{', '.join(names())} or ./NAME.toml (%(default)s)"
    )
    parser.add_argument("--app", help="render one launch of this application; options for it come after --")
    parser.add_argument("--account", help="project to charge")
    parser.add_argument("--queue", help="partition or queue (the site's)")
    parser.add_argument("--nodes", type=int, default=1, help="(%(default)s)")
    parser.add_argument("--ranks-per-node", type=int, default=1, metavar="RANKS", help="(%(default)s)")
    parser.add_argument(
        "--threads", type=int, default=1, metavar="CORES", help="cores per rank (%(default)s)"
    )
    parser.add_argument("--gpus-per-node", type=int, default=0, metavar="GPUS", help="(%(default)s)")
    parser.add_argument("--time", default="00:30:00", metavar="HH:MM:SS", help="time limit (%(default)s)")
    parser.add_argument(
        "--array", type=int, default=1, metavar="N", help="allocations, in turn (%(default)s)"
    )
    parser.add_argument("--deck", default="S", help="S, M, L or a TOML file (%(default)s)")
    parser.add_argument("--name", help="name of the job (the application's)")
    parser.add_argument("--out", default="runs", help="where the job makes its run directories (%(default)s)")
    parser.add_argument(
        "--environment",
        metavar="DIR",
        default=sys.prefix if Path(sys.prefix, "bin/activate").exists() else None,
        help="Python environment, a directory with bin/activate (this one: %(default)s)",
    )
    parser.add_argument("arguments", nargs="*", metavar="-- OPTION", help="options of the application")


def render_command(options: argparse.Namespace) -> None:
    """`python -m jobs render`: print the script. Raises JobError."""
    where = site(options.site)
    print(render(application_job(options, where), where), end="")


def application_job(options: argparse.Namespace, where: Site) -> Job:
    """The job that launches one application once per allocation. Raises JobError."""
    if options.app not in (apps := applications()):
        raise JobError(f"--app {options.app!r}: not known{closest(options.app or '', apps)}")
    try:
        limit = seconds(options.time)
    except ValueError as error:
        raise JobError(f"--time {error}") from None
    job = Job(
        name=options.name or options.app,
        nodes=options.nodes,
        ranks_per_node=options.ranks_per_node,
        threads=options.threads,
        seconds=limit,
        account=options.account,
        queue=options.queue,
        environment=options.environment,
        commands=("true",),  # below: it needs the checked numbers
        array=options.array,
        gpus_per_node=options.gpus_per_node,
    )
    launch = shlex.join(where.command(job.ranks, job.ranks_per_node, job.threads, job.gpus_per_node))
    program = shlex.join(["python", "-m", f"miniapps.{options.app}", "--deck", options.deck])
    rest = "".join(" " + shlex.quote(argument) for argument in options.arguments)
    # A directory per allocation: one that is started again never meets the traces of the first attempt.
    out = f'--out {shlex.quote(options.out)}/"{job.name}-$FPNA_ALLOCATION_ID"'
    return replace(job, commands=(f"{launch} \\\n    {program} --threads {job.threads} \\\n    {out}{rest}",))


def applications() -> list[str]:
    """The applications' names, found without importing them: login nodes may have no MPI."""
    root = files("miniapps")
    return sorted(path.name for path in root.iterdir() if path.joinpath("decks").is_dir())
