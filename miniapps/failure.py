"""How a run ends before its time: one message, the trace and result.json as far as they go, and MPI_Abort."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import threading
import time
import traceback
from pathlib import Path
from typing import Any

from kernels.guarantees import ChoiceError
from miniapps import interrupts, outcome
from miniapps.blocks import BlocksError
from miniapps.config import UsageError
from miniapps.interrupts import Terminated
from miniapps.launch import Launch
from miniapps.outcome import RunError
from miniapps.received.text import tell
from miniapps.trace import TraceError

DONE, FAILED, BAD_USAGE, NOT_VERIFIED, INTERRUPTED, TERMINATED = 0, 1, 2, 3, 130, 143

USAGE = (UsageError, ChoiceError, BlocksError)
# Errors that explain themselves: a traceback would only hide what they say.
CLEAR = (*USAGE, RunError, TraceError, KeyboardInterrupt)

HEARD_S = 0.5  # for the launcher to pass on what was said: it drops it when the job is aborted
PATIENCE_S = 10.0  # how long a rank that failed later leaves the abort to the one that spoke for the run
LAST_RESORT_S = 30  # after which SIGALRM kills a rank that cannot even fail, say on a dead file system


def fail(error: BaseException, app: str, comm: Any, launch: Launch | None, ctx: Any) -> int:
    """Say what happened, save what can be saved, and end the whole job; returns only where the rank is alone.

    `launch` and `ctx` are None as far as the run had not come to them. Of several ranks that fail, the first
    to write result.json speaks.
    """
    interrupts.ignore()
    if threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
        signal.alarm(LAST_RESORT_S)
    code = exit_code(error)
    first = True
    try:
        message, first = _save(error, code, app, comm, launch, ctx)
    except Exception as another:  # whatever fails here must not keep the job from ending
        message = [f"{app}: rank {comm.rank} of {comm.size}: {describe(error)} (then: {describe(another)})"]
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
    """The exit code that stands for `error`."""
    if isinstance(error, USAGE):
        return BAD_USAGE
    if isinstance(error, Terminated):
        return TERMINATED
    return INTERRUPTED if isinstance(error, KeyboardInterrupt) else FAILED


def describe(error: BaseException) -> str:
    """`error` in words for people."""
    if isinstance(error, Terminated):
        return "ended by SIGTERM (a time limit, or someone cancelled the job)"
    if isinstance(error, KeyboardInterrupt):
        return "interrupted"
    if isinstance(error, CLEAR):
        return str(error)
    return f"{type(error).__name__}: {error}" if str(error) else type(error).__name__


def _save(error, code, app, comm, launch, ctx) -> tuple[list[str], bool]:
    """(lines of the message, whether this rank is the one to print them)."""
    where = f"rank {comm.rank} of {comm.size}"
    if ctx is not None:
        ctx.progress.clear()
        where += f", repeat {ctx.repeat}, step {ctx.tracer.step}"
    message = [f"{app}: {where}: {describe(error)}"]
    if ctx is not None:
        with contextlib.suppress(TraceError):  # it may be what failed
            ctx.tracer.close(complete=False)
        message.append(f"  trace: {ctx.tracer.path} (marked incomplete)")
    first = True
    if launch is not None:
        told = {"error": message[0], "failed_rank": comm.rank}
        with contextlib.suppress(OSError):
            first = outcome.write(launch.out, launch.result("failed", code) | told, comm.rank)
    return message + _keep_traceback(error, launch, comm.rank), first


def _keep_traceback(error: BaseException, launch: Launch | None, rank: int) -> list[str]:
    """Write the traceback of an error that does not explain itself into the run; lines for the message."""
    if isinstance(error, (*CLEAR, Terminated)):
        return []
    text = "".join(traceback.format_exception(error))
    if launch is None or launch.options.log_level == "debug":
        return [text.rstrip()]
    path = Path(launch.out) / f"error-rank-{rank:05d}.txt"
    try:
        path.write_text(text, encoding="utf-8")
    except OSError:
        return [text.rstrip()]
    return [f"  traceback: {path}"]
