"""`make` on an incomplete machine names what is missing, before it downloads or builds anything."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
pytestmark = pytest.mark.skipif(shutil.which("make") is None, reason="no make on PATH")


@pytest.fixture
def checkout(tmp_path):
    """What make reads first, in a directory without environments."""
    shutil.copy(ROOT / "Makefile", tmp_path)
    shutil.copytree(ROOT / "tools", tmp_path / "tools")
    for name in ("pyproject.toml", "setup.py", "constraints.txt"):
        shutil.copy(ROOT / name, tmp_path)
    return tmp_path


@pytest.fixture
def tools(tmp_path_factory):
    """A PATH with the everyday tools, and with neither Python nor compiler."""
    path = tmp_path_factory.mktemp("path")
    for name in ("bash", "sh", "cat", "expand", "grep", "mktemp", "rm", "sed", "tail", "touch"):
        (path / name).symlink_to(shutil.which(name))
    return path


def executable(path, body):
    path.write_text(f"#!/bin/sh\n{body}\n")
    path.chmod(0o755)


def make(checkout, tools, *arguments):
    env = {key: value for key, value in os.environ.items() if key not in ("CXX", "PYTHON", "MAKEFLAGS")}
    return subprocess.run(
        [shutil.which("make"), *arguments],
        cwd=checkout,
        env={**env, "PATH": str(tools)},
        text=True,
        capture_output=True,
        timeout=60,
    )


def refusal(run, checkout):
    """The message of a make that stopped before it created anything."""
    assert run.returncode == 2, run.stdout + run.stderr
    assert not (checkout / ".venv").exists()
    return run.stderr


def test_without_a_target_make_lists_the_targets(checkout, tools):
    run = make(checkout, tools)
    assert run.returncode == 0, run.stderr
    listed = [line.split()[0] for line in run.stdout.splitlines()[1:]]
    assert {"demo", "test", "test-all", "fuzz", "lint", "wheel", "clean"} <= set(listed)


def test_no_python(checkout, tools):
    assert "Python 3.11 or newer is needed; found: none" in refusal(make(checkout, tools, "demo"), checkout)


def test_old_python(checkout, tools):
    executable(tools / "python3", 'case "$2" in *platform*) echo 3.9.2;; *) exit 1;; esac')
    message = refusal(make(checkout, tools, "test"), checkout)
    assert "found: python3 (3.9.2)" in message
    assert "PYTHON=" in message, "how to use another one"


def test_python_without_venv(checkout, tools):
    executable(tools / "python3", 'case "$2" in *venv*) exit 1;; esac')
    message = refusal(make(checkout, tools, "demo"), checkout)
    assert "python3 has no 'venv' module" in message
    assert "apt install python3-venv" in message


def test_no_compiler(checkout, tools):
    executable(tools / "python3", "exit 0")
    message = refusal(make(checkout, tools, "demo"), checkout)
    assert "a C++ compiler is needed (looked for c++, g++ and clang++ on PATH)" in message
    assert "apt install g++" in message


def test_a_compiler_that_is_named_but_absent(checkout, tools):
    executable(tools / "python3", "exit 0")
    assert "looked for g++-99 on PATH" in refusal(make(checkout, tools, "demo", "CXX=g++-99"), checkout)


def test_compiler_without_openmp(checkout, tools):
    executable(tools / "python3", "exit 0")
    executable(tools / "c++", "echo 'omp.h: no such file' >&2; exit 1")
    message = refusal(make(checkout, tools, "demo"), checkout)
    assert "omp.h: no such file" in message, "the compiler's own words"
    assert "'c++' cannot compile C++17 with OpenMP" in message


def test_no_python_headers(checkout, tools):
    executable(tools / "python3", "exit 0")
    executable(tools / "c++", "echo 'fatal error: Python.h: No such file' >&2; exit 1")
    assert "apt install python3-dev" in refusal(make(checkout, tools, "demo"), checkout)


def test_the_extension_is_compiled_once_and_a_demo_installs_no_tests(checkout, tools):
    """`build_ext` alone compiles before a demo; pip is told not to, and fetches no package for tests."""
    (tools / "make").symlink_to(shutil.which("make"))
    planned = make(checkout, tools, "-n", "demo")
    assert planned.returncode == 0, planned.stderr
    assert planned.stdout.count("build_ext") == 1
    before, _, after = planned.stdout.partition("export FPNA_EXTENSION=none\n")
    assert " -e " not in before and after.count(" -e ") == 1 and '-e ".[mpi,torch,analysis]"' in after
    tests = make(checkout, tools, "-n", ".venv/stamp-tests")
    assert tests.stdout.count("export FPNA_EXTENSION=none\n") == tests.stdout.count(" -e ") == 2
