"""`--device cuda`: the device path of the solver app gives the bits of the CPU.

Without a GPU it runs through the stand-in of tests/cuda_on_host, whose arrays refuse to mix with NumPy's.
"""

import re

import pytest

from tests.miniapps.test_coupled_device import STAND_IN, needs_compiler, needs_device
from tests.ranks import on_ranks

SMALL = [
    "--nx=8",
    "--ny=8",
    "--nz=6",
    "--set=grid.bx=4",
    "--set=grid.by=4",
    "--set=grid.bz=3",
    "--no-progress",
]
CASES = {
    "cg": ["--method=cg", "--preconditioner=jacobi"],
    "pipelined": ["--method=cg-pipelined", "--preconditioner=chebyshev"],
    "multigrid": ["--preconditioner=multigrid"],
    # A kernel is compiled for every vector of a cycle.
    "gmres": ["--method=gmres-cgs", "--problem=convection-diffusion", "--restart=3"],
    "refinement": ["--method=refinement"],
    "drift": ["--drift=2"],
}


def solver(ranks, out, *arguments, env=None):
    """The fingerprint of a run."""
    argv = ["-m", "miniapps.solver", *SMALL, f"--out={out}", *arguments]
    run = on_ranks(ranks, argv, env=env, timeout=120)
    assert run.returncode == 0, run.stdout + run.stderr
    return re.findall(r"FINGERPRINT state=(\w+)", run.stdout)


@needs_compiler
@pytest.mark.parametrize(
    ("case", "guarantee", "ranks"),
    [("cg", "exact", 2), ("multigrid", "layout", 3)]
    + [pytest.param(case, "layout", 1, marks=pytest.mark.slow) for case in CASES],
)
def test_the_device_path_gives_the_bits_of_the_cpu(tmp_path, case, guarantee, ranks):
    arguments = [f"--guarantee={guarantee}", *CASES[case]]
    device = solver(ranks, tmp_path / "device", "--device=cuda", *arguments, env=STAND_IN)
    assert device == solver(1, tmp_path / "cpu", *arguments)


@needs_compiler
def test_what_only_the_cpu_can_do_is_refused(tmp_path):
    for option in ("--preconditioner=block-jacobi", "--spmv=scipy"):
        out = f"--out={tmp_path / 'run'}"
        run = on_ranks(1, ["-m", "miniapps.solver", *SMALL, "--device=cuda", option, out], env=STAND_IN)
        assert run.returncode == 2 and "cannot run with --device cuda" in run.stderr, run.stderr


class TestOnADevice:
    pytestmark = needs_device

    @pytest.mark.parametrize("case", CASES)
    def test_solves_have_the_bits_of_the_cpu(self, tmp_path, case):
        arguments = ["--guarantee=layout", *CASES[case]]
        device = solver(1, tmp_path / "device", "--device=cuda", *arguments)
        assert device == solver(1, tmp_path / "cpu", *arguments)
