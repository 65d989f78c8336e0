"""`python -m miniapps doctor`: lists what this machine has, what does not fit together, and how to repair it."""

from __future__ import annotations

import argparse
import importlib.util
import os
import platform
import re
import shlex
import shutil
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path

from kernels.as_json import Document, columns, document, rows
from kernels.commands.entry import command_line
from kernels.commands.options import add_json, add_loudness, add_version
from kernels.threads import cores
from miniapps.errors import UsageError
from miniapps.programs import handles
from miniapps.system import environment
from miniapps.system.processes import ended
from miniapps.system.python import snippet
from miniapps.system.world import LOADED, speaks, world
from miniapps.untrusted.arguments import Parser
from miniapps.untrusted.text import tell

Tried = Callable[[list[str], float, str], None]  # called with a command, its seconds and its output
TIMEOUT_S = 60
SHOWN = 8  # nodes
PACKAGES = (  # (name, its use, whether it is required)
    ("numpy", "everything", True),
    ("mpi4py", "everything", True),
    ("h5py", "traces", True),
    ("xxhash", "traces", True),
    ("torch", "learned closures and their sums", False),
    ("pandas", "analysis", False),
    ("matplotlib", "analysis: figures", False),
    ("jinja2", "analysis: the report", False),
    ("rich", "analysis: tables in the terminal", False),
)
PROBE = """
from mpi4py import MPI
library = " ".join(MPI.Get_library_version().strip("\\0 \\n").splitlines()[0].partition(",")[0].split())
if MPI.COMM_WORLD.rank == 0:
    print(f"library {library}\\nranks {MPI.COMM_WORLD.size}\\n", end="")
"""

DOCUMENTS = {
    "doctor": Document(
        columns("""
            ready | boolean
            verdict | text
        """),
        (
            rows(
                "tables.findings",
                "the checks",
                """
            what fact | text
            remedy | text | empty: in order
            hint | text
            """,
            ),
        ),
        "The command prints the document also with exit code 1, which means that something needs repair",
    ),
}


@dataclass(frozen=True)
class Finding:
    """One line of the table; `remedy`: how to repair an error; `hint`: how to add an optional part."""

    what: str
    fact: str
    remedy: str = ""
    hint: str = ""


def parser(prog: str = "python -m miniapps doctor") -> argparse.ArgumentParser:
    """The command line; `prog` is what the user typed before the options."""
    what = "Lists what this machine has, what does not fit together, and how to repair it."
    top = Parser(prog=prog, description=what, example=prog)
    add_json(top)
    add_loudness(
        top, "only errors and the verdict", "also, on standard error, every command that the check runs"
    )
    add_version(top)
    return top


@command_line
def main(argv: list[str] | None = None, prog: str = "python -m miniapps doctor") -> int:
    """Prints the table and a verdict; returns 0 if the applications can run here, else 1."""
    options = parser(prog).parse_args(argv)
    findings = []
    tried: Tried = _tell_command if options.verbose else _keep_silent
    first = speaks()  # other ranks print only errors
    place = "" if first else f" (on {platform.node()})"
    for finding in findings_here(tried):
        findings.append(finding)
        if not options.json and (finding.remedy or (first and not options.quiet)):
            mark = "!!" if finding.remedy else "  "
            tell(f"{mark} {finding.what:<16} {finding.fact}{place}")
            if note := finding.remedy or finding.hint:
                tell(f"   {'':<16} -> {note}")
    wrong = [finding.what for finding in findings if finding.remedy]
    verdict = f"{len(wrong)} to repair: {', '.join(wrong)}" if wrong else "Ready: the applications run here."
    if first and options.json:
        tell(document(1, "doctor", ready=not wrong, verdict=verdict,
                      tables={"findings": [vars(finding) for finding in findings]}), keep="\n")  # fmt: skip
    elif first:
        tell(verdict if options.quiet else f"\n{verdict}", keep="\n")
    return 1 if wrong else 0


def _tell_command(command: list[str], seconds: float, output: str) -> None:
    tell(f"tried {shlex.join(command)}: {seconds:.2f} s", sys.stderr)
    for line in output.splitlines():
        tell(f"  | {line}", sys.stderr)


def _keep_silent(command: list[str], seconds: float, output: str) -> None:
    """In place of `_tell_command`."""


def findings_here(tried: Tried = _keep_silent) -> Iterator[Finding]:
    """Yields the findings one by one, because some take seconds; calls `tried` for every command."""
    yield Finding("node", platform.node())
    yield Finding("python", f"{platform.python_version()} {sys.executable}")
    yield from packages()
    yield from handles_taken()
    yield from mpi(tried)
    yield native()
    yield compiler(tried)
    yield from cuda(tried)
    yield Finding("processor", f"{environment.cpu_model()}, {environment.instructions()}")
    yield Finding("cores", f"{cores()} for this process")
    yield memory()
    yield from ranks()


def packages() -> Iterator[Finding]:
    """Required and optional packages."""
    for name, use, needed in PACKAGES:
        try:
            yield Finding(name, metadata.version(name))
        except metadata.PackageNotFoundError:
            install = f"pip install {name}"
            if needed:
                yield Finding(name, f"not installed, needed for {use}", remedy=install)
            else:
                yield Finding(name, f"not installed, needed only for {use}", hint=install)


def handles_taken() -> Iterator[Finding]:
    """Packages that use communicators, and whether fpna.wrap covers their sums."""
    for name, distribution in handles.ADD.items():
        if (version := handles.installed(name, distribution)) is not None:
            yield Finding(
                name,
                f"{version or 'no version'}: takes the MPI handle of a communicator, so its sums bypass fpna.wrap",
                hint="fpna run --guarantee exact -- python PROGRAM also covers its sums",
            )
    for name, distribution in handles.CALL.items():
        if (version := handles.installed(name, distribution)) is not None:
            yield Finding(name, f"{version or 'no version'}: calls mpi4py, so fpna.wrap covers its sums")


def mpi(tried: Tried) -> Iterator[Finding]:
    """The MPI library that mpi4py loads, and whether mpirun belongs to it."""
    if importlib.util.find_spec("mpi4py") is None:
        return
    # Open MPI asks Slurm for its rank: with the variables of a job step it would end this single process.
    env = environment.without_rank("SLURM_")
    alone = _output(snippet(PROBE), tried, env)
    beside = Path(sys.executable).parent / "mpirun"
    on_path = shutil.which("mpirun")
    mpirun = on_path or (str(beside) if beside.exists() else None)
    # Within a step of srun, mpirun would wait for the cores that the step itself holds.
    launched = environment.launched()
    two = ""
    if mpirun and launched is None:
        two = _output([*oversubscribing(mpirun), "-n", "2", *snippet(PROBE)], tried)
    library = next((line[8:] for line in (alone + two).splitlines() if line.startswith("library ")), "")
    if not library:
        chosen = " (MPI4PY_LIBMPI is set)" if "MPI4PY_LIBMPI" in os.environ else ""
        remedy = "pip install mpich brings one; on a supercomputer load the module of its MPI"
        yield Finding("MPI library", f"mpi4py finds none{chosen}: {gist(alone)}", remedy=remedy)
        return
    only = "" if "library" in alone else "only processes of mpirun find it; a single process does not"
    yield Finding("MPI library", library, hint=only)
    if mpirun is None:
        hint = "pip install mpich, or start through the batch system (srun); one rank needs no launcher"
        yield Finding("mpirun", "none on PATH or beside python", hint=hint)
        return
    if launched is not None:
        yield Finding("mpirun", f"{mpirun}, not tried: {launched.name} started this process")
        return
    sizes = ranks_found(two)
    if sizes == [2]:
        hint = "" if on_path else f"not on PATH: write {mpirun}, or activate the environment"
        yield Finding("mpirun", f"{mpirun} works: two ranks found each other", hint=hint)
        return
    use = str(beside) if beside.exists() and str(beside) != mpirun else f"the mpirun of {library}"
    yield Finding(
        "mpirun",
        f"{mpirun} does not fit mpi4py's library: "
        + ("each of two processes was alone" if sizes else gist(two)),
        remedy=f"use {use}, or let mpi4py load this mpirun's library: {LOADED}",
    )


def ranks() -> Iterator[Finding]:
    """Whether the ranks of a launcher find each other, and on which nodes. Starts MPI; yields nothing for one rank."""
    launched = environment.launched()
    if launched is None or launched.size == 1:
        return
    try:
        comm = world()
    except UsageError:
        yield Finding(
            "ranks",
            f"{launched.name} started {launched.size} processes, and each is alone in mpi4py's library",
            remedy=f"use the mpirun of that library, or let mpi4py load the launcher's ({LOADED}); with srun, choose "
            "--mpi",
        )
        return
    nodes = Counter(comm.allgather(platform.node()))
    shown = ", ".join(f"{node} ({count})" for node, count in list(nodes.items())[:SHOWN])
    more = f" and {len(nodes) - SHOWN} more" if len(nodes) > SHOWN else ""
    yield Finding(
        "ranks", f"{comm.size} found each other, on {len(nodes)} node{'s' * (len(nodes) > 1)}: {shown}{more}"
    )


def oversubscribing(mpirun: str) -> list[str]:
    """`mpirun` with the options that it needs to start more ranks than cores."""
    version = output_of([mpirun, "--version"])
    if "Open MPI" not in version and "PRRTE" not in version:
        return [mpirun]
    return [mpirun, "--oversubscribe", *(["--allow-run-as-root"] if os.geteuid() == 0 else [])]


def ranks_found(output: str) -> list[int]:
    """The number of ranks that each rank 0 of PROBE printed: [2] for two ranks that found each other."""
    return [int(size) for size in re.findall(r"^ranks (\d+)$", output, re.MULTILINE)]


def native() -> Finding:
    """The C++ kernels."""
    try:
        from kernels import _native
    except ImportError as error:
        remedy = (
            "in a checkout: make environment, or python setup.py build_ext --inplace; needs a C++ compiler"
        )
        return Finding("kernels._native", f"not built ({error})", remedy=remedy)
    return Finding("kernels._native", f"built, {environment.instructions()}: {_native.__file__}")


def compiler(tried: Tried) -> Finding:
    """A C++ compiler, needed only to build."""
    names = (os.environ.get("CXX", "").split()[:1], ["c++"], ["g++"], ["clang++"])
    path = next((command for name in names if name and (command := shutil.which(name[0]))), None)
    if path is None:
        hint = "apt install g++, dnf install gcc-c++, module load gcc, or conda install -c conda-forge gxx"
        return Finding("compiler", "none found; needed only to build", hint=hint)
    return Finding("compiler", f"{path}: {_output([path, '--version'], tried).partition(chr(10))[0]}")


def cuda(tried: Tried) -> Iterator[Finding]:
    """CUDA devices as CuPy and torch see them."""
    reason = environment.no_cuda()
    if reason:
        yield Finding("CUDA (cupy)", reason.partition(";")[0], hint=reason.partition("; ")[2])
    else:
        import cupy

        names = [
            cupy.cuda.runtime.getDeviceProperties(i)["name"].decode()
            for i in range(cupy.cuda.runtime.getDeviceCount())
        ]
        yield Finding("CUDA (cupy)", ", ".join(names))
    if importlib.util.find_spec("torch") is not None:
        text = "import torch; print('cuda', torch.version.cuda, torch.cuda.device_count())"
        output = _output(snippet(text), tried)
        built = next((line.split()[1:] for line in output.splitlines() if line.startswith("cuda ")), None)
        if built is None:
            remedy = "pip install --force-reinstall torch"
            yield Finding("CUDA (torch)", f"torch cannot be imported: {gist(output)}", remedy=remedy)
        elif built[0] == "None":
            yield Finding("CUDA (torch)", "this torch is built without CUDA")
        else:
            yield Finding("CUDA (torch)", f"CUDA {built[0]}, {built[1]} devices")


def memory() -> Finding:
    """Memory of the machine."""
    try:
        lines = Path("/proc/meminfo").read_text().splitlines()
    except OSError:
        return Finding("memory", "unknown")
    kib = {line.split(":")[0]: int(line.split()[1]) for line in lines if line.endswith("kB")}
    total, free = (kib.get(key, 0) / 2**20 for key in ("MemTotal", "MemAvailable"))
    return Finding("memory", f"{total:.1f} GiB, {free:.1f} GiB available")


def _output(command: list[str], tried: Tried, env: Mapping[str, str] | None = None) -> str:
    """`output_of`, reported to `tried`."""
    begin = time.perf_counter()
    output = output_of(command, env)
    tried(command, time.perf_counter() - begin, output)
    return output


def output_of(command: list[str], env: Mapping[str, str] | None = None) -> str:
    """The output of `command` in the environment `env` (default: this one without the variables of a rank), after at
    most TIMEOUT_S. Raises OSError if the command cannot be started."""
    if env is None:
        env = environment.without_rank()
    done = ended(command, TIMEOUT_S, dict(env) | {"OMP_NUM_THREADS": "1"})
    return f"no end after {TIMEOUT_S} s" if done.code is None else done.out + done.err


def gist(text: str) -> str:
    """The line of an output that most probably states the error."""
    lines = [line.strip() for line in text.splitlines() if line.strip(" -=\t")]
    return next(
        (line for line in lines[::-1] if "rror" in line or "unsupported" in line), [*lines, "no output"][0]
    )
