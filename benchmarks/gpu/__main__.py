"""The GPU path, checked and timed: `make gpu`, or `python -m benchmarks.gpu`. Needs CuPy and a device, no network.

sums      sums and dot products: the bits of their twins on the CPU; bandwidth, against a copy and against CUB
shapes    the launch shapes, and which is fastest
scatter   scatter-adds: the bits of their definition; time against atomic additions and torch's
spmv      sparse products: the bits of the CPU; bandwidth against a copy and cuSPARSE
contract  products of matrices, convolutions and their gradients: the bits of the CPU; time against cuBLAS
attention attention and its gradients: the bits of the CPU; time against torch's
vectors   fused vector updates and dot products: the bits of the CPU; bandwidth against a copy
wires     codecs: the bytes and bits of the CPU; time against copying the elements
kernels   block stencils, halo exchange and operators of the flow: the bits of the plain NumPy definition
coupled   whole runs of the flow on one rank, without a launcher
solver    whole solves in the same way

Prints tables and writes benchmarks/results/DEVICE-DATE.json. Ends with 0, with 3 if a check failed, with 2
where there is nothing to check with.
"""

import argparse
import re
import sys
import traceback
from datetime import UTC, datetime
from importlib import import_module
from pathlib import Path

from benchmarks.harness.results import add_quiet, report, save
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
    """Check and time; the exit code."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.gpu", description=__doc__.split("\n")[0])
    parser.add_argument("--out", default="benchmarks/results", help="directory of the JSON file")
    parser.add_argument("--only", nargs="+", choices=PARTS, default=list(PARTS), help="some of the parts")
    parser.add_argument(
        "--quick", action="store_true", help="small problems and single calls: to try the program itself"
    )
    add_quiet(parser)
    options = parser.parse_args()
    if reason := environment.no_cuda():
        print(f"make gpu: {reason}; a Python that has CuPy is named by GPU_PYTHON=...", file=sys.stderr)
        return 2
    device = environment.cuda_device(0)
    where = {
        "device": device,
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "cores": cores(),
        "cpu": environment.cpu_model(),
        "packages": environment.packages(),
        "quick": options.quick,
    }
    sections = {}
    for part in options.only:
        rows = rows_of(part, options)
        sections[part] = rows
        report(f"{PARTS[part][2]}, {device}", rows, where, None)
    name = re.sub(r"\W+", "-", device.split(" ", 1)[1].rsplit(" ", 1)[0].lower()).strip("-")
    path = Path(options.out) / f"{name}-{datetime.now(UTC):%Y-%m-%d}.json"
    save({"machine": where} | sections, path)
    failed = [row["what"] for rows in sections.values() for row in rows if row["check"].startswith("FAIL")]
    print(f"CHECKS: {'FAIL ' + '; '.join(failed) if failed else 'PASS'}")
    return 3 if failed else 0


def rows_of(part: str, asked: argparse.Namespace) -> list[dict]:
    """The rows of one part; a single one that says why where it cannot be imported or breaks off.

    After an error of the device itself the parts that follow break off too: `--only` runs one in a process of its own.
    """
    module, function, _ = PARTS[part]
    try:
        benchmark = import_module(f"benchmarks.gpu.{module}")
    except ImportError as error:
        return [{"what": part, "check": f"not run: {error}"}]
    try:
        return getattr(benchmark, function)(asked)
    except Exception as error:  # of CUDA, its libraries or CuPy, each of its own class; the other parts count
        traceback.print_exc()
        return [{"what": part, "check": f"FAIL {type(error).__name__}: {error}"}]


if __name__ == "__main__":
    sys.exit(main())
