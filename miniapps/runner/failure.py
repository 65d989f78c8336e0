"""The end of a failed run: one message, the trace and result.json as far as they exist, and MPI_Abort."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import threading
import time
import traceback
from dataclasses import dataclass, field
from typing import Any

from kernels.guarantees import ChoiceError
from miniapps.errors import RunError, Stalled, UsageError
from miniapps.layout.blocks import BlocksError
from miniapps.runner import outcome
from miniapps.runner.launch import Launch
from miniapps.runner.outcome import RESULT
from miniapps.system import interrupts, peers
from miniapps.system.interrupts import Terminated
from miniapps.system.place import Place, PlaceError
from miniapps.trace import TraceError
from miniapps.untrusted.text import tell

DONE, FAILED, BAD_USAGE, NOT_VERIFIED, INTERRUPTED, TERMINATED = 0, 1, 2, 3, 130, 143

USAGE = (UsageError, ChoiceError, BlocksError)
# Errors that explain themselves: a traceback would only hide their message.
CLEAR = (*USAGE, RunError, Stalled, PlaceError, TraceError, KeyboardInterrupt)
INTERRUPTIONS = (Terminated, KeyboardInterrupt)  # sent by others: no failure of the rank that receives one

HEARD_S = 0.5  # lets the launcher forward the message, which it drops when the job is aborted
PATIENCE_S = 10.0  # a rank that fails later waits so long for the first one to abort the job
SHOWN = 8  # finished repeats in the message, at most
GRACE_S = (
    2.0  # other nodes wait so long for the node of rank 0, where no result.json shows which failed first
)
LAST_RESORT_S = 30  # after which SIGALRM kills a rank that cannot end, say on a dead file system


# The watchdog's thread ends a stalled rank, whose main thread may fail at the same time: only one of them reports.
_failing = threading.Lock()


@dataclass
class State:
    """The progress of a rank, for the message and files of a failure."""

    launch: Launch | None = None
    place: Place | None = None
    peers: peers.Peers | None = None
    ctx: Any = None
    outcomes: list[outcome.Outcome] = field(default_factory=list)  # of the finished repeats


def fail(error: BaseException, app: str, comm: Any, state: State) -> int:
    """Print what happened, save what can be saved, and end the whole job; returns only in a run of one rank.

    If several ranks fail, one prints: within a node the first to claim the directory of the run, among nodes the first
    to write result.json.
    """
    interrupts.ignore()
    with _failing:
        if threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGALRM, signal.SIG_DFL)
        signal.alarm(LAST_RESORT_S)
        code = exit_code(error)
        first = True
        try:
            message, first = _save(error, code, app, comm, state)
        except Exception as another:  # no error here may keep the job from ending
            message = [
                f"{app}: rank {comm.rank} of {comm.size}: {describe(error)} (then: {describe(another)})"
            ]
        if first:
            with contextlib.suppress(OSError):
                sys.stdout.flush()
                tell("\n".join(message), sys.stderr, keep="\n")
        if comm.size == 1:
            signal.alarm(0)
            return code
        time.sleep(HEARD_S if first else PATIENCE_S)
        comm.Abort(code)
        os._exit(code)


def exit_code(error: BaseException) -> int:
    """The exit code for `error`."""
    if isinstance(error, USAGE):
        return BAD_USAGE
    if isinstance(error, Terminated):
        return TERMINATED
    return INTERRUPTED if isinstance(error, KeyboardInterrupt) else FAILED


def describe(error: BaseException) -> str:
    """`error` in words for people."""
    if isinstance(error, Terminated):
        return "ended by SIGTERM (a time limit, a cancelled job, or the launcher after another rank failed)"
    if isinstance(error, KeyboardInterrupt):
        return "interrupted"
    if isinstance(error, CLEAR):
        return str(error)
    return f"{type(error).__name__}: {error}" if str(error) else type(error).__name__


def _save(error, code, app, comm, state: State) -> tuple[list[str], bool]:
    """Save trace and result.json; returns (lines of the message, whether this rank prints them)."""
    launch, place, ctx = state.launch, state.place, state.ctx
    if isinstance(error, Stalled):
        first = error.speaks
    elif place is None:
        first = comm.rank == 0 or not isinstance(error, PlaceError)  # all ranks raise a PlaceError
    else:
        first = place.claim()
    died = _died(error, state)
    where = f"rank {comm.rank} of {comm.size}"
    if ctx is not None:
        ctx.progress.clear()
        where += f", repeat {ctx.repeat}, step {ctx.tracer.step}"
    if died is None:
        message = [f"{app}: {where}: {describe(error)}"]
    else:
        message = [
            f"{app}: rank {died} of {comm.size} died without a word: killed, or out of memory; noticed by {where}: "
            + ("ended by SIGTERM" if isinstance(error, Terminated) else describe(error))
        ]
    if ctx is not None:
        kept = ctx.tracer.where()
        done = [k for k, repeat in enumerate(state.outcomes) if repeat.fingerprint][-SHOWN:]
        with contextlib.suppress(TraceError):  # the trace itself may have failed
            ctx.tracer.close(complete=False)
        message.append(
            f"  trace: {kept} (marked incomplete)" if kept else f"  trace: {ctx.tracer.path} is lost"
        )
        message += [f"  repeat {k} was done: FINGERPRINT state={state.outcomes[k].fingerprint}" for k in done]
    others = (
        isinstance(error.__cause__, FileExistsError) and ctx is None
    )  # two runs began in one directory at once
    if first and place is not None and launch is not None and not others:
        blamed = comm.rank
        if died is not None or isinstance(error, INTERRUPTIONS):
            blamed = died
        elif isinstance(error, Stalled):
            blamed = error.rank
        error_fields = {"error": message[0], "failed_rank": blamed}
        try:
            outcome.write(place, launch.result("failed", code if died is None else FAILED) | error_fields)
        except FileExistsError:
            first = isinstance(error, Stalled)  # another node's message may never have left it
        except OSError as trouble:
            message.append(f"  {RESULT}: cannot be written: {trouble.strerror or trouble}")
            first = died is None  # the dead rank may have printed a message already
            if state.peers is not None and 0 not in state.peers:
                time.sleep(GRACE_S)
    return message + _keep_traceback(error, state, comm.rank), first


def _died(error: BaseException, state: State) -> int | None:
    """The rank of this node whose death caused `error` here: the launcher's SIGTERM, an MPI error, or a stall."""
    from mpi4py import MPI

    noticed = (*INTERRUPTIONS, MPI.Exception, Stalled)
    return peers.dead(state.peers or {}) if isinstance(error, noticed) else None


def _keep_traceback(error: BaseException, state: State, rank: int) -> list[str]:
    """Write the traceback of an error outside CLEAR into the run; returns lines for the message."""
    if isinstance(error, (*CLEAR, Terminated)):
        return []
    text = "".join(traceback.format_exception(error))
    if state.place is None or state.launch is None or state.launch.options.log_level == "debug":
        return [text.rstrip()]
    name = f"error-rank-{rank:05d}.txt"
    try:
        state.place.write(name, text)
    except OSError:
        return [text.rstrip()]
    return [f"  traceback: {state.place.path / name}"]
