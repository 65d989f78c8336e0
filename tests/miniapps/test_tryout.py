"""`fpna try`: its launchers, what it says where something is missing, and one real launch."""

import json
import os
import shutil
import sys
import time
from pathlib import Path

import pytest

from miniapps.system.processes import ended
from miniapps.tryout import command, launches
from miniapps.tryout.launches import Launched
from miniapps.tryout.ranks import CALL, COUNT, LENGTH, PLACE, RANK
from tests.declared import check
from tests.launch import launcher, run_command, run_mpi

TRY = [sys.executable, "-m", "fpna", "try"]
RANKS = {"finding": "ranks", "library": "MPICH 5", "numbers": 9, "sums": [
    {"ranks": 2, "library": "0x1p+0", "layout": "0x1p+0"}, {"ranks": 3, "library": "0x1.8p+0", "layout": "0x1p+0"},
]}  # fmt: skip
LIBRARY = {"finding": "library", "library": "MPICH 5", "ranks": 5, "orderings": [
    {"ordering": "binomial", "lengths": [1]}, {"ordering": "ring", "lengths": [1000, 100003]},
], "alike": 2, "follows": {CALL: False, RANK: False, COUNT: True, LENGTH: True, PLACE: False}}  # fmt: skip
SUM = {"what": "np.sum", "library": "numpy 2", "dtype": "float64", "kind": "tree", "lanes": 8, "depth": 9,
       "threads": [1, 2], "alignments": [["a", "a"]], "by_threads": [["a"], ["b"]]}  # fmt: skip


def program(path, text):
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)
    return path


@pytest.fixture
def alone(tmp_path, monkeypatch):
    """A machine with no launcher, on whose PATH programs can be put: the directory of these."""
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    (tmp_path / "python").symlink_to(sys.executable)
    monkeypatch.setattr(sys, "executable", str(tmp_path / "python"))
    which = shutil.which
    monkeypatch.setattr(launches.shutil, "which", lambda name: which(name, path=str(tmp_path)))
    monkeypatch.setattr(launches, "libraries", lambda mpirun: [])
    return tmp_path


def shown(monkeypatch, capsys, over_ranks, processes, *options):
    monkeypatch.setattr(command, "launch", lambda say: over_ranks)
    monkeypatch.setattr(command, "inside_processes", lambda say: processes)
    code = command.main(list(options))
    return code, capsys.readouterr().out


def test_a_program_that_does_not_end_is_ended_with_what_it_started(tmp_path):
    begin = time.monotonic()
    done = ended(["sh", "-c", "sleep 60 & echo $!; wait"], 0.5, dict(os.environ))
    assert done.code is None and time.monotonic() - begin < 20
    status = Path(f"/proc/{int(done.out)}/status")
    assert not status.exists() or "zombie" in status.read_text()


def test_a_process_that_is_left_behind_does_not_hold_up_its_reader():
    begin = time.monotonic()
    done = ended(["sh", "-c", "echo first; setsid sleep 30 & exit 4"], 20, dict(os.environ))
    assert (done.code, done.out) == (4, "first\n") and time.monotonic() - begin < 20


def test_without_a_launcher_it_says_how_to_get_one(alone):
    found = launches.launch(lambda command: None)
    assert found.launcher is None and found.refused == ["no mpirun on PATH or beside python"]
    assert "pip install mpich" in found.remedy


def test_the_first_launcher_whose_ranks_find_each_other_is_taken(alone):
    program(alone / "mpirun", 'echo \'{"alone": "MPICH 5"}\'; exit 1')
    beside = alone / "other"
    beside.mkdir()
    found = launches.launch(lambda command: None)
    assert found.refused == ["mpirun: each of its processes is alone in mpi4py's library, MPICH 5"]
    assert "mpirun of MPICH 5" in found.remedy
    program(alone / "mpirun", f"echo noise; echo '{json.dumps(RANKS)}'; echo an Error >&2; exit 1")
    found = launches.launch(lambda command: None)
    assert found.findings == {"ranks": RANKS} and found.launcher and found.launcher.shown == "mpirun"
    assert found.refused == ["mpirun: an Error"]


def test_a_current_directory_that_is_gone_is_no_obstacle(alone, tmp_path, monkeypatch):
    (tmp_path / "gone").mkdir()
    monkeypatch.chdir(tmp_path / "gone")
    (tmp_path / "gone").rmdir()
    program(alone / "mpirun", f"echo '{json.dumps(RANKS)}'")
    assert launches.launch(lambda command: None).findings == {"ranks": RANKS}


def test_a_launcher_that_hangs_is_ended(alone, monkeypatch):
    monkeypatch.setattr(launches, "LIMIT_S", 0.5)
    program(alone / "mpirun", '[ "$1" = --version ] || sleep 60')
    begin = time.monotonic()
    found = launches.launch(lambda command: None)
    assert found.refused == ["mpirun: not finished after 0 s"] and time.monotonic() - begin < 20


def test_inside_an_allocation_srun_starts_ranks_too(alone, monkeypatch):
    program(alone / "srun", f"case \"$*\" in *pmi2*) echo '{json.dumps(RANKS)}';; *) exit 1;; esac")
    assert not list(launches.launchers())
    monkeypatch.setenv("SLURM_JOB_ID", "7")
    found = launches.launch(lambda command: None)
    assert found.launcher and found.launcher.advised == "srun --mpi=pmi2"


def test_no_launcher_of_mpi_sees_the_job_that_it_runs_in(alone, monkeypatch):
    monkeypatch.setenv("SLURM_JOB_ID", "7")
    monkeypatch.setenv("PMI_RANK", "0")
    program(alone / "mpirun", "exit 1")
    (first, *_) = launches.launchers()
    assert not [key for key in first.env if key.startswith(("SLURM_", "PMI_"))]


def test_the_library_beside_a_launcher_is_tried_where_mpi4py_has_none(alone, monkeypatch):
    monkeypatch.setattr(launches, "libraries", lambda mpirun: ["/opt/mpi/lib/libmpi.so.12"])
    monkeypatch.setenv("MPI4PY_MPIABI", "openmpi")
    condition = '[ "$MPI4PY_LIBMPI$MPI4PY_MPIABI" = /opt/mpi/lib/libmpi.so.12 ]'
    program(alone / "mpirun", f"if {condition}; then echo '{json.dumps(RANKS)}'; else exit 1; fi")
    found = launches.launch(lambda command: None)
    assert found.launcher and found.launcher.libmpi == "/opt/mpi/lib/libmpi.so.12"


def test_libraries_are_those_of_the_same_installation(tmp_path):
    for name in (
        "bin/mpirun",
        "lib/libmpi.so",
        "lib/libmpi.so.12",
        "lib/libmpi.so.12.4.0",
        "lib64/libmpi.so.40",
    ):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).touch()
    found = launches.libraries(str(tmp_path / "bin" / "mpirun"))
    assert found == [str(tmp_path / "lib" / "libmpi.so.12"), str(tmp_path / "lib64" / "libmpi.so.40")]


def test_three_findings_and_a_way_on(monkeypatch, capsys):
    launched = Launched({"ranks": RANKS, "library": LIBRARY}, launches.Launcher(("/opt/bin/mpirun",), {}))
    code, text = shown(monkeypatch, capsys, launched, ([SUM], []))
    assert code == 0
    assert "on 2 and 3 ranks:  2 results,  1 under the guarantee layout" in text
    assert "adds as binomial for 1 element, as ring for 1,000 to 100,003 elements" in text
    assert "its bits follow the number of ranks and the length of the vector" in text
    assert "they did not follow which process has which rank, the rank or the call" in text
    (row,) = [line.split() for line in text.splitlines() if "np.sum" in line]
    assert row == ["np.sum,", "float64", "numpy", "2", "8", "no", "yes", "(1", "and", "2)"]
    assert "/opt/bin/mpirun -n 4 fpna coupled" in text and "Left out" not in text


def test_what_is_left_out_is_said_and_decides_on_the_code(monkeypatch, capsys):
    nothing = Launched(refused=["no mpirun on PATH or beside python"], remedy="pip install mpich")
    code, text = shown(monkeypatch, capsys, nothing, ([SUM], []), "--quiet")
    assert code == 0 and "findings 1 and 2: no mpirun on PATH or beside python: pip install mpich" in text
    code, text = shown(monkeypatch, capsys, nothing, ([], ["np.sum and np.dot: ended by SIGKILL"]), "--json")
    document = json.loads(text)
    assert code == 1 and document["results"] is document["library"] is None
    assert document["left_out"][1] == "np.sum and np.dot: ended by SIGKILL"


def test_a_promise_that_is_broken_is_called_so(monkeypatch, capsys):
    sums = [RANKS["sums"][0], RANKS["sums"][1] | {"layout": "0x1.8p+0"}]
    launched = Launched({"ranks": RANKS | {"sums": sums}}, launches.Launcher(("mpirun",), {}))
    code, text = shown(monkeypatch, capsys, launched, ([SUM], []))
    assert code == 3 and "2 under the guarantee layout: BROKEN PROMISE" in text


def tried(env=None, cwd=None, *options):
    """The document of a real `fpna try`."""
    done = run_command([*TRY, "--json", *options], env or {}, 200, cwd)
    assert done.returncode == 0, done.stdout + done.stderr
    found = json.loads(done.stdout)
    check(found, "try")
    return found, done.stderr


def test_it_finds_this_machine(tmp_path):
    own = str(Path(sys.executable).parent)
    found, progress = tried({"PATH": f"{own}:/usr/bin:/bin", "HOME": "/nowhere"}, tmp_path)
    assert "sums over ranks" in progress and not list(tmp_path.iterdir())
    if found["library"] is None:
        pytest.skip(f"no MPI here: {found['left_out'][0]}")
    assert [row["ranks"] for row in found["tables"]["sums"]] == [2, 3, 4] and found["results_layout"] == 1
    assert found["results"] == len({row["library"] for row in found["tables"]["sums"]})
    assert found["library"]["orderings"] and not found["library"]["follows"][RANK]
    rows = {row["what"]: row for row in found["tables"]["processes"]}
    assert rows["np.sum"]["kind"] == "tree" and rows["np.sum"]["follows_alignment"] is not None


def test_of_the_number_of_ranks_nothing_is_denied_that_the_first_finding_shows(monkeypatch, capsys):
    library = LIBRARY | {"follows": dict.fromkeys(LIBRARY["follows"], False)}
    launched = Launched({"ranks": RANKS, "library": library}, launches.Launcher(("mpirun",), {}))
    _, text = shown(monkeypatch, capsys, launched, ([SUM], []))
    assert "its bits did not follow the length of the vector" in text and "the number of ranks" not in text


@pytest.mark.slow
def test_started_by_mpirun_it_uses_these_ranks():
    done = run_mpi(3, ["-m", "fpna", "try", "--json"])
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert [row["ranks"] for row in found["tables"]["sums"]] == [2, 3] and found["library"]["ranks"] == 3
    assert COUNT not in found["library"]["follows"]


@pytest.mark.slow
def test_of_two_libraries_the_one_that_fits_is_used():
    mpirun, _ = launcher("openmpi")
    found, _ = tried({"PATH": f"{Path(mpirun[0]).parent}:/usr/bin:/bin"})
    assert found["library"]["library"].startswith("MPICH")
    assert "alone in mpi4py's library" in found["left_out"][0]


@pytest.mark.slow
def test_open_mpi_is_found_as_root_too():
    mpirun, extra = launcher("openmpi")
    found, _ = tried({"PATH": f"{Path(mpirun[0]).parent}:/usr/bin:/bin", **extra})
    assert found["library"]["library"].startswith("Open MPI") and found["results_layout"] == 1


@pytest.mark.slow
def test_a_launcher_of_another_library_is_told():
    mpirun, _ = launcher("openmpi")
    done = run_command([*mpirun, "-n", "2", *TRY, "--json"], {}, 200, None)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert found["library"] is None and "does not belong to the MPI library" in found["left_out"][0]
    assert found["tables"]["processes"]


@pytest.mark.slow
@pytest.mark.parametrize("before", ["taskset -c 0", "ulimit -v 524288;"])
def test_one_core_and_little_memory_are_enough(before):
    own = str(Path(sys.executable).parent)
    line = f"{before} {' '.join(TRY)} --json"
    done = run_command(["sh", "-c", line], {"PATH": f"{own}:/usr/bin:/bin"}, 250, None)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert found["results_layout"] == 1 and found["tables"]["processes"]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("algorithm", "ordering", "length"),
    [("recursive_doubling", "recursive-doubling", False), ("ring", "ring", True)],
)
def test_what_a_variable_forces_is_what_is_found(algorithm, ordering, length):
    own = f"{Path(sys.executable).parent}:/usr/bin:/bin"
    forced = {"MPIR_CVAR_ALLREDUCE_INTRA_ALGORITHM": algorithm, "MPIR_CVAR_ALLREDUCE_DEVICE_COLLECTIVE": "0"}
    found, _ = tried({"PATH": own, **forced})
    if "MPICH" not in found["library"]["library"]:
        pytest.skip("no MPICH, whose variables these are")
    assert {each["ordering"].partition(":")[0] for each in found["library"]["orderings"]} == {ordering}
    assert found["library"]["follows"][LENGTH] is length and found["library"]["follows"][COUNT]
