"""The Slurm script of one job, from a template that stays readable as a script."""

import re
import shlex
from importlib.resources import files
from string import Template

DAYS_OR_CLOCK = re.compile(r"(\d+|\d+:\d\d(:\d\d)?|\d+-\d\d?(:\d\d){0,2})")
PLAIN = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]*")


class JobError(ValueError):
    """A job that cannot be described; the message says which option and what it may be."""


class ShellTemplate(Template):
    """`@{name}` is filled in; `$` belongs to the shell."""

    delimiter = "@"


def render(
    account, nodes, ntasks_per_node, time, deck, *, environment, name="coupled", cpus_per_task=1, out="runs",
    mpi=None, arguments=(),
):  # fmt: skip
    """Return the text of a batch script that runs `coupled` on `nodes` x `ntasks_per_node` ranks.

    `time` is a limit as sbatch takes it (minutes, or HH:MM:SS, or D-HH); `environment` a Python environment,
    a directory with bin/activate; `mpi` what `srun --mpi` gets, or None for the site's default (the MPICH of
    the package index needs "pmi2"); `arguments` more options for the application. Raises JobError.
    """
    for option, value in (("account", account), ("name", name), ("mpi", mpi)):
        if value is not None and not PLAIN.fullmatch(value):
            raise JobError(f"--{option} {value!r}: letters, digits, '_', '-' and '.' only")
    for option, value in (
        ("nodes", nodes),
        ("ntasks-per-node", ntasks_per_node),
        ("cpus-per-task", cpus_per_task),
    ):
        if value < 1:
            raise JobError(f"--{option} {value}: at least 1")
    if environment is None:
        raise JobError(
            "--environment is needed: a directory with bin/activate, which this python does not have"
        )
    if not DAYS_OR_CLOCK.fullmatch(time):
        raise JobError(f"--time {time!r}: minutes, MM:SS, HH:MM:SS, D-HH, D-HH:MM or D-HH:MM:SS")
    return ShellTemplate(files("jobs").joinpath("templates/slurm.sh").read_text(encoding="utf-8")).substitute(
        account=account,
        name=name,
        nodes=nodes,
        ntasks_per_node=ntasks_per_node,
        cpus_per_task=cpus_per_task,
        time=time,
        environment=shlex.quote(str(environment)),
        out=shlex.quote(str(out)),
        mpi=f" --mpi={mpi}" if mpi else "",
        deck=shlex.quote(deck),
        arguments="".join(" " + shlex.quote(argument) for argument in arguments),
    )
