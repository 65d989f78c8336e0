"""Answers do not depend on the number of ranks where that is promised."""

import re

import pytest

from tests.mpi.sectioned import layouts
from tests.ranks import on_ranks

FEW = ["-m", "miniapps.inference", "--data", "blobs", "--guarantee", "layout", "--no-progress", "--requests", "30",
       "--set", "requests.images=40"]  # fmt: skip


def answers(n, *options, out, library="mpich"):
    run = on_ranks(n, [*FEW, *options, "--out", str(out)], library, timeout=240)
    assert run.returncode == 0, run.stdout + run.stderr
    return re.findall(r"FINGERPRINT state=(\w+)", run.stdout)


@pytest.fixture(scope="module")
def reference(tmp_path_factory):
    return answers(1, out=tmp_path_factory.mktemp("reference") / "run")


@layouts(3, slow=(8,), others=(), slow_others=(3,))
def test_one_hash_for_any_number_of_ranks(tmp_path, reference, library, size):
    assert answers(size, "--shuffle-blocks", "5", out=tmp_path / "run", library=library) == reference
