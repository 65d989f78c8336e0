"""Tests made of the sections of a program that runs under mpirun (tests/mpi/programs/sections.py)."""

import json
import re
from functools import cache
from pathlib import Path

import pytest

from tests.launch import LIBRARIES
from tests.ranks import on_ranks

PROGRAMS = Path(__file__).parent / "programs"


def sections(program):
    """The names of a program's sections, without running it."""
    return re.findall(r"^@section\ndef (\w+)", (PROGRAMS / program).read_text(), re.MULTILINE)


def layouts(*often, slow=(), others=(3,), slow_others=()):
    """Decorator: the arguments `library` and `size`. The first library runs on all sizes, those of `slow` and whatever
    repeats it as slow tests. Each other library, on which no order of ours depends, runs on `others` alone, and as slow
    tests on `slow_others`: the program of an application is the same whatever library is below."""
    sizes = (*often, *slow)
    quick = {(LIBRARIES[0], size) for size in often}
    cases = [(LIBRARIES[0], size) for size in sizes]
    for library in LIBRARIES[1:]:
        quick |= {(library, size) for size in others}
        cases += [(library, size) for size in (*others, *slow_others)]
    marked = [case if case in quick else pytest.param(*case, marks=pytest.mark.slow) for case in cases]
    return pytest.mark.parametrize(("library", "size"), marked)


@cache
def reported(program, library, size, env=(), timeout=240):
    """The program's report {section: failures}, run once for all tests. `env`: pairs."""
    run = on_ranks(size, [str(PROGRAMS / program)], library, dict(env), timeout)
    assert run.returncode == 0, run.stdout + run.stderr
    assert "Traceback" not in run.stderr
    return json.loads(run.stdout)
