"""Tests made of the sections of a program that runs under mpirun (tests/mpi/programs/sections.py)."""

import json
import re
from functools import cache
from pathlib import Path

import pytest

from tests.ranks import on_ranks

PROGRAMS = Path(__file__).parent / "programs"


def sections(program):
    """The names of a program's sections, without running it."""
    return re.findall(r"^@section\ndef (\w+)", (PROGRAMS / program).read_text(), re.MULTILINE)


def sizes(*often, slow):
    """Decorator: the argument `size`, numbers of ranks; those of `slow` repeat what the others show."""
    values = [*often, *(pytest.param(size, marks=pytest.mark.slow) for size in slow)]
    return pytest.mark.parametrize("size", values)


@cache
def reported(program, library, size, env=(), timeout=240):
    """The program's report {section: failures}, run once for all tests. `env`: pairs."""
    run = on_ranks(size, [str(PROGRAMS / program)], library, dict(env), timeout)
    assert run.returncode == 0, run.stdout + run.stderr
    assert "Traceback" not in run.stderr
    return json.loads(run.stdout)
