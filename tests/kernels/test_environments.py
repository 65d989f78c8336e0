"""Bits that keep a promise do not depend on the floating-point environment of the caller, and leave it as it was."""

import contextlib
import ctypes
import functools
import pickle
import re
import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("torch")

from kernels import environment
from kernels.registry import get
from tests import floating
from tests.floating import Environment
from tests.kernels.environments import CARRIERS, tried

NATIVE = Path(__file__).parents[2] / "kernels" / "native"
pytestmark = pytest.mark.skipif(not floating.HERE, reason="environments are set on x86-64 with glibc")


@pytest.mark.parametrize("first", range(0, 300, 100))
def test_kernels_in_drawn_environments(first):
    assert [trouble for seed in range(first, first + 100) for trouble in tried(seed)] == []


def test_the_drawn_environments_decide_sums_that_promise_nothing():
    x = np.full(10, 5e-324)
    with Environment(flush=True, zeros=True).chosen():
        flushed = np.add.reduce(x)
    with Environment("up").chosen() as left:
        up = np.add.reduce(np.array([1.0, 2.0**-1060]))
    assert flushed == 0 and up > 1 and left.flags & floating.INEXACT
    assert len(CARRIERS) > 5


@pytest.mark.parametrize(
    ("numbers", "total"),
    [
        ([1.0, 2.0**-1060, -1.0], 2.0**-1060),
        ([5e-324] * 3, 1.5e-323),
        ([1e308, 1e308, -1e308], 1e308),
        ([np.inf, 1.0], np.inf),
    ],
)
def test_exact_sums_under_traps(numbers, total):
    exact, x = get("sum", "exact", "native"), np.array(numbers)
    environment = Environment("up", True, True, floating.LOUD | floating.UNDERFLOW)
    with environment.chosen() as left:
        found = exact(x)
    assert found == total and floating.troubles(environment, left) == []


@pytest.mark.skipif(shutil.which("gcc") is None, reason="no gcc")
def test_a_library_built_with_fast_math_that_is_loaded_later(tmp_path):
    """Its constructor makes the thread that loads it flush subnormals."""
    (tmp_path / "fast.c").write_text("double fast(double x) { return x; }\n")
    command = ["gcc", "-shared", "-fPIC", "-ffast-math", "-o", tmp_path / "fast.so", tmp_path / "fast.c"]
    subprocess.run(command, check=True)
    exact, x = get("sum", "exact", "native"), np.full(3, 5e-324)
    with Environment().chosen() as left:
        ctypes.CDLL(str(tmp_path / "fast.so"))
        plain, kept = np.add.reduce(x), exact(x)
    if left.control == Environment().control:
        pytest.skip("this compiler's constructor is for programs alone")
    assert plain == 0 and kept == 1.5e-323
    assert left.control == Environment(flush=True, zeros=True).control


def test_every_team_of_threads_has_a_guard():
    """Threads of OpenMP keep the environment in which they were made."""
    teams = 0
    for path in sorted(NATIVE.glob("*.[ch]pp")):
        for found in re.finditer(
            r"#pragma omp parallel[^\n]*\n(\s*\{\n\s*const DefaultEnvironment \w+;)?", path.read_text()
        ):
            assert found[1], f"{path.name}: {found[0].strip()}: the block needs a DefaultEnvironment"
            teams += 1
    assert teams > 20


def test_a_guarded_function_is_one():
    class Adder:
        """Adds."""

        @environment.guarded
        def add(self, a, *, b=1.0):
            """a + b"""
            return a + b

    of = Adder()
    assert (of.add(2.0), of.add(2.0, b=3.0), Adder.add(of, 1.0)) == (3.0, 5.0, 2.0)
    assert Adder.add.__doc__ == "a + b" and Adder.add.__name__ == "add"
    assert environment.unguarded(Adder.add) is Adder.add.__wrapped__
    with pytest.raises(TypeError, match="add"):
        of.add()
    assert pickle.loads(pickle.dumps(get("sum", "exact").function)) is get("sum", "exact").function
    with pytest.raises(TypeError, match="expected a function"):
        environment.guarded(3)
    assert isinstance(functools.partial(of.add, 1.0)(), float)


def test_the_environment_comes_back_after_an_error():
    @environment.guarded
    def failing():
        raise RuntimeError

    of = Environment("down", True, False, floating.LOUD)
    with of.chosen() as left, contextlib.suppress(RuntimeError):
        failing()
    assert floating.troubles(of, left) == []


def test_reset_gives_the_default_and_leaves_flags():
    of = Environment("down", True, True, floating.LOUD, floating.INVALID)
    with of.chosen() as left:
        environment.reset()
    assert left.control == Environment().control and left.x87 == 0x33F and left.flags == floating.INVALID
