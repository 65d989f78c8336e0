"""`fpna run` says what it cannot start, once, and how it would start."""

import os
import re
import subprocess
import sys
from importlib.util import find_spec

import pytest
from mpi4py import MPI

import fpna
from miniapps.errors import UsageError
from miniapps.programs.command import require_runnable
from tests.launch import run_mpi, run_python

FPNA = [sys.executable, "-m", "fpna", "run"]


@pytest.fixture
def here(tmp_path, monkeypatch):
    """A directory with a program `app`, sources and a script, nobody's launcher on PATH but `mpirun`."""
    for name, mode in (("app", 0o755), ("mpirun", 0o755), ("app.c", 0o644), ("data", 0o644), ("x.py", 0o644)):
        (tmp_path / name).write_text("#!/bin/sh\n")
        (tmp_path / name).chmod(mode)
    (tmp_path / "folder").mkdir()
    (tmp_path / "bin").mkdir()
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    return tmp_path


@pytest.mark.parametrize(
    ("command", "said"),
    [
        (["mpirun", "-n", "2", "./app"], "each process: mpirun -n 2 fpna run -- ./app"),
        (["/usr/bin/mpiexec.hydra", "-np", "2", "--hostfile", "data", "./app", "-n", "3"],
         ": /usr/bin/mpiexec.hydra -np 2 --hostfile data fpna run -- ./app -n 3"),
        (["srun", "-n2"], "srun -n 2 fpna run -- ./app"),
        (["./app.c"], "./app.c cannot be executed: it is source code; compile it, mpicc -g -o ./app ./app.c, and"),
        (["x.py"], "x.py cannot be executed: start it by its interpreter: fpna run -- python x.py"),
        (["./data"], "./data cannot be executed: its mode does not allow it; if it is a program: chmod +x ./data"),
        (["folder"], "folder is a directory"),
        (["app"], "no program 'app' on PATH; the one in this directory is ./app"),
        (["apps"], "no program 'apps'; did you mean ./app?"),
        (["./apps"], "no program './apps'; did you mean ./app?"),
        (["zzz"], "no program 'zzz' on PATH"),
        (["/nowhere/zzz"], "no program '/nowhere/zzz'"),
    ],
)  # fmt: skip
def test_what_cannot_be_started_is_told_with_what_can(here, command, said):
    with pytest.raises(UsageError) as refused:
        require_runnable(command, "fpna run")
    assert said in str(refused.value)


def test_programs_are_started(here):
    require_runnable(["./app"], "fpna run")
    require_runnable([str(here / "app")], "fpna run")


def test_what_is_wrong_with_a_command_line_is_told_once(tmp_path):
    for wrong, said in (
        (["--gaurantee", "exact", "--", "./app"], "unrecognized arguments: --gaurantee; did you mean --guarantee?"),
        (["--", "./absent"], "fpna run: no program './absent'"),
        (["--"], "no program; give one after --: fpna run [options] -- ./app ARGUMENTS"),
    ):  # fmt: skip
        run = run_mpi(2, ["-m", "fpna", "run", *wrong], cwd=tmp_path)
        assert run.returncode == 2
        assert (run.stdout + run.stderr).count(said) == 1, run.stderr


def launched_by(launcher, code, **more):
    """A program of mpi4py that seems to be the first of two processes of a foreign launcher."""
    env = (
        {k: v for k, v in os.environ.items() if not k.startswith(("PMI_", "OMPI_", "PMIX_"))}
        | launcher
        | more
    )
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=env, timeout=120)


OPENMPI = {"OMPI_COMM_WORLD_SIZE": "2", "OMPI_COMM_WORLD_RANK": "0"}
SLURM = {"SLURM_STEP_NUM_TASKS": "2", "SLURM_PROCID": "0"}
TORCHRUN = {"TORCHELASTIC_RUN_ID": "x", "WORLD_SIZE": "2", "RANK": "0"}
# What Lightning sets, and DeepSpeed, Kubernetes and others.
LIGHTNING = {
    "MASTER_ADDR": "127.0.0.1",
    "MASTER_PORT": "1",
    "NODE_RANK": "0",
    "LOCAL_RANK": "0",
    "WORLD_SIZE": "2",
}
DEEPSPEED = {"MASTER_ADDR": "127.0.0.1", "RANK": "0", "LOCAL_RANK": "0", "WORLD_SIZE": "2"}
ONE_OF_SRUN = {
    "SLURM_STEP_NUM_TASKS": "1",
    "SLURM_PROCID": "0",
}  # a task for each node, which starts torchrun


@pytest.mark.parametrize(
    ("launcher", "call", "said"),
    [
        (OPENMPI, "fpna.record('runs/x')", "fpna.record: the launcher (Open MPI) started 2 processes, but it does not"),
        (SLURM, "fpna.wrap(MPI.COMM_WORLD)", "fpna.wrap: the launcher (srun) started 2 processes, but it does not"),
        (SLURM, "fpna.ddp_hook()", "fpna.ddp_hook: the launcher (srun) started 2 processes, but it does not"),
        (TORCHRUN, "fpna.record('runs/x')", "fpna.record: torchrun started 2 processes, and for MPI each"),
        (ONE_OF_SRUN | TORCHRUN, "fpna.record('runs/x')", "fpna.record: torchrun started 2 processes"),
        (SLURM | TORCHRUN, "fpna.wrap(MPI.COMM_WORLD)", "fpna.wrap: torchrun started 2 processes"),
        (LIGHTNING, "fpna.record('runs/x')", "fpna.record: a launcher of torch started 2 processes, and for MPI each"),
        (DEEPSPEED, "fpna.wrap(MPI.COMM_WORLD)", "fpna.wrap: a launcher of torch started 2 processes"),
        (SLURM | DEEPSPEED, "fpna.ddp_hook()", "fpna.ddp_hook: the launcher (srun) started 2 processes"),
    ],
)  # fmt: skip
def test_a_program_whose_processes_are_alone_ends_with_2(launcher, call, said, tmp_path):
    first = "" if launcher is OPENMPI else "from mpi4py import MPI\n"
    ended = launched_by(launcher, f"{first}import fpna\n{call}\nprint('went on')", PWD=str(tmp_path))
    assert (ended.returncode, ended.stdout) == (2, ""), ended.stderr
    assert ended.stderr.startswith(said), ended.stderr
    assert "Traceback" not in ended.stderr
    # The library, beside the launcher; or what to do instead.
    assert ("mpirun -n 2 python ..." if "torch" in said else "MPICH") in ended.stderr


@pytest.mark.parametrize(
    "other", [TORCHRUN | {"RANK": "1"}, LIGHTNING | {"LOCAL_RANK": "1"}, LIGHTNING | {"NODE_RANK": "1"}]
)
def test_the_first_process_alone_says_so(other):
    ended = launched_by(other, "import fpna\nfpna.record('runs/x')\nprint('went on')")
    assert (ended.returncode, ended.stdout, ended.stderr) == (2, "", "")


@pytest.mark.parametrize(
    "one", [ONE_OF_SRUN, LIGHTNING | {"WORLD_SIZE": "1"}, {"WORLD_SIZE": "2", "RANK": "0"}]
)
def test_one_process_of_a_launcher_goes_on(one):
    ended = launched_by(
        one, "from mpi4py import MPI\nimport fpna\nprint(fpna.wrap(MPI.COMM_WORLD).guarantee)"
    )
    assert (ended.returncode, ended.stdout) == (0, "layout\n"), ended.stderr


def test_processes_that_are_alone_without_a_launcher_are_told_what_a_directory_in_use_means(tmp_path):
    with fpna.record(tmp_path / "run", MPI.COMM_SELF) as first:
        first.value("x", 1.0)
        with pytest.raises(UsageError) as refused, fpna.record(tmp_path / "run", MPI.COMM_SELF):
            pass
    assert re.match(r"record: .*run: not empty, it has rank-00000.h5", str(refused.value))
    assert str(refused.value).endswith("For MPI, each process that torch or multiprocessing starts is alone")
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "notes").touch()
    refusal = pytest.raises(UsageError, match=r"choose a new or an empty directory$")
    with refusal, fpna.record(tmp_path / "other", MPI.COMM_SELF):
        pass


def test_torchrun_is_told_what_to_use_instead(tmp_path):
    if find_spec("torch") is None:
        pytest.skip("torch is not installed")
    program = tmp_path / "program.py"
    program.write_text("import fpna\nwith fpna.record('run') as r: r.value('x', 1.0)\n")
    command = [
        sys.executable,
        "-m",
        "torch.distributed.run",
        "--standalone",
        "--nproc-per-node",
        "2",
        program,
    ]
    env = {k: v for k, v in os.environ.items() if not k.startswith(("PMI_", "OMPI_", "PMIX_"))}
    ended = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, env=env, timeout=240)
    assert ended.returncode != 0 and not (tmp_path / "run").exists()
    assert (
        ended.stderr.count("fpna.record: torchrun started 2 processes, and for MPI each of them is alone")
        == 1
    )


def test_an_application_under_torchrun_is_refused_too(tmp_path):
    run = run_python(["-m", "miniapps.coupled", "--out", "run"], env=TORCHRUN, cwd=tmp_path)
    assert run.returncode == 2 and not (tmp_path / "run").exists()
    assert run.stderr.startswith("coupled: torchrun started 2 processes") and run.stderr.count("\n") == 1
