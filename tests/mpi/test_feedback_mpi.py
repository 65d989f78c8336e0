"""A wire with feedback over a mesh: one hash on every mesh, with both MPI libraries, and another one than without."""

import re

import pytest

from tests.ranks import on_ranks

RUN = ["-m", "miniapps.partition", "run", "mlp", "--steps", "4", "--size", "samples=12,batch=6"]


def ran(n, wire, library="mpich", *more):
    run = on_ranks(n, [*RUN, "--wire", wire, *more], library, timeout=120)
    assert run.returncode == 0, run.stdout + run.stderr
    (found,) = re.findall(r"FINGERPRINT (\w+)", run.stdout)
    return found


def test_errors_are_kept_by_block():
    found = {ran(1, "sign:feedback=on"), ran(3, "sign:feedback=on"), ran(2, "sign:feedback=on", "openmpi")}
    assert len(found) == 1 and found != {ran(2, "sign")}


@pytest.mark.parametrize("level", ["none", "run"])
def test_errors_are_kept_by_rank_without_layout(level):
    assert ran(2, "sign:feedback=on", "mpich", "--guarantee", level)
