"""Start ranks with any launcher and MPI library of this machine."""

from __future__ import annotations

import itertools
import json
import os
import re
import shutil
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from miniapps.doctor import gist, oversubscribing
from miniapps.system import environment
from miniapps.system.processes import ended
from miniapps.system.python import module
from miniapps.tryout.ranks import RANKS

LIMIT_S = 90.0  # for one launch
ALL_S = 150.0  # for all launches together: none begins later
# Variables of batch systems. Without them a launcher starts ranks on this node and waits for no step of the job.
BATCH = ("SLURM_", "PBS_", "PJM_", "LSB_", "LS_", "SGE_", "FLUX_")
# There may be more ranks than cores: a waiting rank yields its core.
QUIET = {"OMP_NUM_THREADS": "1", "OMPI_MCA_mpi_yield_when_idle": "1"}
SRUN = ("--overlap", "--overcommit", "-N1")
NAMED = re.compile(r"libmpi\.so\.\d+$")


@dataclass(frozen=True)
class Launcher:
    """Words that start ranks, and their environment; `libmpi`: the library that mpi4py must load, else empty."""

    words: tuple[str, ...]
    env: Mapping[str, str]
    libmpi: str = ""

    @property
    def advised(self) -> str:
        """The command line that starts ranks of a user's program, without the options that only `fpna try` needs."""
        return " ".join([self.shown, *(word for word in self.words[1:] if word not in SRUN)])

    @property
    def shown(self) -> str:
        """The name of the launcher in messages: `mpirun` for the one on PATH, else its path."""
        program = self.words[0]
        name = Path(program).name
        return name if shutil.which(name) == program else program


@dataclass
class Launched:
    """The findings of the ranks by name, the launcher that started them, and why other launchers failed."""

    findings: dict[str, dict[str, Any]] = field(default_factory=dict)
    launcher: Launcher | None = None
    refused: list[str] = field(default_factory=list)
    remedy: str = ""


def launch(say: Callable[[str], None]) -> Launched:
    """Both findings of `miniapps.tryout.ranks`, by the first launcher whose ranks find each other."""
    found, begin = Launched(), time.monotonic()
    reasons: dict[str, str] = {}
    library = ""
    for launcher in launchers():
        if launcher.libmpi and found.findings:
            break
        left = ALL_S - (time.monotonic() - begin)
        if left <= 0:
            found.refused.append(f"other launchers: not tried, since the limit of {ALL_S:.0f} s was reached")
            break
        say(" ".join([launcher.shown, *launcher.words[1:], "-n", str(RANKS)]))
        lines, problem = _try(launcher, min(LIMIT_S, left))
        found.findings = {line["finding"]: line for line in lines if "finding" in line}
        if found.findings:
            found.launcher = launcher
            if problem:
                found.refused.append(f"{launcher.advised}: {problem}")
            break
        library = next((line["alone"] for line in lines if "alone" in line), library)
        key = launcher.advised + (f" with MPI4PY_LIBMPI={launcher.libmpi}" if launcher.libmpi else "")
        reasons.setdefault(key, problem)
    else:
        found.remedy = (
            f"use the mpirun of {library}, or let mpi4py load the launcher's library: "
            "MPI4PY_LIBMPI=/path/to/libmpi.so" if library
            else "pip install mpich brings an MPI library and its mpirun; on a supercomputer load the module of its MPI"
        )  # fmt: skip
    if not reasons and not found.findings:
        found.refused.append("no mpirun on PATH or beside python")
    found.refused = [f"{name}: {problem}" for name, problem in reasons.items()] + found.refused
    return found


def launchers() -> Iterator[Launcher]:
    """The launchers on PATH, beside python, and of Slurm inside an allocation; then the launchers of MPI once more,
    with mpi4py loading the library beside each."""
    on_path = shutil.which("mpirun") or shutil.which("mpiexec")
    beside = Path(sys.executable).parent / "mpirun"
    programs = [on_path] if on_path else []
    if beside.exists() and not (on_path and os.path.samefile(on_path, beside)):
        programs.append(str(beside))
    local = environment.without_rank(*BATCH) | QUIET
    of_mpi = []
    for program in programs:
        try:
            of_mpi.append(Launcher(tuple(oversubscribing(program)), local))
        except OSError:  # not executable, or for another machine
            continue
    yield from of_mpi
    srun = shutil.which("srun")
    if srun and "SLURM_JOB_ID" in os.environ:
        step = environment.without_rank() | QUIET
        yield from (Launcher((srun, *SRUN, *mpi), step) for mpi in ((), ("--mpi=pmi2",), ("--mpi=pmix",)))
    for launcher, libmpi in itertools.chain.from_iterable(
        ((launcher, libmpi) for libmpi in libraries(launcher.words[0])) for launcher in of_mpi
    ):
        env = {key: value for key, value in launcher.env.items() if key != "MPI4PY_MPIABI"}
        yield Launcher(launcher.words, env | {"MPI4PY_LIBMPI": libmpi}, libmpi)


def libraries(mpirun: str) -> list[str]:
    """The MPI libraries in the installation of this mpirun."""
    home = Path(mpirun).resolve().parents[1]
    files = (
        path
        for folder in ("lib", "lib64", "lib/*-linux-gnu")
        for path in sorted(home.glob(f"{folder}/libmpi.so.*"))
    )
    return [str(path) for path in files if NAMED.search(path.name)]


def _try(launcher: Launcher, limit: float) -> tuple[list[dict[str, Any]], str]:
    """(lines that the ranks printed, problem); the problem is empty on success."""
    command = [*launcher.words, "-n", str(RANKS), *module("miniapps.tryout.ranks")]
    try:
        done = ended(command, limit, launcher.env)
    except OSError as error:
        return [], f"it cannot be started: {error.strerror}"
    lines = [line for text in done.out.splitlines() if (line := _line(text)) is not None]
    if done.code is None:
        return lines, f"not finished after {limit:.0f} s"
    if done.code == 0:
        return lines, ""
    problem = next((line["problem"] for line in lines if "problem" in line), "")
    if alone := next((line["alone"] for line in lines if "alone" in line), ""):
        problem = f"each of its processes is alone in mpi4py's library, {alone}"
    return lines, problem or gist(done.err + done.out)


def _line(text: str) -> dict[str, Any] | None:
    try:
        line = json.loads(text)
    except ValueError:
        return None
    return line if isinstance(line, dict) else None
