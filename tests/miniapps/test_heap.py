"""Freed memory: a process that keeps it meets no page fault when it asks for it again."""

import os
import subprocess
import sys

import pytest

FAULTS = """
import resource, sys
import numpy as np
from miniapps.system.heap import keep_freed_memory
print(keep_freed_memory() if sys.argv[1:] else "")

def step():
    arrays = [np.ones(400_000) for _ in range(5)]  # numpy takes large pages from 4 MiB on
    del arrays

step()
before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
for _ in range(10):
    step()
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""


def run(*words: str, **variables: str) -> tuple[str, int]:
    """(what keep_freed_memory says, page faults of ten steps) of a process."""
    clean = {key: value for key, value in os.environ.items() if not key.startswith("MALLOC_")}
    done = subprocess.run(
        [sys.executable, "-c", FAULTS, *words],
        capture_output=True,
        text=True,
        check=True,
        env=clean | variables,
    )
    said, faults = done.stdout.splitlines()
    return said, int(faults)


def test_a_step_asks_again_for_the_memory_that_the_one_before_freed():
    said, kept = run("keep")
    assert said == "kept" and kept < 50
    assert run()[1] > 10 * 1000  # pages of 4 KiB, else


@pytest.mark.parametrize(
    "variable",
    [{"MALLOC_TRIM_THRESHOLD_": "100000"}, {"GLIBC_TUNABLES": "glibc.malloc.trim_threshold=100000"}],
)
def test_the_users_environment_decides(variable):
    said, faults = run("keep", **variable)
    assert said == "as the environment says" and faults > 10 * 1000
