"""Runs the tasks of an allocation, one after the other, and records how each ended."""

from __future__ import annotations

import shlex
import socket
import subprocess
import time
from collections import deque
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from jobs import processors
from jobs.allocation import Allocation, endless, of_batch
from jobs.launcher import GRACE_S, CannotStart, Launcher, launch, stop, try_launcher
from jobs.plan import Plan, Task
from jobs.processes import alive, why_not_own
from jobs.records import Begin, Process
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
from jobs.verdict import STARTED, disk_full, judge
from jobs.words import cut
from miniapps.system import environment, interrupts
from miniapps.system.python import module

MARGIN_S = 30  # before the end of an allocation in which no task may run, so that its files are closed
SLACK = 1.5  # the measured time of a task is multiplied by this to decide whether it fits into the time left
# Seconds before the next launch, after each of several launches in a row that did not reach their tasks. Then the
# runner stops.
PAUSES = (
    1.0,
    2.0,
    5.0,
    10.0,
    20.0,
    30.0,
    60.0,
    60.0,
)  # three minutes, in which a scheduler's controller can restart
PAUSES_HERE = (1.0, 2.0, 5.0)  # shorter without a batch system, since a person waits
GONE_S = 600  # time after the end of its allocation that a preempted job waits to be ended


@dataclass(frozen=True)
class Ended:
    """Counts of the tasks that failed for good or are left when a runner ends."""

    failed: int = 0  # for good
    left: int = 0

    def __add__(self, other: Ended) -> Ended:
        return Ended(self.failed + other.failed, self.left + other.left)


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
    """Runs the tasks of one allocation that are left, in order; returns the counts of failed and left tasks.

    Failed tasks are repeated at the end, up to their number of retries. `progress` (default: `say`) gets lines on the
    beginning and on tasks that are done, `detail` on every command and its log before it starts, `say` on all else.

    `limited`: a batch system ends the allocation. A task that would not end by then is not begun, and no task once the
    batch system reports the end. A signal that raises (miniapps.system.interrupts) ends the running task, which is left
    for the next call. A launch that did not start its ranks, or whose ranks were ended from outside, is repeated after
    the other tasks and after a pause. The runner stops after more such launches in a row than there are `pauses`
    (seconds; default: PAUSES or PAUSES_HERE).

    Raises Locked, StateError, LauncherError; Refused if a file or directory of the campaign is of another kind, such as
    a link.
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
            recover_all(state, standings, say)
            standings = survey(plan.campaign.out, tasks)
        forgiven = {
            s.task.id: len(s.record.failures) for s in standings if retry_failed and s.state == FAILED
        }
        queue = deque(s.task for s in standings if not s.over or s.task.id in forgiven)
        progress = progress or say
        progress(_opening(plan, allocation, standings, queue))
        now = ask()
        if queue and not now.ending:
            try_launcher(launcher, queue, pauses if limited else (), say)
        known = measured(survey(plan.campaign.out, plan.tasks))
        env = dict(launcher.environment) | {"FPNA_ALLOCATION_ID": allocation_id}
        over, in_a_row, launched = len(tasks) - len(queue), 0, False
        late: list[Task] = []  # tasks that do not fit into the time left
        why = ""  # the reason to launch no more tasks
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
                    why = f"{in_a_row} launches in a row did not reach their tasks, see the last line"
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
    """The id of the allocation for traces: the batch system's id.

    Without one, or if `local` since several allocations run in one place, a new id with the time is made."""
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
    """Launches `task` once; returns a line for people on its end.

    `ask` returns the allocation, `detail` gets lines on the command and its log."""
    attempt = state.next_attempt(task)
    state.move_aside(task, attempt - 1)  # a run there is not finished, or its result.json is damaged
    log, ranks = state.log(task, attempt), state.ranks(task, attempt)
    command = [
        *launcher.command(task.ranks, task.threads),
        *("sh", "-c", STARTED, str(ranks)),
        *processors.held(task.cpu),
        *module(f"miniapps.{task.app}", *task.arguments, "--out", str(state.out / task.id)),
    ]
    detail(f"{task.id}: attempt {attempt}, log {shown(log)}\n$ {shlex.join(command)}")
    state.begin(task, attempt, env["FPNA_ALLOCATION_ID"])
    begin = time.monotonic()
    try:
        code, had = launch(
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
            f"{state.out}: the disk is full, as {log} says; make room and start again: finished tasks are not repeated"
        )
    line = f"{task.id}  {outcome}  {took:.1f} s" + (f": {reason}" if reason else "")
    if outcome == DONE:
        return line
    return f"{line}  (log {shown(log)}" + (f", traces {shown(state.out / moved)})" if moved else ")")


def recover_all(state: State, standings: Iterable[Standing], say: Callable[[str], None]) -> None:
    """Settles the attempts whose runner is gone: ends launches that still run, and records the outcomes."""
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
    """Ends the launch of an attempt if it still runs; in any doubt leaves the process alone and says so."""

    def own() -> bool:
        return alive(process) is True and not why_not_own(process, run)

    living = alive(process)
    if living is False:
        return
    if own():
        say(f"{task.id}: still runs without its runner as process {process.pid}; it is ended")
        stop(process.pid, lambda limit: _wait_for(process, limit), still=own)
        return
    why = why_not_own(process, run) if living else "its host, boot or start is another or not recorded"
    say(
        f"{task.id}: process {process.pid} on {cut(process.host)} may be the launch of its attempt {begun.attempt}, "
        f"and is left alone, because {cut(why)}; if `ps -fp {process.pid}` there shows that it is, end it: "
        f"kill -- -{process.pid}"
    )


def _wait_for(process: Process, limit: float) -> None:
    """Waits for a process that is no child of this one. Raises subprocess.TimeoutExpired after `limit` seconds."""
    until = time.monotonic() + limit
    while alive(process):
        if time.monotonic() > until:
            raise subprocess.TimeoutExpired(str(process.pid), limit)
        time.sleep(0.05)


def _opening(plan: Plan, allocation: int, standings: list[Standing], queue: Collection[Task]) -> str:
    failed = sum(s.state == FAILED for s in standings)
    return (
        f"allocation {allocation}, of {plan.campaign.allocations} in all: {len(standings)} tasks, "
        f"{len(queue)} to run" + (f", {failed} failed for good before" if failed else "")
    )


def _needed(task: Task, known: Mapping[tuple[Any, ...], float]) -> float:
    """The seconds that a task may take: its measured time with slack, at most its limit."""
    before = known.get(task.configuration)
    return task.seconds if before is None else min(task.seconds, SLACK * before + GRACE_S)


def _whole(now: Allocation, planned: int) -> bool:
    """True if an allocation is as long as planned: no other will have more time for its first launch."""
    return now.start is not None and now.end is not None and now.end - now.start >= planned - 1


def _wait_to_be_ended(now: Allocation, say: Callable[[str], None]) -> None:
    """Waits until the batch system ends this preempted job: a job that ends by itself is not queued again."""
    say("the batch system ends this job and starts it again, if it is allowed to: waiting for that")
    until = (now.end or time.time()) + GONE_S
    while time.time() < until:
        time.sleep(1)
