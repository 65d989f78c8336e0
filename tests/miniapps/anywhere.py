"""Small runs under --processor any, in one process: prints the recorded bits of each as JSON.

    python -m tests.miniapps.anywhere PROCESSOR LEVEL [CASE ...]

LEVEL: the instruction set of all kernels that have several, or `best`. tests/miniapps/test_processor.py starts it under
settings of libraries, under emulated processors and on several ranks.
"""

from __future__ import annotations

import json
import sys
import tempfile
from pathlib import Path

QUIET = ["--no-progress", "--log-level=warning", "--guarantee=layout"]
_FLOW = ["--set=grid.nx=32", "--set=grid.ny=32", "--set=grid.bx=8", "--set=grid.by=8", "--steps=3"]
_BOX = [
    "--nx=12",
    "--ny=12",
    "--nz=12",
    "--set=grid.bx=4",
    "--set=grid.by=4",
    "--set=grid.bz=4",
    "--until=20",
]
_SUMS = ["--size=20000", "--arrays=1", "--samples=1"]
_SUMS += [f"--variant={name}@native" for name in ("binned", "fixed-point", "exact")]
CASES: dict[str, tuple[str, list[str]]] = {
    "online": ("coupled", [*_FLOW, "--set=closure.every=1"]),
    "surrogate": ("coupled", [*_FLOW, "--closure=surrogate"]),
    "online, static": ("coupled", [*_FLOW, "--set=closure.every=1", "--inference=static"]),
    "surrogate, static": ("coupled", [*_FLOW, "--closure=surrogate", "--inference=static"]),
    "physics": ("coupled", ["--closure=physics", "--steps=1"]),  # on fewer points libraries agree about sines
    "cg": ("solver", [*_BOX, "--preconditioner=multigrid", "--right-side=random"]),
    "gmres": ("solver", [*_BOX, "--method=gmres-mgs", "--right-side=manufactured"]),
    "chebyshev": ("solver", [*_BOX, "--method=chebyshev", "--right-side=random"]),
    "sums": ("reductions", ["--size=1000", "--arrays=2", "--samples=2", "--variant=exact", "--variant=binned"]),
    "lognormal": ("reductions", [*_SUMS, "--distribution=lognormal"]),
    "dot": ("reductions", [*_SUMS, "--operation=dot", "--distribution=normal"]),
    "mlp": ("training", ["--data=digits", "--steps=4", "--evaluate-every=2"]),
    "cnn": ("training", ["--model=cnn", "--data=digits", "--steps=4", "--evaluate-every=2"]),
    "gpt": ("mesh", [
        "--model=gpt", "--steps=2", "--set=model.hidden=16", "--set=model.heads=2", "--set=model.layers=1",
        "--set=model.tokens=8", "--set=training.batch=8", "--set=training.micro=2",
    ]),
    "inference": ("inference", ["--data=digits", "--requests=4", "--backend=static"]),
}  # fmt: skip


def fixed(level: str) -> None:
    """Make every kernel that has several instruction sets use `level`."""
    from kernels.contract import elements, native, native_attention, norms
    from kernels.inference import static

    number = native.LEVELS.index(level)
    for module in (elements, native, native_attention, norms):
        vars(module)["level_number"] = lambda name: number
    made = static.Static.__init__

    def at_level(self, *arguments, **options) -> None:
        made(self, *arguments, **options)
        self.level = number

    vars(static)["Static"].__init__ = at_level


def main(processor: str, level: str, cases: list[str]) -> None:
    """Run the cases on all ranks; rank 0 prints {case: what the run recorded}."""
    from mpi4py import MPI

    from miniapps import applications
    from miniapps.runner.main import main as run

    if level != "best":
        fixed(level)
    comm, found = MPI.COMM_WORLD, {}
    root = Path(comm.bcast(tempfile.mkdtemp() if comm.rank == 0 else None))
    for case in cases or CASES:
        name, options = CASES[case]
        out = root / case
        argv = [*QUIET, *options, f"--processor={processor}", f"--out={out}"]
        with open(root / f"{case}-{comm.rank}.txt", "w") as text:
            before, sys.stdout = sys.stdout, text
            code = run(applications.app(name), argv, comm)
            sys.stdout = before
        assert code == 0, (case, code)
        if comm.rank == 0:
            result = json.loads((out / "result.json").read_text())
            found[case] = [*result["fingerprints"], *(mark["head"] for mark in result["chain"])]
    if comm.rank == 0:
        print(json.dumps(found))


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], sys.argv[3:])
