"""Runs the tasks of an allocation, one after the other, and writes down how each ended."""

from __future__ import annotations

import contextlib
import os
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections import deque
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from errno import EDQUOT, ENOSPC
from pathlib import Path
from typing import Any

import miniapps
from jobs.files import is_folder
from jobs.plan import START_SECONDS, Plan, Task
from jobs.processes import alive, why_not_own
from jobs.records import Begin, Outcome, Process
from jobs.sites import Site
from jobs.state import (
    DONE,
    FAILED,
    FINISHED,
    INTERRUPTED,
    OVER,
    TO_RETRY,
    Standing,
    State,
    StateError,
    look,
    measured,
    survey,
)
from jobs.tables import shown
from jobs.words import cut
from miniapps import doctor
from miniapps.received.regular import Refused, open_regular
from miniapps.system import environment, interrupts, world
from miniapps.system.python import module

ROOT = Path(miniapps.__file__).resolve().parent.parent
GRACE_S = 10  # between SIGTERM, at which the ranks save what they have, and SIGKILL
MARGIN_S = 30  # before the end of an allocation no task may run: its files have to be closed
SLACK = 1.5  # how much longer than the same task took before one may take, when there is little time left
TAIL = 4000  # bytes of an output that are searched for a reason
FULL = tuple(os.strerror(number) for number in (ENOSPC, EDQUOT))


class LauncherError(Exception):
    """Ranks cannot be started; the message says why and what to do."""


@dataclass(frozen=True)
class Launcher:
    """How ranks are started: `command(ranks, threads)` is what to put before a program."""

    command: Callable[[int, int], list[str]]
    environment: Mapping[str, str]  # of the whole launch, complete


@dataclass(frozen=True)
class Ended:
    """How a runner left its tasks."""

    failed: int = 0  # for good
    left: int = 0

    def __add__(self, other: Ended) -> Ended:
        return Ended(self.failed + other.failed, self.left + other.left)


def here(asked: str | None = None) -> Launcher:
    """The launcher of this machine: `asked`, a command to which -n is added, or the mpirun beside this Python, or the
    one on PATH. Raises LauncherError."""
    if asked:
        command = shlex.split(asked)
    else:
        beside = Path(sys.executable).parent / "mpirun"
        mpirun = str(beside) if beside.exists() else shutil.which("mpirun")
        if mpirun is None:
            raise LauncherError(
                "no mpirun beside this python or on PATH; pip install mpich, load the module of this machine's MPI, or "
                "name one: --mpirun COMMAND"
            )
        command = [mpirun]
    if not command or shutil.which(command[0]) is None:
        raise LauncherError(f"{asked!r} cannot be run: no such program; name another with --mpirun")
    if len(command) == 1:
        command = doctor.oversubscribing(command[0])
    return Launcher(lambda ranks, threads: [*command, "-n", str(ranks)], _clean(environment.without_rank()))


def of_site(site: Site, plan: Plan) -> Launcher:
    """The launcher of `site`, inside an allocation of it."""
    gpus = plan.campaign.at(site.name).gpus_per_node
    return Launcher(
        lambda ranks, threads: site.command(ranks, plan.ranks_per_node[threads], threads, gpus),
        _clean(os.environ),
    )


def run(
    plan: Plan,
    allocation: int,
    launcher: Launcher,
    say: Callable[[str], None],
    *,
    progress: Callable[[str], None] | None = None,
    detail: Callable[[str], None] = lambda text: None,
    allocation_id: str,
    limited: bool = False,
    retry_failed: bool = False,
) -> Ended:
    """Run what is left of one allocation, in its order, failed tasks again at the end as often as they may.

    `progress` (default: `say`) gets lines on the beginning and on tasks that are done, `detail` on every command and
    its log before it starts, `say` on all else.
    `limited`: the allocation ends at the plan's limit; no task is begun that would not be over by then. A signal that
    raises (miniapps.system.interrupts) ends the task that runs, which then is left for the next call. Raises Locked,
    StateError, LauncherError; Refused where something else lies in the place of a file or directory of the campaign.
    """
    end = _end(plan.seconds[allocation]) if limited else None
    state = State(plan.campaign.out, allocation)
    state.create()
    with state.lock() as remark:
        if remark:
            say(remark)
        tasks = plan.of(allocation)
        state.check(tasks)
        standings = survey(plan.campaign.out, tasks, doubt=say)
        if any(standing.record.open for standing in standings):
            _recover(state, standings, say)
            standings = survey(plan.campaign.out, tasks)
        forgiven = {
            s.task.id: len(s.record.failures) for s in standings if retry_failed and s.state == FAILED
        }
        queue = deque(s.task for s in standings if not s.over or s.task.id in forgiven)
        progress = progress or say
        progress(_opening(plan, allocation, standings, queue))
        if queue:
            _try_launcher(launcher, queue)
        known = measured(survey(plan.campaign.out, plan.tasks))
        env = dict(launcher.environment) | {"FPNA_ALLOCATION_ID": allocation_id}
        over, left = len(tasks) - len(queue), 0
        while queue:
            task = queue.popleft()
            room = None if end is None else end - MARGIN_S - time.time()
            if room is not None and _needed(task, known) > room:
                left += 1
                continue
            line = _attempt(plan, state, task, launcher, env, room, detail)
            now = state.record(task).state(task, forgiven=forgiven.get(task.id, 0))
            if now == TO_RETRY:
                queue.append(task)
            left += now == INTERRUPTED
            over += now in OVER
            tell = progress if now == DONE else say
            tell(f"[{over:{len(str(len(tasks)))}}/{len(tasks)}] {line}")
        if left:
            say(f"{left} left for want of time: submit this allocation again, and it goes on from here")
        failed = sum(s.state == FAILED for s in survey(plan.campaign.out, tasks))
        return Ended(failed=failed, left=left)


def name_allocation(allocation: int, local: bool) -> str:
    """What traces shall record as the allocation: the batch system's id, or a new one, host and time, where there is
    none or where several allocations of a campaign share this place."""
    given = environment.allocation_id()
    if given and not local:
        return given
    return f"{given or socket.gethostname()}-{datetime.now(UTC):%Y%m%dT%H%M%SZ}-a{allocation}"


def _attempt(
    plan: Plan,
    state: State,
    task: Task,
    launcher: Launcher,
    env: dict[str, str],
    room: float | None,
    detail: Callable[[str], None],
) -> str:
    """Launch `task` once; a line for people on how it ended. `detail` gets lines on the command and on its log."""
    attempt = state.next_attempt(task)
    state.move_aside(task, attempt - 1)  # what is there is not finished, or its result is spoilt
    log = state.log(task, attempt)
    command = [
        *launcher.command(task.ranks, task.threads),
        *module(f"miniapps.{task.app}", *task.arguments, "--out", str(state.out / task.id)),
    ]
    detail(f"{task.id}: attempt {attempt}, log {shown(log)}\n$ {shlex.join(command)}")
    state.begin(task, attempt, env["FPNA_ALLOCATION_ID"])
    limit = task.seconds if room is None else min(task.seconds, room)
    begin = time.monotonic()
    try:
        code = _launch(
            command, log, env, plan.campaign.path.parent, limit, lambda pid: state.started(task, attempt, pid)
        )
    except (KeyboardInterrupt, interrupts.Terminated):
        with interrupts.held():
            state.end(
                task, attempt, INTERRUPTED, "the runner was interrupted", None, time.monotonic() - begin
            )
        raise
    except OSError as error:
        state.end(task, attempt, INTERRUPTED, str(error))
        raise StateError(
            f"{log}: {error.strerror}; make room, or correct the launcher, and start again"
        ) from None
    took = time.monotonic() - begin
    outcome, reason = _judge(state, task, code, log, limit)
    reason = cut(reason)
    moved = state.end(task, attempt, outcome, reason, code, took)
    if outcome not in FINISHED and _disk_full(log):
        raise StateError(
            f"{state.out}: the disk is full, as {log} says; make room and start again: what is finished is not repeated"
        )
    line = f"{task.id}  {outcome}  {took:.1f} s" + (f": {reason}" if reason else "")
    if outcome == DONE:
        return line
    return f"{line}  (log {shown(log)}" + (f", traces {shown(state.out / moved)})" if moved else ")")


def _judge(state: State, task: Task, code: int | None, log: Path, limit: float) -> tuple[Outcome, str]:
    """(outcome, reason) of an attempt that ended with `code`, None if it was ended for its time."""
    outcome, reason = look(state.out / task.id, task.ranks)
    if outcome == DONE and code != 0:
        return (
            DONE,
            "complete, but it did not end by itself" if code is None else f"complete, but exit code {code}",
        )
    if outcome in FINISHED:
        return outcome, reason
    if code is None and limit < task.seconds:
        return INTERRUPTED, "the allocation ends"
    if code is None:
        return FAILED, f"no end after its time of {task.seconds} s"
    if _disk_full(log):
        return INTERRUPTED, "the disk is full"
    return FAILED, f"exit code {code}: {reason if outcome == FAILED else doctor.gist(_tail(log))}"


def _launch(
    command: list[str],
    log: Path,
    env: dict[str, str],
    cwd: Path,
    limit: float,
    started: Callable[[int], None],
) -> int | None:
    """Exit code of `command`, all output in `log`; None if it took more than `limit` seconds and was ended."""
    is_folder(log.parent)
    with open(log, "x", encoding="utf-8") as output:
        output.write(f"$ {shlex.join(command)}\n")
        output.flush()
        with interrupts.held():  # no signal between the start of a process and knowing of it
            process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                cwd=cwd,
                env=env,
                start_new_session=True,  # a Ctrl-C is for the runner, which then ends the ranks in good order
            )
        try:
            started(process.pid)
            return process.wait(limit)
        except subprocess.TimeoutExpired:
            return None
        finally:
            if process.poll() is None:
                with interrupts.held():
                    _stop(process.pid, process.wait)


def _stop(pid: int, wait: Callable[[float], object], still: Callable[[], bool] = lambda: True) -> None:
    """End a process and its group: SIGTERM, and SIGKILL for what remains. `still`: whether the number is still that of
    the process that is meant. Raises StateError where it does not end."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        if still():
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(pid, number)
        try:
            wait(GRACE_S)
            return
        except subprocess.TimeoutExpired:
            pass
    raise StateError(
        f"process {pid} does not end, not even by SIGKILL: it may wait for a dead file system; start again when it is "
        f"gone (ps -p {pid})"
    )


def _recover(state: State, standings: Iterable[Standing], say: Callable[[str], None]) -> None:
    """Settle the attempts whose runner is gone: end what surely is theirs and still runs, and see what they came to."""
    for standing in standings:
        task, begun = standing.task, standing.record.open
        if begun is None:
            continue
        run = state.out / task.id
        if begun.process is not None:
            _end_left_over(task, begun, begun.process, run, say)
        outcome, reason = look(run, task.ranks)
        if outcome not in FINISHED:
            outcome, reason = INTERRUPTED, "the runner was killed"
        moved = state.end(task, begun.attempt, outcome, reason)
        say(
            f"{task.id}: {outcome}, its runner was gone" + (f" (traces {state.out / moved})" if moved else "")
        )


def _end_left_over(task: Task, begun: Begin, process: Process, run: Path, say: Callable[[str], None]) -> None:
    """End the launch of an attempt if it still runs; where anything is in doubt leave it alone, and say so."""

    def own() -> bool:
        return alive(process) is True and not why_not_own(process, run)

    living = alive(process)
    if living is False:
        return
    if own():
        say(f"{task.id}: still runs without its runner as process {process.pid}; it is ended")
        _stop(process.pid, lambda limit: _wait_for(process, limit), still=own)
        return
    why = why_not_own(process, run) if living else "its host, boot or start is another or not recorded"
    say(
        f"{task.id}: process {process.pid} on {cut(process.host)} may be the launch of its attempt {begun.attempt}, "
        f"and is left alone, because {cut(why)}; if `ps -fp {process.pid}` there shows that it is, end it: "
        f"kill -- -{process.pid}"
    )


def _wait_for(process: Process, limit: float) -> None:
    """Wait for a process that is no child of this one."""
    until = time.monotonic() + limit
    while alive(process):
        if time.monotonic() > until:
            raise subprocess.TimeoutExpired(str(process.pid), limit)
        time.sleep(0.05)


def _try_launcher(launcher: Launcher, tasks: Collection[Task]) -> None:
    """Start two ranks of a tiny program: they must find each other. Raises LauncherError."""
    if max(task.ranks for task in tasks) < 2:
        return
    command = [*launcher.command(2, min(task.threads for task in tasks)), sys.executable, "-c", doctor.PROBE]
    try:
        output = doctor.output_of(command, launcher.environment)
    except OSError as error:
        output = f"{command[0]}: {error.strerror}"
    sizes = doctor.ranks_found(output)
    if sizes == [2]:
        return
    started = shlex.join(command[:-2])
    if len(sizes) > 1:
        raise LauncherError(
            f"{started} belongs to another MPI library than mpi4py: two processes were started and each was alone, so "
            "every rank would be rank 0 of 1 and do all the work. Nothing was run. `python -m miniapps doctor` shows "
            "what is here; use the mpirun of mpi4py's library (--mpirun), or let mpi4py load the launcher's: "
            f"{world.LOADED}; with srun, choose --mpi"
        )
    raise LauncherError(
        f"{started} cannot start two ranks: {cut(doctor.gist(output))}. Nothing was run. `python -m miniapps doctor` "
        "shows what is here"
    )


def _opening(plan: Plan, allocation: int, standings: list[Standing], queue: Collection[Task]) -> str:
    failed = sum(s.state == FAILED for s in standings)
    return (
        f"allocation {allocation}, of {plan.campaign.allocations} in all: {len(standings)} tasks, "
        f"{len(queue)} to run" + (f", {failed} failed for good before" if failed else "")
    )


def _needed(task: Task, known: Mapping[tuple[Any, ...], float]) -> float:
    """Seconds that a task may take: as measured, with slack, or its limit."""
    before = known.get(task.configuration)
    return task.seconds if before is None else min(task.seconds, SLACK * before + GRACE_S)


def _end(seconds: int) -> float:
    """When the allocation ends, in time since the epoch, as Slurm says or as planned; a job has spent a while on
    starting when this is asked."""
    text = os.environ.get("SLURM_JOB_END_TIME", "")
    return float(text) if text.isdecimal() else time.time() + seconds - START_SECONDS + MARGIN_S


def _clean(env: Mapping[str, str]) -> dict[str, str]:
    """`env` without options of applications, which are the campaign's to give, and with this checkout importable."""
    kept = {key: value for key, value in env.items() if not key.startswith("FPNA_")}
    kept["PYTHONPATH"] = os.pathsep.join(filter(None, (str(ROOT), env.get("PYTHONPATH"))))
    return kept


def _disk_full(log: Path) -> bool:
    return any(word in _tail(log) for word in FULL)


def _tail(log: Path) -> str:
    try:
        with open_regular(log, most=sys.maxsize) as file:
            file.seek(max(0, os.fstat(file.fileno()).st_size - TAIL))
            return file.read(TAIL).decode("utf-8", "replace")
    except (OSError, Refused):
        return ""
