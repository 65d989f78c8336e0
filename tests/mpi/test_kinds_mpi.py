"""Ranks of two kinds under real MPI: one line before they compute, at every door, and no plain PASS."""

import json
import os
import shutil
import subprocess
import sys

import pytest

from analysis.headline import headline
from analysis.load.frames import load
from analysis.verdict import OUTSIDE, judge
from miniapps.system import environment
from miniapps.trace import read
from tests.launch import UNHELD, launcher, run_command, run_mpi
from tests.mpi.test_observed_mpi import compiler_of

SMALL = [
    "-m",
    "miniapps.coupled",
    "--steps",
    "2",
    "--set",
    "grid.nx=64",
    "--set",
    "grid.ny=64",
    "--no-progress",
]
OTHER = "ATEN_CPU_CAPABILITY=default"
TOLD = "ranks of 2 kinds"


def two_kinds(size, argv, library="mpich", other=("env", OTHER), python=(sys.executable,), env=None):
    """Run `python` with `argv` on `size` ranks; the last half begin with the words `other`."""
    command, own = launcher(library)
    half, words = size // 2, [*python, *argv]
    words = [*command, "-n", size - half, *words, ":", "-n", half, *other, *words]
    return run_command([str(word) for word in words], own | UNHELD | (env or {}), 240, None)


@pytest.mark.parametrize("library, size", [("mpich", 2), ("mpich", 4), ("openmpi", 2)])
def test_an_application_tells_two_kinds_before_it_computes_and_does_not_just_pass(tmp_path, library, size):
    out = tmp_path / "run"
    run = two_kinds(size, [*SMALL, "--guarantee", "layout", "--out", str(out)], library)
    assert run.returncode == 0, run.stderr
    (line,) = [line for line in run.stderr.splitlines() if TOLD in line]
    assert (
        "rank 0 WARNING" in line
        and f"Rank{'s 0-1' if size == 4 else ' 0'}: ATEN_CPU_CAPABILITY not set" in line
    )
    assert f"rank{'s 2-3' if size == 4 else ' 1'}: {OTHER}. To make them equal, on all ranks: {OTHER}" in line
    assert "\nVERIFICATION: PASS (ranks of 2 kinds, for which layout promises nothing)\n" in run.stdout
    assert "HOLDS" not in run.stdout
    result = json.loads((out / "result.json").read_text())
    last = {"ranks": "2-3" if size == 4 else "1", "entries": {"variables.ATEN_CPU_CAPABILITY": "default"}}
    assert result["kinds"][1] == last and len(result["kinds"]) == 2
    for rank in range(size):
        assert read(out / f"rank-{rank:05d}.h5").attributes["environment"]["kinds"] == result["kinds"]


def test_analysis_names_the_entry_in_which_ranks_of_one_run_differ(tmp_path):
    for name in "ab":
        two_kinds(2, [*SMALL, "--guarantee", "layout", "--out", str(tmp_path / name)])
    frames = load([tmp_path])
    (group,) = judge(frames)
    assert "2 runs with ranks of several kinds" in str(headline([group], frames))
    assert group.verdict == OUTSIDE
    assert any(
        "ATEN_CPU_CAPABILITY" in entry and "ranks of one run" in entry for entry in group.cells[0].apart
    )


def test_equal_ranks_are_told_nothing(tmp_path):
    run = run_mpi(
        2, [*SMALL, "--guarantee", "layout", "--out", str(tmp_path / "run")], env=dict([OTHER.split("=")])
    )
    assert TOLD not in run.stderr and "\nVERIFICATION: PASS\n" in run.stdout
    result = json.loads((tmp_path / "run" / "result.json").read_text())
    assert result["kinds"] == [] and "kinds" not in result["environment"]


def test_without_a_guarantee_kinds_are_told_and_the_verdict_is_that_of_the_checks(tmp_path):
    run = two_kinds(2, [*SMALL, "--out", str(tmp_path / "run")])
    assert TOLD in run.stderr and "--guarantee" not in run.stderr and "\nVERIFICATION: PASS\n" in run.stdout


def test_threads_count_where_the_guarantee_needs_them(tmp_path):
    for guarantee in ("run", "layout"):
        argv = [*SMALL, "--guarantee", guarantee, "--out", str(tmp_path / guarantee)]
        run = two_kinds(2, argv, other=("env", "MKL_NUM_THREADS=3"))
        assert ("MKL_NUM_THREADS=3" in run.stderr) == (guarantee == "run"), run.stderr


# ---- programs

WRAPPED = """
import numpy as np
from mpi4py import MPI
import fpna

comm = fpna.wrap(MPI.COMM_WORLD, guarantee="layout")
for part in (comm, comm.Split(0), comm):
    total = np.empty(4)
    part.Allreduce(np.full((2, 4), 0.1), total, axis=0)
assert len(set(comm.plain.allgather(total.tobytes()))) == 1
"""
RECORDED = """
import sys
import numpy as np
from mpi4py import MPI
import fpna

comm = fpna.wrap(MPI.COMM_WORLD, guarantee="layout")
with fpna.record(sys.argv[1], comm) as recording:
    recording.step(1)
    total = np.empty(4)
    comm.Allreduce(np.full((2, 4), 0.1), total, axis=0)
    recording.fingerprint("total", total, block=0)
"""
GRADIENTS = """
import sys
from mpi4py import MPI
import torch
import torch.distributed as dist
import fpna

comm = MPI.COMM_WORLD
dist.init_process_group("gloo", f"file://{sys.argv[2]}", rank=comm.rank, world_size=comm.size)
torch.manual_seed(1)
model = torch.nn.Linear(4, 1)
if sys.argv[1] == "hook":
    model = torch.nn.parallel.DistributedDataParallel(model)
    model.register_comm_hook(None, fpna.ddp_hook())
    model(torch.ones(2, 4)).sum().backward()
else:
    for part in fpna.accumulate(model, micro=4).parts(torch.ones(4, 4)):
        model(part).mean().backward()
dist.destroy_process_group()
"""


@pytest.mark.parametrize("library, size", [("mpich", 2), ("mpich", 4), ("openmpi", 2)])
def test_wrap_warns_of_two_kinds_once_at_the_line_of_the_first_sum(library, size):
    run = two_kinds(size, ["-c", WRAPPED], library)
    assert run.returncode == 0, run.stderr
    (line,) = [line for line in run.stderr.splitlines() if TOLD in line]
    assert (
        "<string>:9: KindsWarning: fpna.wrap: ranks of 2 kinds" in line and f"on all ranks: {OTHER}" in line
    )


def test_wrap_warns_of_nothing_where_ranks_are_equal():
    run = run_mpi(2, ["-c", WRAPPED], env=dict([OTHER.split("=")]))
    assert run.returncode == 0 and "KindsWarning" not in run.stderr, run.stderr


def test_a_recording_tells_and_records_two_kinds(tmp_path):
    run = two_kinds(2, ["-c", RECORDED, tmp_path / "run"])
    assert run.returncode == 0 and run.stderr.count(TOLD) == 1, run.stderr
    kinds = json.loads((tmp_path / "run" / "result.json").read_text())["kinds"]
    assert [kind["ranks"] for kind in kinds] == ["0", "1"]
    assert read(tmp_path / "run" / "rank-00001.h5").attributes["environment"]["kinds"] == kinds


@pytest.mark.parametrize("door", ["hook", "accumulate"])
def test_sums_of_gradients_warn_of_two_kinds(tmp_path, door):
    pytest.importorskip("torch")
    run = two_kinds(2, ["-c", GRADIENTS, door, tmp_path / "two"])
    assert run.returncode == 0 and run.stderr.count(TOLD) == 1, run.stderr
    assert "gradients of equal samples may differ" in run.stderr and "KindsWarning" in run.stderr
    equal = run_mpi(2, ["-c", GRADIENTS, door, str(tmp_path / "one")])
    assert equal.returncode == 0 and TOLD not in equal.stderr, equal.stderr


# ---- any program

PROGRAM = """
#include <mpi.h>
#include <math.h>
int main(int count, char **words) {
    int rank;
    double own, total;
    MPI_Init(&count, &words);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    own = sin(1.0 + rank);
    MPI_Allreduce(&own, &total, 1, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
    return MPI_Finalize();
}
"""
OLDER = "GLIBC_TUNABLES=glibc.cpu.hwcaps=-AVX2,-FMA,-FMA4"
EMULATED = ("qemu-x86_64", "-cpu", "Haswell")
emulator = pytest.mark.skipif(
    shutil.which(EMULATED[0]) is None or os.uname().machine != "x86_64", reason="no qemu-x86_64"
)


@pytest.fixture(scope="module")
def program(tmp_path_factory):
    """program(library): (the program, the environment with the compiler of the library on PATH)."""
    folder = tmp_path_factory.mktemp("program")
    (folder / "sine.c").write_text(PROGRAM)

    def built(library):
        compiler, target = compiler_of(library, "mpicc"), folder / library
        path = {"PATH": f"{compiler.parent}{os.pathsep}{os.environ['PATH']}"}
        if not target.exists():
            command = [compiler, "-O1", "-o", target, folder / "sine.c", "-lm"]
            subprocess.run(command, check=True, env=os.environ | path, capture_output=True)
        return target, path

    return built


@pytest.mark.parametrize(
    "library, size", [("mpich", 2), ("mpich", 4), pytest.param("openmpi", 2, marks=pytest.mark.slow)]
)
def test_the_recorder_tells_two_kinds_as_a_program_begins_and_names_settings_as_it_ends(
    tmp_path, program, library, size
):
    target, path = program(library)
    argv = ["-m", "fpna", "run", "--out", tmp_path / "run", "--", target]
    run = two_kinds(size, argv, library, ("env", OLDER), env=path)
    assert run.returncode == 0, run.stderr
    first, last = [line for line in run.stderr.splitlines() if TOLD in line]
    assert f"kinds ({'0, 1 | 2, 3' if size == 4 else '0 | 1'})" in first
    assert "(libm)" in last and last.endswith(f"on all ranks: {OLDER}")
    kinds = read(tmp_path / "run" / "rank-00000.h5").attributes["environment"]["kinds"]
    assert kinds[1]["entries"] == {"variables.GLIBC_TUNABLES": OLDER.partition("=")[2]}


def test_the_recorder_tells_nothing_where_ranks_are_equal_or_output_is_quiet(tmp_path, program):
    target, path = program("mpich")
    argv = ["-m", "fpna", "run", "--out", tmp_path / "equal", "--", target]
    run = run_mpi(2, [str(word) for word in argv], env=path | dict([OLDER.split("=", 1)]))
    assert run.returncode == 0 and TOLD not in run.stderr, run.stderr
    assert "kinds" not in read(tmp_path / "equal" / "rank-00000.h5").attributes["environment"]
    argv = ["-m", "fpna", "run", "--quiet", "--out", tmp_path / "quiet", "--", target]
    run = two_kinds(2, argv, other=("env", OLDER), env=path)
    assert run.returncode == 0 and TOLD not in run.stderr, run.stderr


@emulator
def test_the_recorder_sees_an_emulated_processor_as_its_program_does(tmp_path, program):
    target, path = program("mpich")
    recorder = [sys.executable, "-m", "fpna", "run", "--out", tmp_path / "run", "--"]
    command, env = launcher("mpich")
    words = [*command, "-n", 1, *recorder, target, ":", "-n", 1, *recorder, *EMULATED, target]
    run = run_command([str(word) for word in words], env | UNHELD | path, 240, None)
    assert run.returncode == 0, run.stderr
    kinds = read(tmp_path / "run" / "rank-00000.h5").attributes["environment"].get("kinds", [])
    if "avx512f" not in environment.processor().flags.split():
        pytest.skip("this processor has no sets that a Haswell lacks")
    assert [kind["ranks"] for kind in kinds] == ["0", "1"]
    assert "avx512f" not in kinds[1]["entries"]["processor.flags"].split()
    branch = "AVX2" if environment.processor().vendor == "GenuineIntel" else "COMPATIBLE"
    assert f"ATEN_CPU_CAPABILITY=avx2 MKL_CBWR={branch}" in run.stderr


@emulator
@pytest.mark.slow
def test_wrap_sees_an_emulated_processor():
    if "avx512f" not in environment.processor().flags.split():
        pytest.skip("this processor has no sets that a Haswell lacks")
    run = two_kinds(2, ["-c", WRAPPED], other=EMULATED)
    assert run.returncode == 0, run.stderr
    (line,) = [line for line in run.stderr.splitlines() if TOLD in line]
    first, second = line.split("Rank 0: ")[1].split("; rank 1: ")
    assert "x86-64-v4" in first and "x86-64-v3 (without avx512" in second
    assert "OPENBLAS_CORETYPE=Haswell" in line and "NPY_DISABLE_CPU_FEATURES=" in line
