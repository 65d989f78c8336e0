"""Python packages that people use, under `fpna run` and `fpna.wrap`: results stay, and what is said of them is true.

What is expected of each was checked by hand once, by the values that the records hold. Debian's packages run under
Debian's Python and Open MPI, those of packages/requirements.txt under this Python and MPICH.
"""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from miniapps.trace import read_run
from tests.launch import launcher
from tests.mpi.test_observed_mpi import debian
from tests.mpi.test_real_codes import answer

pytestmark = pytest.mark.slow
HERE = Path(__file__).parent / "packages"
ROOT = Path(__file__).parents[2]
INSTALLED = ROOT / ".venv-packages"
ARCH = "x86_64-linux-gnu-real/lib/python3/dist-packages"
OF_PETSC = [f"/usr/lib/petscdir/petsc3.18/{ARCH}", f"/usr/lib/slepcdir/slepc3.18/{ARCH}"]
DEBIAN = {"petsc4py": "python3-petsc4py-real", "slepc4py": "python3-slepc4py-real", "mpi4py": "python3-mpi4py",
          "mpi4py_fft": "python3-mpi4py-fft", "h5py._debian_h5py_mpi": "python3-h5py-mpi"}  # fmt: skip


class Place:
    """Where programs run: `python`, the words before it on `ranks` ranks, and their environment."""

    def __init__(self, compiler, launch, python, env):
        self.compiler, self.launch, self.python, self.env = compiler, launch, python, env

    def run(self, ranks, program, *options, out=None, code=0):
        """What `program` (its file and arguments) printed as `result`, and all that was printed; under `fpna run` with
        `options` where there is `out`."""
        words = [*self.launch, "-n", ranks]
        if out:
            words += [
                sys.executable,
                "-m",
                "fpna",
                "run",
                "--mpicxx",
                self.compiler,
                "--out",
                out,
                *options,
                "--",
            ]
        words += [self.python, HERE / program[0], *program[1:]]
        done = subprocess.run(
            list(map(str, words)), env=self.env, capture_output=True, text=True, timeout=200
        )
        printed = done.stdout + done.stderr
        assert done.returncode == code, printed
        (result,) = re.findall(r"^result (.*)$", done.stdout, re.MULTILINE) or [""]
        if out and not code:
            traces = list(read_run(out))
            assert len(traces) == ranks and all(trace.complete for trace in traces)
        return result, printed


def of_debian(*modules):
    """Debian's Python with `modules`, or skip."""
    path = os.pathsep.join([str(ROOT), *OF_PETSC])
    env = {**debian(), "OMP_NUM_THREADS": "1", "PYTHONPATH": path}
    for module in modules:
        if subprocess.run(
            ["/usr/bin/python3", "-c", f"import {module}"], env=env, capture_output=True
        ).returncode:
            pytest.skip(f"no {module} (apt-get install {DEBIAN[module]})")
    return Place("/usr/bin/mpicxx.openmpi", ["mpirun.openmpi", "--oversubscribe"], "/usr/bin/python3", env)


def installed(*modules):
    """This Python with `modules` of packages/requirements.txt, or skip."""
    for module in modules:
        if not (INSTALLED / module).exists() and not (INSTALLED / f"{module}.py").exists():
            pytest.skip(
                f"no {module} (pip install --no-deps --target {INSTALLED.name} -r "
                f"{(HERE / 'requirements.txt').relative_to(ROOT)})"
            )
    command, env = launcher("mpich")
    folder = Path(command[0]).parent
    env = {**os.environ, **env, "OMP_NUM_THREADS": "1", "PYTHONPATH": f"{ROOT}{os.pathsep}{INSTALLED}",
           "PYTHONWARNINGS": "ignore", "PATH": f"{folder}{os.pathsep}{os.environ['PATH']}"}  # fmt: skip
    return Place(folder / "mpicxx", [command[0]], sys.executable, env)


def compared(tmp_path, a, b):
    """(exit code, row) of `fpna divergence`."""
    ended, said = answer("divergence", (tmp_path / a, tmp_path / b))
    return ended, (said["tables"]["comparisons"][0] if said else {})


def test_petsc_and_slepc_repeat_their_bits_and_their_sums_can_be_exact(tmp_path):
    """Checked: repeats are equal in some 700 records; two and four ranks part at a sum of int64 in MatAssemblyEnd, that
    no order changes, then in the norms that the result prints; `exact` makes Vec.sum of 1, 1e16, -1e16, 1 a 2; two
    intersections of keys of PETSc's own kept the library's order, and are named."""
    place = of_debian("mpi4py", "petsc4py", "slepc4py")
    program = ("petsc.py", "slepc")
    plain, _ = place.run(2, program)
    told = {
        name: place.run(ranks, program, out=tmp_path / name)[0]
        for name, ranks in (("a", 2), ("b", 2), ("c", 4))
    }
    assert plain == told["a"] == told["b"] != told["c"]
    ended, row = compared(tmp_path, "a", "b")
    assert ended == 0 and row["compared"] > 400, row
    ended, row = compared(tmp_path, "a", "c")
    assert ended == 3 and row["cause"] == "local kernel" and row["rounding"] == "open", row
    assert "MatAssemblyEnd" in row["name"], row
    exact, printed = place.run(4, program, "--guarantee", "exact", out=tmp_path / "exact")
    assert (told["c"].split()[-1], exact.split()[-1]) == ("0x0.0p+0", "0x1.0000000000000p+1")
    assert re.search(
        r"\d+ of \d+ sums on rank 0 kept the library's order: user operation .*: .*Garbage", printed
    )


def test_a_transform_over_ranks_is_the_same_and_its_sum_of_squares_is_not(tmp_path):
    """Checked: the spectrum has equal bits on two and four ranks, as each line is transformed on one rank; the sum of
    squares is of two and of four parts."""
    place = of_debian("mpi4py", "mpi4py_fft")
    plain, _ = place.run(2, ("fft.py",))
    told = {
        name: place.run(ranks, ("fft.py",), out=tmp_path / name)[0]
        for name, ranks in (("a", 2), ("b", 2), ("c", 4))
    }
    assert plain == told["a"] == told["b"]
    assert told["a"].split()[0] == told["c"].split()[0]
    assert compared(tmp_path, "a", "b")[0] == 0
    ended, row = compared(tmp_path, "a", "c")
    assert row.get("rounding") != "not rounding", row
    if told["a"] != told["c"]:
        assert ended == 3 and row["cause"] in ("collective", "contributions or order", "local kernel"), row


def test_a_file_written_by_all_ranks_is_read_back(tmp_path):
    """Checked: MPI-IO is not compared, the one sum is: equal in repeats, of other parts on four ranks."""
    place = of_debian("mpi4py", "h5py._debian_h5py_mpi")
    program = ("mpio.py", tmp_path / "u.h5")
    plain, _ = place.run(2, program)
    told = {
        name: place.run(ranks, program, out=tmp_path / name)[0]
        for name, ranks in (("a", 2), ("b", 2), ("c", 4))
    }
    assert plain == told["a"] == told["b"]
    assert compared(tmp_path, "a", "b")[0] == 0
    ended, row = compared(tmp_path, "a", "c")
    assert row.get("rounding") != "not rounding" and (ended == 3 or told["a"] == told["c"]), row


def test_a_pool_of_ranks_takes_answers_in_any_order_and_is_repeated(tmp_path):
    """Checked: emcee's samples do not depend on who answers first; where runs differ, schwimmbad's probes found another
    rank's answer first; a replay has all bits again."""
    place = installed("emcee", "schwimmbad")
    plain, _ = place.run(3, ("pool.py",))
    for name, options in (("a", ()), ("b", ()), ("again", ("--replay", tmp_path / "a"))):
        assert place.run(3, ("pool.py",), *options, out=tmp_path / name)[0] == plain
    ended, row = compared(tmp_path, "a", "b")
    assert ended == 0 or row["cause"] == "message order", row
    assert compared(tmp_path, "a", "again")[0] == 0


def test_futures_answer_in_any_order(tmp_path):
    """Checked: as of the pool; the sum of the answers is in the order in which they were asked for."""
    place = installed()
    plain, _ = place.run(3, ("futures.py",))
    for name, options in (("a", ()), ("b", ())):
        assert place.run(3, ("futures.py",), *options, out=tmp_path / name)[0] == plain
    ended, row = compared(tmp_path, "a", "b")
    assert ended == 0 or row["cause"] == "message order", row


@pytest.mark.parametrize(("ranks", "exact"), [(2, "0.0"), (4, "2.0")])
def test_heat_adds_by_the_guarantee_of_the_communicator_that_it_is_given(ranks, exact):
    """Checked: the parts 1, 1e16, -1e16, 1 of four ranks add up to 2; on two, torch rounds each rank's own part to 1e16
    and -1e16. heat's own operation for places is refused with what to do."""
    place = installed("heat")
    assert place.run(ranks, ("heat_sum.py", "plain"))[0] == "0.0 1"
    total, _, refused = place.run(ranks, ("heat_sum.py", "exact"))[0].partition(" ")
    assert total == exact and "the program defines the operation" in refused and "comm.plain" in refused


def test_a_cluster_of_dask_passes_its_data_by_sockets(tmp_path):
    """Checked: MPI carries the address of the scheduler alone, so that the record has a few collectives and no sum."""
    place = installed("dask_mpi", "distributed")
    plain, _ = place.run(3, ("cluster.py",))
    assert (
        place.run(3, ("cluster.py",), out=tmp_path / "a")[0]
        == plain
        == (sum(1 / (1 + i) for i in range(8))).hex()
    )
    calls = {
        trace.names[name].split()[0]
        for trace in read_run(tmp_path / "a")
        for name in trace.tables["events"]["name"]
    }
    assert "MPI_Bcast" in calls and not calls & {"MPI_Allreduce", "MPI_Reduce"}


def test_the_hook_adds_the_gradients_of_accelerate_and_of_lightning():
    """Checked: the gradients of the first step are the means of all ranks' own, rounded once, which those of
    gloo on three ranks are not; weights are equal on all ranks, and the same with both trainers."""
    place = installed("transformers", "accelerate", "lightning")
    told = [place.run(3, ("hooks.py", trainer))[0] for trainer in ("accelerate", "lightning")]
    assert told[0].startswith("1 True ") and told[0] == told[1]
