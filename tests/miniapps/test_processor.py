"""`--processor any`: what it refuses, what it states, and one set of bits whatever libraries choose."""

import json
import shutil
import subprocess
import sys

import pytest

pytest.importorskip("torch")

from mpi4py import MPI

from kernels.contract.native import LEVELS
from miniapps import applications
from miniapps.runner.main import main
from miniapps.trace import read
from tests.launch import ROOT, UNHELD, environment, libraries, run_mpi
from tests.miniapps.anywhere import CASES, QUIET

SETTINGS = {
    "torch, no AVX2": {"ATEN_CPU_CAPABILITY": "default"},
    "torch, AVX2": {"ATEN_CPU_CAPABILITY": "avx2"},
    "oneDNN, SSE4.1": {"ONEDNN_MAX_CPU_ISA": "SSE41"},
    "oneDNN, AVX2": {"ONEDNN_MAX_CPU_ISA": "AVX2"},
    "MKL": {"MKL_CBWR": "COMPATIBLE"},
    "OpenBLAS": {"OPENBLAS_CORETYPE": "Nehalem"},
    "NumPy": {"NPY_DISABLE_CPU_FEATURES": "X86_V3 X86_V4 AVX512_ICL"},
    "glibc": {"GLIBC_TUNABLES": "glibc.cpu.hwcaps=-AVX2,-FMA,-FMA4"},
}
LEAST = {
    name: value
    for each in ("torch, no AVX2", "oneDNN, SSE4.1", "MKL", "OpenBLAS", "NumPy", "glibc")
    for name, value in SETTINGS[each].items()
}
FOLLOWING = (
    "online",
    "surrogate",
    "online, static",
    "gpt",
)  # cases whose bits follow the processor without the option
# Without the option too, no part of these follows the processor.
ANYWAY = ("physics", "surrogate, static", "cg", "gmres", "chebyshev", "sums", "lognormal", "dot")
AARCH64 = ROOT / "build" / "aarch64" / "python"
ANY = ["-m", "tests.miniapps.anywhere", "any"]


def recorded(*words, settings=None, python=(sys.executable,)):
    """What the cases recorded in a process of its own: {case: hashes}."""
    done = subprocess.run(
        [*python, "-m", "tests.miniapps.anywhere", *words],
        env=environment(UNHELD | (settings or {})), capture_output=True, text=True, timeout=1800,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


@pytest.fixture(scope="module")
def here():
    """The records of all cases, as this processor computes them."""
    return recorded("any", "best")


@pytest.fixture(scope="module")
def least():
    """The same without the option: libraries as they choose, and all held to old processors."""
    return [recorded("this", "best", *FOLLOWING, settings=settings) for settings in ({}, LEAST)]


def test_no_library_that_is_held_to_an_old_processor_changes_a_bit(here):
    assert recorded("any", "best", settings=LEAST) == here
    assert all(len(hashes) > 1 for hashes in here.values()) and set(here) == set(CASES)


def test_without_the_option_these_settings_change_bits(least):
    one, other = least
    assert [case for case in FOLLOWING if one[case] != other[case]] == list(FOLLOWING)


def test_data_and_own_kernels_follow_no_library_without_the_option_either(here):
    found = recorded("this", "best", *ANYWAY, settings=LEAST)
    assert {case: hashes[0] for case, hashes in found.items()} == {case: here[case][0] for case in ANYWAY}


@pytest.mark.slow
@pytest.mark.parametrize("name", SETTINGS)
def test_no_setting_changes_a_bit(name, here):
    assert recorded("any", "best", settings=SETTINGS[name]) == here


@pytest.mark.slow
@pytest.mark.parametrize("level", LEVELS)
def test_no_instruction_set_of_the_kernels_changes_a_bit(level, here):
    assert recorded("any", level) == here


@pytest.mark.slow
@libraries
@pytest.mark.parametrize("size", [2, 4])
def test_nor_do_more_ranks(library, size, here):
    run = run_mpi(size, [*ANY, "best"], library)
    assert run.returncode == 0, run.stderr
    found = json.loads(run.stdout.splitlines()[-1])
    assert {case: hashes[0] for case, hashes in found.items()} == {
        case: hashes[0] for case, hashes in here.items()
    }


@pytest.mark.slow
@pytest.mark.parametrize("processor", ["Nehalem", "Haswell", "EPYC-Rome"])
def test_an_emulated_processor_has_the_same_bits(processor, here):
    if (emulator := shutil.which("qemu-x86_64")) is None:
        pytest.skip("no qemu-x86_64")
    cases = ["online", "mlp", *ANYWAY]
    found = recorded("any", "best", *cases, python=[emulator, "-cpu", processor, sys.executable])
    assert found == {case: here[case] for case in cases}


@pytest.mark.slow
def test_aarch64_has_the_same_bits(here):
    if not AARCH64.exists():
        pytest.skip(f"no {AARCH64.relative_to(ROOT)}: make aarch64")
    cases = ["online", "mlp", *ANYWAY]
    assert recorded("any", "best", *cases, python=[AARCH64]) == {case: here[case] for case in cases}


def started(app, tmp_path, *options):
    return main(applications.app(app), [*QUIET, *options, "--out", str(tmp_path / "run")], MPI.COMM_SELF)


@pytest.mark.parametrize(("app", "options", "parts"), [
    ("coupled", ["--guarantee=none"], ["--guarantee none promises no bits", "run, layout or exact"]),
    ("coupled", ["--set=closure.batch=rank", "--guarantee=run"], ["closure.batch = rank", "closure.batch = block"]),
    ("solver", ["--spmv=scipy", "--guarantee=run"], ["--spmv scipy", "--spmv csr"]),
    ("reductions", ["--variant=numpy", "--guarantee=run"], ["numpy@numpy adds by a library", "--variant sptr"]),
    ("training", ["--model=graphsage"], ["--model graphsage", "by torch", "choose"]),
    ("training", ["--set=training.calls=rank", "--guarantee=run"], ["training.calls = rank"]),
    ("training", ["--policy=lgreco", "--wire=fp8"], ["--policy lgreco", "--policy fixed"]),
    ("mesh", ["--model=moe"], ["torch draws the initial up", "such as gpt"]),
    ("inference", ["--backend=eager", "--guarantee=run"], ["--backend eager", "--backend static"]),
])  # fmt: skip
def test_what_follows_the_processor_is_refused_by_name(app, options, parts, tmp_path, capfd):
    assert started(app, tmp_path, "--processor=any", *options) == 2
    said = capfd.readouterr().err
    assert said.startswith(f"{app}: --processor any: ") and all(part in said for part in parts), said
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("processor", ["this", "any"])
def test_a_run_says_at_its_end_over_which_processors_it_holds(processor, tmp_path, capfd):
    name, options = CASES["cg"]
    assert started(name, tmp_path, *options, f"--processor={processor}") == 0
    (line,) = [line for line in capfd.readouterr().out.splitlines() if line.startswith("HOLDS ")]
    result = json.loads((tmp_path / "run" / "result.json").read_text())
    assert line == f"HOLDS over {result['holds_over']}"
    entry = read(tmp_path / "run" / "rank-00000.h5").attributes["environment"].get("holds_over")
    if processor == "any":
        assert line == "HOLDS over any processor with IEEE 754 arithmetic" and entry == "any"
    else:
        assert line.startswith("HOLDS over this kind of processor") and entry is None
        assert line.endswith(result["environment"].get("instructions", "")) and ": " in line


def test_both_choices_solve_one_problem(tmp_path):
    problems = set()
    for processor in ("this", "any"):
        name, options = CASES["cg"]
        assert started(name, tmp_path / processor, *options, f"--processor={processor}") == 0
        problems.add(json.loads((tmp_path / processor / "run" / "result.json").read_text())["problem"])
    assert len(problems) == 1


def test_without_a_guarantee_nothing_is_said_of_processors(tmp_path, capfd):
    name, options = CASES["cg"]
    assert started(name, tmp_path, *options, "--guarantee=none") == 0
    assert "HOLDS" not in capfd.readouterr().out


def test_ranks_of_two_kinds_have_the_bits_of_one_and_nothing_is_said_of_them(here):
    old = "import os, runpy, sys; os.environ.update({settings} if os.environ['{rank}'] == '1' else {{}}); "
    old += "sys.argv[:] = ['anywhere', 'any', 'best', 'surrogate']; "
    old += "runpy.run_module('tests.miniapps.anywhere', run_name='__main__', alter_sys=True)"
    run = run_mpi(2, ["-c", old.format(settings=LEAST, rank="PMI_RANK")])
    assert run.returncode == 0, run.stderr
    assert json.loads(run.stdout.splitlines()[-1])["surrogate"][0] == here["surrogate"][0]
    assert "kinds" not in run.stderr
