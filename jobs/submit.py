"""Submits batch scripts through PSI/J, registers submitted jobs, and asks for their states.

A campaign's directory has a folder `jobs` with each submitted script, unchanged, and the register `submitted.jsonl`,
one line per job. Lines are only added to the register, and nothing is written through a link there.
"""

from __future__ import annotations

import datetime
import shlex
import shutil
import subprocess
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from re import IGNORECASE, MULTILINE, compile, search
from typing import BinaryIO

import msgspec

from jobs.files import add, is_folder, rename_new, to_append
from jobs.job import Job, JobError
from jobs.records import Id, Submission, read_register
from jobs.render import render
from jobs.sites import SCHEDULERS, Site
from jobs.words import cut, quoted
from miniapps.untrusted.regular import Refused

REGISTER = "submitted.jsonl"
AFTER = {"slurm": "#SBATCH --dependency=afterany:{id}", "pbs": "#PBS -W depend=afterany:{id}"}
LOOK = {"slurm": "squeue --me --name={name}", "pbs": "qstat -w -u $USER"}
# Errors of a scheduler's command that lost the connection before the answer: the job may be queued or not.
UNHEARD = compile("timed? ?out|connection (reset|closed|lost|failure on receive)|zero bytes", IGNORECASE)
# (pattern in Slurm's error message, the exceeded limit of `scontrol show config`, remedy).
LIMITS = (
    (
        "invalid job array specification",
        "MaxArraySize",
        "an array has fewer elements than that: take fewer allocations, or make several campaigns of them",
    ),
    (
        "resource temporarily unavailable|temporarily unable to accept|job submit limit|job/step limit|maxsubmit",
        "MaxJobCount",
        "more jobs than that, of all users, or more than the account may have, do not wait at a time: submit again "
        "when some have ended, or take fewer allocations",
    ),
)
BY_HAND = {"pjm": "Fujitsu's PJM", "sge": "Grid Engine"}


@dataclass(frozen=True)
class State:
    """The scheduler's state of a job, or of an element of an array.

    `state` is PSI/J's word (QUEUED, ACTIVE, COMPLETED, FAILED, CANCELED) or UNKNOWN; `message` is the scheduler's word
    and its reason."""

    id: str
    name: str
    state: str
    message: str


class ByHand(JobError):
    """PSI/J does not know the site's scheduler; `script` is written, `command` submits it."""

    def __init__(self, site: Site, script: Path, command: str):
        self.script, self.command = script, command
        super().__init__(
            f"PSI/J has no executor for {BY_HAND.get(site.scheduler, site.scheduler)} ({site.name}): the script is "
            f"{script}; nothing was submitted. Type:\n{command}"
        )


def node_hours(jobs: Iterable[Job]) -> float:
    """The most that `jobs` can cost: nodes times the limit, in hours, for every element of an array."""
    return sum(job.nodes * job.seconds * job.array / 3600 for job in jobs)


def budget(jobs: Iterable[Job]) -> str:
    """The most that `jobs` can cost as text, one line per job and their sum, to show before anything is submitted."""
    jobs = list(jobs)
    width = max(len(job.name) for job in jobs)
    lines = [
        f"{job.name:{width}}  {job.array:4d} x {job.nodes} nodes x {job.seconds / 3600:.2f} h"
        f" = {node_hours([job]):.2f} node-hours"
        for job in jobs
    ]
    return "\n".join([*lines, f"at most {node_hours(jobs):.2f} node-hours"])


def check(site: Site) -> None:
    """Raises JobError if nothing can be submitted to `site` from here; it names the missing program."""
    if site.scheduler == "local":
        raise JobError(
            f"site {site.name} has no scheduler: `python -m jobs local CAMPAIGN.toml` runs it here"
        )
    if site.scheduler in BY_HAND:
        return
    program = SCHEDULERS[site.scheduler]
    if shutil.which(program) is None:
        raise JobError(
            f"no scheduler found: {site.name} is submitted to with {program}, and no {program} is on PATH; log in to "
            f"a node of {site.name} that has it, or `python -m jobs render` prints the script to take there"
        )
    _executors()


def submit(job: Job, site: Site, directory: Path, after: Submission | None = None) -> Submission:
    """Submits `job` through PSI/J, and adds it to the register of `directory`.

    With `after` it waits until all elements of that job have ended, in any way. Raises JobError if the job does not fit
    the site, if there is no scheduler or it refuses the job, or if the directory cannot be written or has entries of
    another kind, such as links; ByHand if PSI/J has no executor for the scheduler.
    """
    check(site)
    script = render(job, site)
    register = directory / REGISTER
    try:
        if not is_folder(directory):
            directory.mkdir(parents=True)
        is_folder(directory / site.scheduler)  # where PSI/J writes
        if site.scheduler in BY_HAND:
            raise _by_hand(job, site, script, directory)
        if after is not None:
            script = _waiting(script, AFTER[site.scheduler].format(id=after.id))
        with to_append(register) as lines:  # opened before the job is submitted, so that its id is not lost
            number, file = _submit(job, site, directory, script)
            submission = Submission(
                id=number,
                name=job.name,
                site=site.name,
                scheduler=site.scheduler,
                script=str(file),
                node_hours=node_hours([job]),
                elements=job.array,
                after=after.id if after else None,
                time=datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
            )
            _note(lines, submission, register)
    except OSError as error:
        raise JobError(f"{directory}: cannot be written: {error.strerror}; nothing was submitted") from None
    except Refused as error:
        raise JobError(f"{error}; nothing was submitted") from None
    return submission


def submissions(directory: Path) -> list[Submission]:
    """The jobs submitted from `directory`, oldest first. Raises JobError, with the line, for a damaged register."""
    try:
        return read_register(directory / REGISTER) if is_folder(directory) else []
    except FileNotFoundError:
        return []
    except Refused as error:
        raise JobError(f"no submissions are known: {error}, or correct what is wrong there") from None
    except OSError as error:
        raise JobError(f"{directory / REGISTER}: cannot be read: {error.strerror}") from None


def states(directory: Path) -> list[State]:
    """The states of all jobs submitted from `directory`, by their schedulers. Raises JobError if one cannot be asked.

    Schedulers forget finished jobs after a while (UNKNOWN); the results of these are in the runs."""
    register = submissions(directory)
    states_of_jobs: list[State] = []
    for scheduler in dict.fromkeys(entry.scheduler for entry in register):
        entries = [entry for entry in register if entry.scheduler == scheduler]
        try:
            known = _executors().statuses(scheduler, [entry.id for entry in entries], directory)
        except FileNotFoundError as error:
            raise JobError(
                f"no scheduler found: {error.filename} is not on PATH; ask where it was submitted"
            ) from None
        except subprocess.TimeoutExpired:
            raise JobError(f"{scheduler} does not tell the state of the jobs in a minute") from None
        except (RuntimeError, OSError, ValueError, LookupError, TypeError, AttributeError) as error:
            raise JobError(f"{scheduler} does not tell the state of the jobs: {cut(str(error))}") from None
        for entry in entries:
            own = {n: s for n, s in known.items() if n == entry.id or n.startswith(f"{entry.id}_")}
            states_of_jobs += [
                State(n, entry.name, s.state.name, s.message or "")
                for n, s in sorted(own.items(), key=_element)
            ]
            if not own:
                states_of_jobs.append(
                    State(entry.id, entry.name, "UNKNOWN", f"{scheduler} does not know it any more")
                )
    return states_of_jobs


def _element(item: tuple[str, object]) -> tuple[int, str]:
    return len(item[0]), item[0]


def _submit(job: Job, site: Site, directory: Path, script: str) -> tuple[str, Path]:
    """Submits `script`; returns the scheduler's id and the submitted file, named by job and id. Raises JobError."""
    executors, program = _executors(), SCHEDULERS[site.scheduler]
    try:
        answer, file = executors.submit(site.scheduler, directory, job.name, script)
    except executors.psij.SubmitException as error:
        words = " ".join(str(error).split())
        if UNHEARD.search(words):
            raise JobError(
                f"{program} does not say whether it took {job.name}: {cut(words)}. {_may_be_queued(job, site)}"
            ) from None
        raise JobError(f"{program} refuses {job.name}: {cut(words)}{_limit(words, job)}") from None
    except IndexError:  # PSI/J takes the last word of the answer, and there was none
        answer, file = "", directory
    try:
        number = msgspec.convert(answer, Id)
    except msgspec.ValidationError:
        raise JobError(
            f"{program} took {job.name} and answered {quoted(answer)}, which is no id of a job. "
            + _may_be_queued(job, site)
        ) from None
    try:
        return number, rename_new(file, directory / f"{job.name}-{number}.sh")
    except OSError:  # the job is submitted: the script keeps the name that PSI/J gave it
        return number, file


def _may_be_queued(job: Job, site: Site) -> str:
    """Advice for a job that may or may not be queued."""
    look = LOOK[site.scheduler].format(name=job.name)
    return (
        f"It may be queued, and is not in the register: look ({look}). If it is there, cancel it and submit again, or "
        "let it run: `status` shows its tasks, though not the job"
    )


def _limit(words: str, job: Job) -> str:
    """A sentence on the limit of the site that the scheduler's `words` name, with its value; "" if they name none."""
    for pattern, name, remedy in LIMITS:
        if search(pattern, words, IGNORECASE):
            try:
                shown = subprocess.run(
                    ["scontrol", "show", "config"], capture_output=True, text=True, timeout=20
                ).stdout
            except (OSError, subprocess.TimeoutExpired):
                shown = ""
            value = search(rf"^{name}\s*=\s*(\d+)", shown, MULTILINE)
            have = f"{name} is {value[1]} there" if value else f"see {name} in `scontrol show config`"
            return f". This job has {job.array} element{'s' * (job.array > 1)}, and {have}: {remedy}"
    return ""


def _note(lines: BinaryIO, submission: Submission, register: Path) -> None:
    try:
        add(lines, submission)
    except OSError as error:
        raise JobError(
            f"job {submission.id} is submitted, but {register} cannot take it: {error.strerror}; cancel it, or note it"
        ) from None


def _by_hand(job: Job, site: Site, script: str, directory: Path) -> ByHand:
    stamp = datetime.datetime.now(datetime.UTC).strftime("%Y%m%dT%H%M%S")
    file = directory / f"{job.name}-{stamp}.sh"
    with file.open("x", encoding="utf-8") as out:
        out.write(script)
    account = job.account or "ACCOUNT"
    return ByHand(site, file, f"{site.submit.replace('{account}', account)} {shlex.quote(str(file))}")


def _waiting(script: str, directive: str) -> str:
    """`script` with `directive` before its other directives."""
    first, _, rest = script.partition("\n")
    return f"{first}\n{directive}\n{rest}"


def _executors():
    """The module jobs.executors. Raises JobError if PSI/J is not installed, which no other module needs."""
    try:
        from jobs import executors
    except ModuleNotFoundError as error:
        raise JobError(
            f"submission goes through PSI/J, and the module {error.name} is missing: pip install psij-python (the extra"
            " `jobs`), or submit what `python -m jobs render` prints yourself"
        ) from None
    return executors
