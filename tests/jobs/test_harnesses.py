"""Inputs of the sites' harnesses: run if the harness is installed, else compared with its requirements."""

import contextlib
import importlib.util
import inspect
import os
import re
import shutil
import subprocess
import sys
import tomllib
import types
from pathlib import Path

import pytest

from tests.launch import run_command, run_mpi

ROOT = Path(__file__).resolve().parents[2]
HARNESSES = ROOT / "jobs/harnesses"
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]


def test_reframe_runs_the_reductions_test(tmp_path):
    """FPNA_REFRAME names its command where it lives in an environment of its own."""
    reframe = os.environ.get("FPNA_REFRAME") or shutil.which("reframe")
    if reframe is None:
        pytest.skip(
            "no reframe: pip install ReFrame-HPC in an environment of its own, FPNA_REFRAME=.../bin/reframe"
        )
    command = [
        reframe,
        "--nocolor",
        "--prefix",
        str(tmp_path),
        "-c",
        str(HARNESSES / "reframe_reductions.py"),
        "-r",
    ]
    variables = {"PYTHONPATH": str(ROOT), "HOME": str(tmp_path)}
    options = ["-S", f"python={sys.executable}", "--performance-report"]
    good = run_command([*command, *options], variables, 120, tmp_path)
    assert good.returncode == 0, good.stdout
    assert "Ran 1/1 test case(s) from 1 check(s) (0 failure(s)" in good.stdout
    assert re.search(r"reference_rate: [0-9.]+ Melement/s", good.stdout)
    bad = run_command([*command, *options, "-S", f"fingerprint={'0' * 32}"], variables, 120, tmp_path)
    assert bad.returncode != 0, "other bits than those of a run before fail the test"


def test_what_harnesses_look_for_is_what_a_run_prints(tmp_path):
    run = run_mpi(
        2, ["-m", "miniapps.reductions", "--size", "1000", "--variant", "exact", "--out", tmp_path / "run"]
    )
    assert run.returncode == 0, run.stderr
    application = ramble_application()
    for figure in application["figure_of_merit"]:
        assert re.search(figure["fom_regex"], run.stdout, re.MULTILINE)[figure["group_name"]]
    [criterion] = application["success_criteria"]
    assert re.search(criterion["match"], run.stdout, re.MULTILINE)  # Ramble reads line by line


def test_the_ramble_application_asks_for_options_that_there_are(tmp_path):
    application = ramble_application()
    [executable] = application["executable"]
    values = {variable["name"]: variable["default"] for variable in application["workload_variable"]}
    words = executable["template"].format(**values, experiment_run_dir=tmp_path, n_threads=1).split()
    assert words[0] == "python"
    run = run_mpi(1, [*words[1:], "--variant", "exact"])
    assert run.returncode == 0, run.stderr
    assert (tmp_path / "run/result.json").exists()


def test_the_spack_package_asks_for_what_the_project_asks_for():
    """Every dependency of pyproject.toml, in the same version, under the same condition."""
    package = spack_package()
    given = {
        (re.split("[@:~]", spec)[0].removeprefix("py-"), re.findall(r"@([\d.]+):", spec)[0], when)
        for spec, when in package
        if spec.startswith("py-") and "py-setuptools" not in spec and "py-pybind11" not in spec
    }
    extras = PROJECT["optional-dependencies"]
    wanted = {
        (*re.fullmatch(r"([\w-]+)>=([\d.]+)", requirement.replace("_", "-")).groups(), when)
        for when, requirements in ((None, PROJECT["dependencies"]), ("+analysis", extras["analysis"]),
                                   ("+torch", extras["torch"]))
        for requirement in requirements
    }  # fmt: skip
    normal = {(name, version.removesuffix(".0"), when) for name, version, when in wanted}
    assert {(name, version.removesuffix(".0"), when) for name, version, when in given} == normal


def test_the_apptainer_definition_installs_as_the_page_says_and_tests_two_ranks():
    sections = apptainer_sections()
    assert set(sections) == {"files", "post", "environment", "runscript", "test"}
    install = 'pip install ".[mpi,torch,analysis]" -c constraints.txt'  # no -e: a container keeps no checkout
    assert install.replace("install ", "install -e ") in (ROOT / "docs/how-to/install.md").read_text()
    assert install in sections["post"].replace("--no-cache-dir ", "")
    assert "mpirun -n 2 " in sections["test"]
    for name, body in sections.items():
        if name != "files":
            check = subprocess.run(["sh", "-en"], input=body, text=True, capture_output=True)
            assert (check.returncode, check.stderr) == (0, ""), name


@pytest.mark.slow
def test_the_apptainer_test_section_passes_in_this_environment(tmp_path):
    """Its commands, run here instead of inside the container."""
    if not Path(sys.executable).with_name("mpirun").exists():
        pytest.skip("no mpirun beside this python: the definition's %test is written for the extra `mpi`")
    body = apptainer_sections()["test"].replace("/opt/fpna/bin/activate", "./activate")
    (tmp_path / "activate").write_text(f'PATH="{Path(sys.executable).parent}:$PATH"\n')
    run = run_command(["sh", "-ec", body], {}, 180, tmp_path)
    assert run.returncode == 0, run.stdout + run.stderr


def apptainer_sections():
    """The definition's sections by name, as text."""
    parts = re.split(r"^%(\w+)\n", (HARNESSES / "apptainer.def").read_text(), flags=re.MULTILINE)
    return dict(zip(parts[1::2], parts[2::2], strict=True))


# The signatures of the directives that the definitions use, as read in Ramble's source (2025) and in packages of Spack
# 1.0, not run there: a call that they would not
# take fails here too. Ramble and Spack themselves are not run.
def _executable(name, template, use_mpi=False): ...
def _workload(name, executables=None): ...
def _workload_variable(name, default, description, values=None, workload=None, workloads=None): ...
def _figure_of_merit(name, fom_regex, group_name, log_file="{log_file}", units=""): ...
def _success_criteria(name, mode, match=None, file="{log_file}"): ...
def _tags(*values): ...
def _license(license_identifier, checked_by=None, when=None): ...
def _version(ver, checksum=None): ...
def _variant(name, default=None, description=""): ...
def _depends_on(spec, when=None, type=("build", "link")): ...


def ramble_application():
    """The calls of the Ramble application, by directive: dicts of bound arguments."""
    calls = {}
    directives = [_executable, _workload, _workload_variable, _figure_of_merit, _success_criteria, _tags]
    names = {directive.__name__[1:]: recorder(directive, calls) for directive in directives}
    load(
        HARNESSES / "ramble/applications/fpna-reductions/application.py",
        {"ramble": {}, "ramble.appkit": names | {"ExecutableApplication": object}},
    )
    return calls


def spack_package():
    """(spec, condition) of every depends_on of the Spack package."""
    calls, conditions = {}, []

    @contextlib.contextmanager
    def when(spec):
        conditions.append(spec)
        yield
        conditions.pop()

    dependencies = []

    def depends_on(*args, **kwargs):
        bound = inspect.signature(_depends_on).bind(*args, **kwargs).arguments
        dependencies.append((bound["spec"], bound.get("when") or (conditions[-1] if conditions else None)))

    names = {
        directive.__name__[1:]: recorder(directive, calls) for directive in (_license, _version, _variant)
    }
    parents = ("spack", "spack_repo", "spack_repo.builtin", "spack_repo.builtin.build_systems")
    load(
        HARNESSES / "spack/spack_repo/fpna/packages/py_fpna_miniapps/package.py",
        {name: {} for name in parents}
        | {
            "spack.package": {**names, "depends_on": depends_on, "when": when},
            "spack_repo.builtin.build_systems.python": {"PythonPackage": object},
        },
    )
    assert {call["name"] for call in calls["variant"]} == {"analysis", "torch"}
    return dependencies


def recorder(directive, calls):
    """A stand-in for a directive: refuses what its signature refuses, and notes the rest."""

    def call(*args, **kwargs):
        bound = inspect.signature(directive).bind(*args, **kwargs)
        bound.apply_defaults()
        calls.setdefault(directive.__name__[1:], []).append(bound.arguments)

    return call


def load(path, modules):
    """Execute a file with `modules` ({name: contents}) in place of those that it imports."""
    stand_ins = {}
    for name, contents in modules.items():
        stand_ins[name] = types.ModuleType(name)
        vars(stand_ins[name]).update(contents)
    with pytest.MonkeyPatch.context() as patch:
        for name, module in stand_ins.items():
            patch.setitem(sys.modules, name, module)
        spec = importlib.util.spec_from_file_location("harness", path)
        spec.loader.exec_module(importlib.util.module_from_spec(spec))
