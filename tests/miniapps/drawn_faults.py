"""Random faults: an accepted fault strikes, and a refused one would have struck nothing.

    python -m tests.miniapps.drawn_faults --cases 200 --seed 1

Every fault is checked as before a run, and then run by the application without that check, on one rank.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import sys
import tempfile
from unittest.mock import patch

import numpy as np
from mpi4py import MPI

from jobs import applications
from miniapps.runner.main import main as run
from tests.miniapps.test_fault_targets import COUPLED, DLRM, REDUCTIONS, SOLVER, TRAINING

PROGRAMS = {
    "coupled": (COUPLED, f"{COUPLED} --ensemble 2", f"{COUPLED} --closure physics"),
    "solver": (SOLVER, f"{SOLVER} --dtype float32", SOLVER.replace("random", "ones"), f"{SOLVER} --method gmres-mgs",
               f"{SOLVER} --method refinement"),
    "training": (TRAINING, f"{TRAINING} --repeats 2"),
    "dlrm": (DLRM,),
    "reductions": (REDUCTIONS, f"{REDUCTIONS} --set problem.dtype=float32"),
}  # fmt: skip
BITS = (0, 1, 20, 31, 32, 51, 63, 64)
SIZES = (0, 1, 63, 64, 100, 1000, 4095, 4096, 7000)


def drawn(rng: np.random.Generator) -> tuple[str, str, str]:
    """(application, its arguments, a fault)."""
    name = str(rng.choice(list(PROGRAMS)))
    arguments = str(rng.choice(PROGRAMS[name]))
    kind = str(rng.choice(["bitflip", "kernel-bit", "seed", "nan", "lost-halo", "slow"]))
    step, block = int(rng.integers(0, 6)), int(rng.choice([*range(12), 99]))
    parts = {"seed": [], "lost-halo": ["rank=0"], "slow": ["rank=0", "factor=2"]}.get(
        kind, [f"block={block}"]
    )
    parts += [f"block={block}"] if kind == "seed" else [f"step={step}"]
    if kind in ("bitflip", "kernel-bit") and rng.integers(2):
        parts.append(f"bit={rng.choice(BITS)}")
    if kind in ("bitflip", "kernel-bit", "nan") and rng.integers(2):
        parts.append(f"index={rng.choice(SIZES)}")
    if rng.integers(4) == 0:
        parts.append(f"repeat={rng.integers(2)}")
    return name, arguments, f"{kind}@{','.join(parts)}"


def failure(name: str, arguments: str, fault: str) -> str:
    """What is wrong with what was said of the fault; empty where nothing is."""
    refused = ""
    try:
        applications.check(name, [*arguments.split(), "--fault", fault], 1)
    except applications.Refusal as refusal:
        refused = str(refusal)
    printed, lines = io.StringIO(), io.StringIO()
    with (
        tempfile.TemporaryDirectory() as out,
        contextlib.redirect_stderr(printed),
        contextlib.redirect_stdout(lines),
        patch("miniapps.runner.faults.require_targets"),  # not looked at before
    ):
        argv = [*arguments.split(), "--out", f"{out}/run", "--no-progress", "--fault", fault]
        code = run(applications.app(name), argv, MPI.COMM_SELF)
    missed = f"--fault {fault}" in printed.getvalue()  # refused where it was to strike, or never struck
    if refused and not missed:
        return f"refused ({refused}), and it struck, code {code}"
    if not refused and missed and not late(fault, printed.getvalue()):
        return f"accepted, and {printed.getvalue()}"
    return ""


def late(fault: str, printed: str) -> bool:
    """Whether it could not be known before: a solve that ended earlier, the size or the type of what a kernel gave."""
    kernels = fault.startswith("kernel-bit") and any(
        said in printed for said in ("elements, from 0 on", "has the bits", "not so many calls")
    )
    return kernels or ("never struck: the run has no such step" in printed and "solver" in printed)


def main() -> int:
    """Draw cases; 1 where some failed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--cases", type=int, default=100)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    failed = 0
    for case in range(options.cases):
        chosen = drawn(np.random.default_rng([options.seed, case]))
        if why := failure(*chosen):
            failed += 1
            print(case, *chosen, "\n ", why, flush=True)
    print(f"{options.cases} faults, seed {options.seed}: {failed} failed")
    return int(failed > 0)


if __name__ == "__main__":
    sys.exit(main())
