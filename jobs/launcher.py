"""Finds and tries the launcher of this machine or of a site; starts ranks, waits for them and ends them."""

from __future__ import annotations

import contextlib
import os
import shlex
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from math import inf
from pathlib import Path

import miniapps
from jobs.files import is_folder
from jobs.plan import Plan, Task
from jobs.sites import Site
from jobs.state import StateError
from jobs.verdict import ranks_started
from jobs.words import cut
from miniapps import doctor
from miniapps.system import environment, interrupts, world
from miniapps.system.python import snippet

ROOT = Path(miniapps.__file__).resolve().parent.parent
GRACE_S = 10  # between SIGTERM, after which the ranks save their data, and SIGKILL
LOOK_S = 0.5  # between two checks whether a rank has started


class LauncherError(Exception):
    """Ranks cannot be started; the message says why and what to do."""


class CannotStart(Exception):
    """The program that starts ranks cannot be started now; the message names it and the reason."""


@dataclass(frozen=True)
class Launcher:
    """A way to start ranks: `command(ranks, threads)` returns the words to put before a program."""

    command: Callable[[int, int], list[str]]
    environment: Mapping[str, str]  # the complete environment of the launch


def here(asked: str | None = None) -> Launcher:
    """The launcher of this machine: `asked`, a command to which -n is added, else the mpirun beside this Python, else
    the mpirun on PATH. Raises LauncherError."""
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
    """The launcher of `site`, for use inside an allocation."""
    gpus = plan.campaign.at(site.name).gpus_per_node
    return Launcher(
        lambda ranks, threads: site.command(ranks, plan.ranks_per_node[threads], threads, gpus),
        _clean(os.environ),
    )


def try_launcher(
    launcher: Launcher, tasks: Collection[Task], pauses: Sequence[float], say: Callable[[str], None]
) -> None:
    """Starts two ranks of a tiny program, which must find each other. Raises LauncherError.

    A launcher that starts no rank is tried again after each of `pauses`, in seconds."""
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


def launch(
    command: list[str],
    log: Path,
    ranks: Path,
    env: dict[str, str],
    cwd: Path,
    limit: float,
    room: float | None,
    started: Callable[[int], None],
) -> tuple[int | None, float]:
    """Runs `command` with all output in the file `log`; returns (exit code, seconds that its ranks had).

    The code is None if the command had to be ended: `limit` seconds after the first line in the file `ranks` (without a
    line, after the start), or after `room`, the seconds left in the allocation. Raises CannotStart if no process can be
    started, OSError if the log cannot be written."""
    is_folder(log.parent)
    with open(log, "x", encoding="utf-8") as output, open(ranks, "x"):
        output.write(f"$ {shlex.join(command)}\n")
        output.flush()
        with interrupts.held():  # no signal before the variable `process` is set, so that it can be ended
            try:
                process = subprocess.Popen(
                    command,
                    stdin=subprocess.DEVNULL,
                    stdout=output,
                    stderr=subprocess.STDOUT,
                    cwd=cwd,
                    env=env,
                    start_new_session=True,  # Ctrl-C reaches only the runner, which then ends the ranks
                )
            except (
                OSError
            ) as error:  # the process table or the memory is full, or the launcher is temporarily missing
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
                    stop(process.pid, process.wait)


def stop(pid: int, wait: Callable[[float], object], still: Callable[[], bool] = lambda: True) -> None:
    """Ends a process and its group: by SIGTERM, and after GRACE_S by SIGKILL. Raises StateError if it does not end.

    `still` returns True while `pid` is still the number of the intended process."""
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


def _clean(env: Mapping[str, str]) -> dict[str, str]:
    """`env` without variables FPNA_*, since the campaign sets all options, and with this checkout on PYTHONPATH."""
    kept = {key: value for key, value in env.items() if not key.startswith("FPNA_")}
    kept["PYTHONPATH"] = os.pathsep.join(filter(None, (str(ROOT), env.get("PYTHONPATH"))))
    return kept
