"""The wheel has everything that the program needs, and works away from the checkout."""

import json
import os
import shutil
import subprocess
import sys
import sysconfig
import tarfile
import zipfile
from pathlib import Path

import kernels._native
import pytest

import kernels
from tests.launch import run_mpi, run_python

ROOT = Path(__file__).resolve().parents[2]
ROOMS = ("fpna", "kernels", "miniapps", "analysis", "jobs")
pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]


@pytest.fixture(scope="module")
def copy(tmp_path_factory):
    """What a wheel is made from, apart from the checkout, whose own build is to be left alone."""
    copy = tmp_path_factory.mktemp("checkout")
    for name in ("pyproject.toml", "setup.py", "MANIFEST.in", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, copy)
    for name in (*ROOMS, "tests"):
        shutil.copytree(ROOT / name, copy / name, ignore=shutil.ignore_patterns("*.so", "__pycache__"))
    # The extension that this environment was built with, where setup.py looks for one that is up to date: to compile it
    # once more takes a minute of two cores, and shows nothing that `make environment` has not shown.
    built = copy / "build" / f"lib.{sysconfig.get_platform()}-{sys.implementation.cache_tag}" / "kernels"
    built.mkdir(parents=True)
    shutil.copy(kernels._native.__file__, built)
    return copy


@pytest.fixture(scope="module")
def wheel(copy):
    """The wheel, built."""
    pip("wheel", "--no-deps", "--no-build-isolation", "-w", copy / "dist", copy)
    (built,) = (copy / "dist").glob("fpna_miniapps-*.whl")
    return built


@pytest.fixture(scope="module")
def installed(wheel, tmp_path_factory):
    """A directory with the wheel's content; what it depends on comes from this environment."""
    target = tmp_path_factory.mktemp("installed")
    pip("install", "--no-deps", "--target", target, wheel)
    return target


def beside(path):
    """`path` with the mpirun of this environment before that of the machine, which may belong to another library."""
    return f"{Path(sys.executable).parent}:{path}"


def pip(*arguments):
    run = subprocess.run(
        [sys.executable, "-m", "pip", "--quiet", *map(str, arguments)],
        text=True,
        capture_output=True,
        timeout=600,
    )
    assert run.returncode == 0, run.stdout + run.stderr


def test_the_sdist_holds_what_setup_compiles_and_no_tests(copy):
    built = subprocess.run(
        [sys.executable, "setup.py", "-q", "sdist"], cwd=copy, capture_output=True, text=True
    )
    assert built.returncode == 0, built.stderr
    [sdist] = (copy / "dist").glob("*.tar.gz")
    with tarfile.open(sdist) as packed:
        names = {name.partition("/")[2] for name in packed.getnames()}
    sources = {str(path.relative_to(copy)) for path in (copy / "kernels").rglob("*.[ch]pp")}
    assert len(sources) > 60 and sources <= names
    assert not {name for name in names if name.startswith("tests")}


def test_every_package_and_every_data_file_is_in_the_wheel(copy, wheel):
    packed = set(zipfile.ZipFile(wheel).namelist())
    expected = {
        str(path.relative_to(copy))
        for room in ROOMS
        for pattern in (
            "*.py",
            "*.toml",
            "*.cu",
            "templates/*",
            "preload/*",
            "preload/third_party/*",
            "shipped/*",
        )
        for path in (copy / room).rglob(pattern)
        if path.is_file()
    }
    assert sorted(expected - packed) == []
    assert {
        "miniapps/coupled/decks/S.toml",
        "miniapps/solver/decks/S.toml",
        "miniapps/training/decks/S.toml",
        "jobs/sites/fugaku.toml",
        "jobs/templates/pjm.sh",
        "kernels/include/device.hpp",
        "kernels/include/pointwise.hpp",
    } <= packed


def test_the_wheel_holds_the_rooms_and_nothing_else(wheel):
    packed = zipfile.ZipFile(wheel).namelist()
    tops = {name.split("/")[0] for name in packed}
    assert {top for top in tops if not top.endswith(".dist-info")} == set(ROOMS)
    assert [name for name in packed if name.startswith("kernels/_native.") and name.endswith((".so", ".pyd"))]


def test_the_installed_wheel_runs_the_main_job(installed, tmp_path):
    env = {"PYTHONPATH": str(installed), "PATH": beside(os.environ["PATH"])}
    where = run_python(["-c", "import kernels._native as k; print(k.__file__)"], env, cwd=tmp_path)
    assert Path(where.stdout.strip()).is_relative_to(installed), "the wheel is tested, not the checkout"

    doctor = run_python(["-m", "miniapps", "doctor"], env, cwd=tmp_path)
    assert doctor.returncode == 0, doctor.stdout + doctor.stderr

    arguments = ["--steps", "2", "--guarantee", "layout", "--out", "runs/2"]
    run = run_mpi(2, ["-m", "miniapps.coupled", *arguments], env=env, cwd=tmp_path)
    assert run.returncode == 0, run.stdout + run.stderr
    listed = run_python(["-m", "analysis", "show", "runs/2"], env, cwd=tmp_path)
    assert listed.returncode == 0, listed.stdout + listed.stderr

    job = ["-m", "jobs", "render", "--app", "coupled", "--account", "a", "--site", "fugaku"]
    assert "miniapps.coupled" in run_python(job, env, cwd=tmp_path).stdout


@pytest.fixture
def crowded(installed, tmp_path):
    """A user's directory in which files are called as our packages are, and the variables to use the wheel there."""
    (tmp_path / "jobs").mkdir()
    for name in ("kernels.py", "analysis.py", "jobs/__init__.py"):
        (tmp_path / name).write_text("raise SystemExit('a file of the user has been run')\n")
    return tmp_path, {
        "PYTHONPATH": str(installed),
        "PATH": beside(f"{installed / 'bin'}:{os.environ['PATH']}"),
    }


def test_the_command_does_not_see_files_that_are_called_as_ours(installed, crowded):
    here, env = crowded
    fpna = str(installed / "bin" / "fpna")

    def run(*arguments, code=0):
        done = run_python([fpna, *arguments], env, cwd=here)
        assert done.returncode == code, done.stdout + done.stderr
        return done.stdout

    assert run("--version") == f"{kernels.VERSION}\n"
    assert "divergence" in run("--help")
    assert "mpi4py" in run("doctor")
    assert "ring" in run("kernels", "allreduce", "list")
    assert "x[0]" in run("kernels", "sums", "tree", "numpy", "-n", "4")
    for ranks in (1, 2):
        options = ["--steps=2", "--guarantee=layout", "--closure=physics", f"--out=runs/{ranks}"]
        done = run_mpi(ranks, [fpna, "coupled", *options], env=env, cwd=here)
        assert done.returncode == 0, done.stdout + done.stderr
    run("divergence", "runs/1", "runs/2")
    run("report", "runs", "-o", "report.html")
    assert (here / "report.html").read_text(encoding="utf-8").lstrip().lower().startswith("<!doctype html>")
    assert "miniapps.coupled" in run(
        "jobs", "render", "--app", "coupled", "--account", "a", "--site", "fugaku"
    )


def test_python_m_does_not_see_them_either_and_a_program_beside_them_is_told(installed, crowded):
    here, env = crowded
    for module in ("miniapps.coupled", "fpna"):
        done = run_python(["-m", module, "--help"], env, cwd=here)
        assert done.returncode == 0, done.stderr
    (here / "program.py").write_text("import fpna\n")  # Python looks beside a program first
    done = run_python([str(here / "program.py")], env, cwd=here)
    assert done.returncode != 0
    assert f"{here / 'kernels.py'} hides the package kernels" in done.stderr


def test_the_installed_wheel_serves_a_program_of_the_user(installed, tmp_path):
    program = ROOT / "tests" / "mpi" / "programs" / "recorded.py"
    done = run_mpi(2, [str(program), "mine"], env={"PYTHONPATH": str(installed)}, cwd=tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    assert (tmp_path / "mine" / "result.json").exists()


def test_a_program_in_c_is_observed_from_the_wheel(installed, crowded):
    here, env = crowded
    compiler = Path(sys.executable).parent / "mpicc"
    if not compiler.exists() or not shutil.which("gcc"):
        pytest.skip("no mpicc beside this python, or no gcc")
    source = ROOT / "tests" / "mpi" / "preload" / "wildcard.c"
    subprocess.run([compiler, "-g", "-o", here / "wildcard", source], check=True, capture_output=True)
    fpna = [str(installed / "bin" / "fpna"), "run", "--out", "observed", "--", "./wildcard", "2"]
    run = run_mpi(3, fpna, env=env, cwd=here, timeout=400)  # it compiles what records first
    assert run.returncode == 0, run.stdout + run.stderr
    shown = run_python([str(installed / "bin" / "fpna"), "show", "observed"], env, cwd=here)
    assert "source:MPI_Recv at collect (wildcard.c:14)" in shown.stdout


def test_the_first_minute_from_the_wheel_alone(wheel, tmp_path):
    """In an empty environment, with no compiler and nothing but that environment on PATH."""
    subprocess.run([sys.executable, "-m", "venv", tmp_path / "env"], check=True, timeout=300)
    bin = tmp_path / "env" / "bin"
    installing = [bin / "pip", "--quiet", "install", f"{wheel}[mpi]"]
    done = subprocess.run(installing, text=True, capture_output=True, timeout=600)
    if done.returncode:
        pytest.skip(f"pip cannot fetch what the wheel needs: {done.stderr[-300:]}")
    (tmp_path / "tools").mkdir()
    for name in ("sh", "ls"):
        (tmp_path / "tools" / name).symlink_to(f"/bin/{name}")
    env = {"PATH": f"{bin}:{tmp_path / 'tools'}", "HOME": "/nowhere"}
    done = subprocess.run([bin / "fpna", "try", "--json"], env=env, cwd=tmp_path, text=True, capture_output=True,
                          timeout=200)  # fmt: skip
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert found["results_layout"] == 1 and found["results"] > 1 and found["library"]["orderings"]
    assert {row["what"] for row in found["tables"]["processes"]} == {"np.sum", "np.dot"}
    assert found["left_out"] == ["torch.sum: torch is not installed (pip install torch)"]
    assert found["tables"]["next"][-1]["command"] == "mpirun -n 4 fpna coupled --closure physics"
