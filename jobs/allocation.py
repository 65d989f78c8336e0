"""Asks the batch system for the allocation of this program: its end, and whether the batch system ends it already."""

from __future__ import annotations

import os
import re
import subprocess
import time
from collections.abc import Callable
from dataclasses import dataclass, replace

from jobs.plan import START_SECONDS

ASK_S = 15  # limit of a scheduler's command, which waits while the scheduler is down
RUNNING = (
    "RUNNING",
    "SUSPENDED",
    "STOPPED",
    "SIGNALING",
    "STAGE_OUT",
)  # states in which Slurm lets a job live
OVER = (
    *("COMPLETED", "FAILED", "TIMEOUT", "CANCELLED", "NODE_FAIL", "PREEMPTED", "OUT_OF_MEMORY", "BOOT_FAIL"),
    *("DEADLINE", "REVOKED"),
)
FORGOTTEN = "Invalid job id"  # Slurm's answer about a job that has ended
WALLTIME = re.compile(r"(?:(\d+):)?(\d+):(\d+)")


@dataclass(frozen=True)
class Allocation:
    """An allocation of a batch system; times in seconds since the epoch, None where unknown."""

    start: float | None = None
    end: float | None = None
    ending: str = ""  # the reason why no launch can succeed any more; empty: the allocation goes on
    preempted: bool = (
        False  # True: the batch system will end the job, and start it again if it has not ended by itself
    )


def endless() -> Allocation:
    """An allocation without an end, for runs without a batch system."""
    return Allocation()


def of_batch(seconds: int) -> Callable[[], Allocation]:
    """A function that asks the batch system for the allocation of this process, planned to last `seconds`.

    If the batch system does not answer, the function returns the last answer. Without any answer the allocation ends at
    SLURM_JOB_END_TIME, or in `seconds` less half of START_SECONDS, which a job spends before this program starts.
    """
    text = os.environ.get("SLURM_JOB_END_TIME", "")
    end = float(text) if text.isdecimal() else time.time() + seconds - START_SECONDS / 2
    known = Allocation(None if text.isdecimal() else end - seconds, end)

    def ask() -> Allocation:
        nonlocal known
        known = _slurm(known) if "SLURM_JOB_ID" in os.environ else _pbs(known)
        if known.end is not None and known.end <= time.time() and not known.ending:
            return replace(known, ending="its time is up")
        return known

    return ask


def own_start() -> str:
    """The Slurm job of this process and the number of its restarts, as CLUSTER/JOB.RESTARTS; empty outside of one."""
    job, cluster = os.environ.get("SLURM_JOB_ID", ""), os.environ.get("SLURM_CLUSTER_NAME", "")
    return f"{cluster}/{job}.{os.environ.get('SLURM_RESTART_COUNT', '0')}" if job and cluster else ""


def is_over(start: str) -> bool:
    """True if the start of a Slurm job, as `own_start` names it, is certainly over; a job of the same cluster asks."""
    cluster, _, number = start.partition("/")
    job, _, restarts = number.partition(".")
    own_cluster, _, own_number = own_start().partition("/")
    if not own_number or cluster != own_cluster or not job.isdecimal():
        return False
    if job == own_number.partition(".")[0]:
        return restarts != own_number.partition(".")[2]
    answer, fields = _asked(job)
    state = fields.get("JobState")
    return (
        FORGOTTEN in answer
        or state in OVER
        or (state is not None and fields.get("Restarts", restarts) != restarts)
    )


def _slurm(known: Allocation) -> Allocation:
    """The allocation of this process's job by Slurm; `known` if Slurm does not answer."""
    answer, fields = _asked(os.environ["SLURM_JOB_ID"])
    if FORGOTTEN in answer:
        return replace(known, ending="Slurm does not know the job any more")
    if "JobState" not in fields:
        return known
    state, restarts = fields["JobState"], fields.get("Restarts", "0")
    start, end, preempted = (_time(fields.get(name, "")) for name in ("StartTime", "EndTime", "PreemptTime"))
    if state not in RUNNING:
        ending = f"Slurm says {state}"
    elif restarts != os.environ.get("SLURM_RESTART_COUNT", "0"):
        ending = "Slurm has put the job into the queue again"
    else:
        ending = "Slurm preempts the job" if preempted else ""
    return Allocation(start, end or known.end, ending, preempted=bool(preempted) and state in RUNNING)


def _asked(job: str) -> tuple[str, dict[str, str]]:
    """(Slurm's answer about `job`, {field: value} of its record).

    For an array the answer has the records of all elements; the record of `job` is the one with its JobId."""
    answer = _answer(["scontrol", "show", "job", "--oneliner", job])
    records = (dict(re.findall(r"(\w+)=(\S*)", line)) for line in answer.splitlines())
    return answer, next((fields for fields in records if fields.get("JobId") == job), {})


def _pbs(known: Allocation) -> Allocation:
    """The allocation of this process's job by PBS; `known` if PBS does not answer, or if there is no PBS."""
    if "PBS_JOBID" not in os.environ:
        return known
    fields = dict(
        re.findall(r"^\s*([\w.]+) = (.*)$", _answer(["qstat", "-f", os.environ["PBS_JOBID"]]), re.MULTILINE)
    )
    state, limit = fields.get("job_state"), WALLTIME.fullmatch(fields.get("Resource_List.walltime", ""))
    if state is None:
        return known
    ending = "" if state == "R" else f"PBS says {state}"
    try:
        start = time.mktime(time.strptime(fields.get("stime", "")))
    except (ValueError, OverflowError):
        return replace(known, ending=ending)
    if limit is None:
        return replace(known, ending=ending)
    hours, minutes, seconds = (int(part or 0) for part in limit.groups())
    return Allocation(start, start + 3600 * hours + 60 * minutes + seconds, ending)


def _answer(command: list[str]) -> str:
    """The output of a command of the batch system; "" if the command does not start, or does not end in ASK_S."""
    try:
        return subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            timeout=ASK_S,
            env={**os.environ, "SLURM_TIME_FORMAT": "%s", "LC_ALL": "C"},
        ).stdout
    except (OSError, subprocess.TimeoutExpired):
        return ""


def _time(text: str) -> float | None:
    return float(text) if text.isdecimal() else None
