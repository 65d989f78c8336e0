"""Checks and times the code on GPUs: `make gpu`, or `python -m benchmarks.gpu`. Needs CuPy and a device, no network.

sums      sums and dot products: the bits of their twins on the CPU; bandwidth, against a copy and against CUB
shapes    times of the launch shapes
scatter   scatter-adds: the bits of their definition; time against atomic additions and torch's
spmv      sparse products: the bits of the CPU; bandwidth against a copy and cuSPARSE
contract  products of matrices, convolutions and their gradients: the bits of the CPU; time against cuBLAS
attention attention and its gradients: the bits of the CPU; time against torch's
vectors   fused vector updates and dot products: the bits of the CPU; bandwidth against a copy
wires     codecs: the bytes and bits of the CPU; time against copying the elements
kernels   block stencils, halo exchange and operators of the flow: the bits of the plain NumPy definition
coupled   whole runs of the flow on one rank, without a launcher
solver    whole solves in the same way

Each part runs in a separate process, since an error of the device ends all further work of the process. Prints tables
and writes benchmarks/results/DEVICE-DATE.json after each part. Exit code 0, 3 if a check failed, 2 without CuPy or a
device.
"""

import argparse
import json
import re
import subprocess
import sys
import tempfile
import traceback
from datetime import UTC, datetime
from importlib import import_module
from pathlib import Path

from benchmarks.harness.launching import ROOT
from benchmarks.harness.results import add_quiet, report, save, unused
from kernels.threads import cores
from miniapps.system import environment

# Module, function, title. Imported one by one: some need the C++ kernels, or mpi4py.
PARTS = {
    "sums": ("sums", "sum_rows", "Sums and dot products"),
    "shapes": ("sums", "shape_rows", "Launch shapes"),
    "scatter": ("scatter", "scatter_rows", "Scatter-adds"),
    "spmv": ("spmv", "spmv_rows", "Sparse products"),
    "contract": ("contract", "contract_rows", "Products and convolutions"),
    "attention": ("attention", "attention_rows", "Attention"),
    "vectors": ("vectors", "vector_rows", "Fused vector updates"),
    "wires": ("wires", "wire_rows", "Codecs of wires"),
    "kernels": ("stencil", "kernel_rows", "Block stencils, against one core of the CPU"),
    "coupled": ("coupled", "coupled_rows", "Whole runs, against one core of the CPU"),
    "solver": ("solver", "solver_rows", "Whole solves, against one core of the CPU"),
}


def main() -> int:
    """Checks and times; returns the exit code."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.gpu", description=__doc__.split("\n")[0])
    parser.add_argument("--out", default="benchmarks/results", help="directory of the JSON file")
    parser.add_argument("--only", nargs="+", choices=PARTS, default=list(PARTS), help="some of the parts")
    parser.add_argument(
        "--quick", action="store_true", help="small problems and single calls: to try the program itself"
    )
    parser.add_argument("--limit", type=float, default=900.0, help="seconds for a part (default %(default)s)")
    parser.add_argument("--rows", help=argparse.SUPPRESS)  # for the process of one part: the file of its rows
    add_quiet(parser)
    options = parser.parse_args()
    if options.rows:
        Path(options.rows).write_text(json.dumps(rows_of(options.only[0], options)))
        return 0
    if reason := environment.no_cuda():
        print(f"make gpu: {reason}; GPU_PYTHON=... names a Python that has CuPy", file=sys.stderr)
        return 2
    where = machine(options.quick)
    name = re.sub(r"\W+", "-", where["device"].lower()).strip("-") + "-" + where["date"][:10]
    path = unused(Path(options.out) / f"{name}.json")
    sections: dict[str, list[dict]] = {}
    for part in options.only:
        sections[part] = apart(part, options)
        report(f"{PARTS[part][2]}, {where['device']}", sections[part], where, None)
        save({"machine": where} | sections, path, again=True)
    failed = [row["what"] for rows in sections.values() for row in rows if row["check"].startswith("FAIL")]
    print(f"CHECKS: {'FAIL ' + '; '.join(failed) if failed else 'PASS'}")
    return 3 if failed else 0


def machine(quick: bool) -> dict:
    """The device, software and date of the figures."""
    import cupy

    return {
        "device": environment.accelerator(environment.cuda_device(0)),
        "cuda": {
            "driver": cupy.cuda.runtime.driverGetVersion(),
            "runtime": cupy.cuda.runtime.runtimeGetVersion(),
        },
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "cores": cores(),
        "cpu": environment.cpu_model(),
        "packages": environment.packages(),
        "quick": quick,
    }


def apart(part: str, options: argparse.Namespace) -> list[dict]:
    """The rows of a part, run in a separate process; if it has none, a single row that says how it ended."""
    with tempfile.TemporaryDirectory() as scratch:
        rows = Path(scratch) / "rows.json"
        command = [sys.executable, "-m", "benchmarks.gpu", "--only", part, "--rows", str(rows)]
        command += [f"--{name}" for name in ("quick", "quiet") if getattr(options, name)]
        try:
            ended = subprocess.run(command, timeout=options.limit, cwd=ROOT).returncode
        except subprocess.TimeoutExpired:
            return [{"what": part, "check": f"FAIL no end after {options.limit:g} s"}]
        if rows.exists():
            return json.loads(rows.read_text())
        return [{"what": part, "check": f"FAIL its process ended with {ended} and no rows"}]


def rows_of(part: str, options: argparse.Namespace) -> list[dict]:
    """The rows of one part; a single row with the reason if it cannot be imported or fails."""
    module, function, _ = PARTS[part]
    try:
        benchmark = import_module(f"benchmarks.gpu.{module}")
    except ImportError as error:
        return [{"what": part, "check": f"not run: {error}"}]
    try:
        return getattr(benchmark, function)(options)
    except Exception as error:  # CUDA, its libraries and CuPy have different classes of errors
        traceback.print_exc()
        return [{"what": part, "check": f"FAIL {type(error).__name__}: {error}"}]


if __name__ == "__main__":
    sys.exit(main())
