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
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from math import inf
from pathlib import Path
from typing import Any

import miniapps
from jobs.allocation import Allocation, endless, of_batch
from jobs.files import is_folder
from jobs.plan import Plan, Task
from jobs.processes import alive, why_not_own
from jobs.records import Begin, Process
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
from jobs.verdict import STARTED, disk_full, judge, ranks_started
from jobs.words import cut
from miniapps import doctor
from miniapps.system import environment, interrupts, world
from miniapps.system.python import module, snippet

ROOT = Path(miniapps.__file__).resolve().parent.parent
GRACE_S = 10  # between SIGTERM, at which the ranks save what they have, and SIGKILL
MARGIN_S = 30  # before the end of an allocation no task may run: its files have to be closed
SLACK = 1.5  # how much longer than the same task took before one may take, when there is little time left
# Seconds until the next launch, after each in a row of launches that say nothing of their tasks; then the runner stops.
PAUSES = (
    1.0,
    2.0,
    5.0,
    10.0,
    20.0,
    30.0,
    60.0,
    60.0,
)  # three minutes: a controller that is started again is back
PAUSES_HERE = (1.0, 2.0, 5.0)  # without a batch system a person waits
LOOK_S = 0.5  # until it is looked again whether a rank has started
GONE_S = 600  # how long after its end a preempted job waits to be ended


class LauncherError(Exception):
    """Ranks cannot be started; the message says why and what to do."""


class CannotStart(Exception):
    """The program that starts ranks cannot be started now; the message says which and why."""


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
    pauses: Sequence[float] | None = None,
) -> Ended:
    """Run what is left of one allocation, in its order, failed tasks again at the end as often as they may.

    `progress` (default: `say`) gets lines on the beginning and on tasks that are done, `detail` on every command and
    its log before it starts, `say` on all else.
    `limited`: a batch system ends the allocation; no task is begun that would not be over by then, and none once the
    batch system says that it ends. A signal that raises (miniapps.system.interrupts) ends the task that runs, which
    then is left for the next call. A launch that did not start its ranks, or whose ranks were ended from outside, is
    repeated after the others and after a pause; after as many in a row as there are `pauses` (seconds; default: of
    PAUSES or PAUSES_HERE) the runner stops, and what is left stays so. Raises Locked, StateError, LauncherError;
    Refused where something else lies in the place of a file or directory of the campaign.
    """
    ask = of_batch(plan.seconds[allocation]) if limited else endless
    if pauses is None:
        pauses = PAUSES if limited else PAUSES_HERE
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
        now = ask()
        if queue and not now.ending:
            _try_launcher(launcher, queue, pauses if limited else (), say)
        known = measured(survey(plan.campaign.out, plan.tasks))
        env = dict(launcher.environment) | {"FPNA_ALLOCATION_ID": allocation_id}
        over, in_a_row, launched = len(tasks) - len(queue), 0, False
        late: list[Task] = []  # there is no time for them
        why = ""  # nothing more is launched
        while queue and not why:
            now = ask()
            if why := now.ending:
                break
            task = queue.popleft()
            room = None if now.end is None else now.end - MARGIN_S - time.time()
            whole = not launched and _whole(now, plan.seconds[allocation])
            if room is not None and _needed(task, known) > room and not (whole and room > 0):
                late.append(task)
                continue
            launched = True
            line = _attempt(plan, state, task, launcher, env, room, ask, detail)
            outcome = state.record(task).state(task, forgiven=forgiven.get(task.id, 0))
            over += outcome in OVER
            tell = progress if outcome == DONE else say
            tell(f"[{over:{len(str(len(tasks)))}}/{len(tasks)}] {line}")
            in_a_row = in_a_row + 1 if outcome == INTERRUPTED else 0
            if outcome in (TO_RETRY, INTERRUPTED):
                queue.append(task)
            if in_a_row and not (why := ask().ending):
                if in_a_row > len(pauses):
                    why = f"{in_a_row} launches in a row did not come to their tasks, see the last line"
                else:
                    pause = pauses[in_a_row - 1]
                    say(f"no attempt of the task: the next launch is in {pause:g} s")
                    time.sleep(pause)
        if left := len(late) + len(queue):
            why = f"nothing more is launched: {why}" if queue else "there is no time for more"
            say(f"{left} left, {why}. Submit this allocation again, and it goes on from here")
        if queue and (now := ask()).preempted:
            _wait_to_be_ended(now, say)
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
    ask: Callable[[], Allocation],
    detail: Callable[[str], None],
) -> str:
    """Launch `task` once; a line for people on how it ended. `ask` is for the allocation, `detail` gets lines on the
    command and on its log."""
    attempt = state.next_attempt(task)
    state.move_aside(task, attempt - 1)  # what is there is not finished, or its result is spoilt
    log, ranks = state.log(task, attempt), state.ranks(task, attempt)
    command = [
        *launcher.command(task.ranks, task.threads),
        *("sh", "-c", STARTED, str(ranks)),
        *module(f"miniapps.{task.app}", *task.arguments, "--out", str(state.out / task.id)),
    ]
    detail(f"{task.id}: attempt {attempt}, log {shown(log)}\n$ {shlex.join(command)}")
    state.begin(task, attempt, env["FPNA_ALLOCATION_ID"])
    begin = time.monotonic()
    try:
        code, had = _launch(
            command,
            log,
            ranks,
            env,
            plan.campaign.path.parent,
            task.seconds,
            room,
            lambda pid: state.started(task, attempt, pid),
        )
    except (KeyboardInterrupt, interrupts.Terminated):
        with interrupts.held():
            state.end(
                task, attempt, INTERRUPTED, "the runner was interrupted", None, time.monotonic() - begin
            )
        raise
    except CannotStart as error:
        state.end(task, attempt, INTERRUPTED, str(error))
        return f"{task.id}  {INTERRUPTED}: {error}"
    except OSError as error:
        state.end(task, attempt, INTERRUPTED, str(error))
        raise StateError(f"{log}: {error.strerror}; make room, and start again") from None
    took = time.monotonic() - begin
    outcome, reason = judge(state.out / task.id, task, code, log, ranks, had)
    if outcome == FAILED and (why := ask().ending):
        outcome, reason = INTERRUPTED, f"the allocation ends ({why}): {reason}"
    reason = cut(reason)
    moved = state.end(task, attempt, outcome, reason, code, took)
    if outcome not in FINISHED and disk_full(log):
        raise StateError(
            f"{state.out}: the disk is full, as {log} says; make room and start again: what is finished is not repeated"
        )
    line = f"{task.id}  {outcome}  {took:.1f} s" + (f": {reason}" if reason else "")
    if outcome == DONE:
        return line
    return f"{line}  (log {shown(log)}" + (f", traces {shown(state.out / moved)})" if moved else ")")


def _launch(
    command: list[str],
    log: Path,
    ranks: Path,
    env: dict[str, str],
    cwd: Path,
    limit: float,
    room: float | None,
    started: Callable[[int], None],
) -> tuple[int | None, float]:
    """(exit code of `command`, seconds that its ranks had); all output is in `log`.

    The code is None where it was ended: `limit` seconds after the first line in the file `ranks`, or without one after
    its start, or when `room`, the seconds left of the allocation, was over. Raises CannotStart where there is no
    process to be had for it, OSError where the log cannot be written."""
    is_folder(log.parent)
    with open(log, "x", encoding="utf-8") as output, open(ranks, "x"):
        output.write(f"$ {shlex.join(command)}\n")
        output.flush()
        with interrupts.held():  # no signal between the start of a process and knowing of it
            try:
                process = subprocess.Popen(
                    command,
                    stdin=subprocess.DEVNULL,
                    stdout=output,
                    stderr=subprocess.STDOUT,
                    cwd=cwd,
                    env=env,
                    start_new_session=True,  # a Ctrl-C is for the runner, which then ends the ranks in good order
                )
            except (
                OSError
            ) as error:  # the process table or the memory is full, or the launcher is gone for a while
                raise CannotStart(f"{command[0]} cannot be started: {error.strerror}") from None
        begin, began = time.monotonic(), None
        try:
            started(process.pid)
            while True:
                if began is None and ranks_started(ranks):
                    began = time.monotonic()
                since = time.monotonic() - (began or begin)
                left = min(limit - since, inf if room is None else begin + room - time.monotonic())
                if left <= 0:
                    return None, since if began else 0.0
                with contextlib.suppress(subprocess.TimeoutExpired):
                    code = process.wait(left if began else min(left, LOOK_S))
                    return code, time.monotonic() - (began or begin)
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


def _try_launcher(
    launcher: Launcher, tasks: Collection[Task], pauses: Sequence[float], say: Callable[[str], None]
) -> None:
    """Start two ranks of a tiny program: they must find each other. A launcher that starts none is tried again after
    each of `pauses`. Raises LauncherError."""
    if max(task.ranks for task in tasks) < 2:
        return
    command = [*launcher.command(2, min(task.threads for task in tasks)), *snippet(doctor.PROBE)]
    for pause in (*pauses, None):
        try:
            output = doctor.output_of(command, launcher.environment)
        except OSError as error:
            output = f"{command[0]}: {error.strerror}"
        sizes = doctor.ranks_found(output)
        if sizes == [2]:
            return
        if sizes or pause is None:
            break
        say(
            f"{command[0]} does not start two ranks: {cut(doctor.gist(output))}; it is tried again in {pause:g} s"
        )
        time.sleep(pause)
    started = shlex.join(command[:-3])
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


def _whole(now: Allocation, planned: int) -> bool:
    """Whether an allocation is as long as planned: no other will have more time for what is launched first in it."""
    return now.start is not None and now.end is not None and now.end - now.start >= planned - 1


def _wait_to_be_ended(now: Allocation, say: Callable[[str], None]) -> None:
    """Wait for the end of a preempted job: one that ended by itself would not be put into the queue again."""
    say("the batch system ends this job and starts it again, if it is allowed to: waiting for that")
    until = (now.end or time.time()) + GONE_S
    while time.time() < until:
        time.sleep(1)


def _clean(env: Mapping[str, str]) -> dict[str, str]:
    """`env` without options of applications, which are the campaign's to give, and with this checkout importable."""
    kept = {key: value for key, value in env.items() if not key.startswith("FPNA_")}
    kept["PYTHONPATH"] = os.pathsep.join(filter(None, (str(ROOT), env.get("PYTHONPATH"))))
    return kept
