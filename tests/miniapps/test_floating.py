"""Applications under a guarantee compute in the default floating-point environment."""

import json

import pytest
from mpi4py import MPI

from miniapps.coupled import APP
from miniapps.runner.main import main
from tests import floating
from tests.floating import Environment

TINY = ["--closure", "none", "--steps", "3", "--quiet", "--trace", "off",
        "--set", "grid.nx=16", "--set", "grid.ny=16", "--set", "grid.bx=8", "--set", "grid.by=8"]  # fmt: skip


def state(out, guarantee, environment):
    """The fingerprint of a run that is begun in that environment, and what is wrong with it afterwards."""
    with environment.chosen() as left:
        assert main(APP, [*TINY, "--guarantee", guarantee, "--out", str(out)], MPI.COMM_SELF) == 0
    (found,) = json.loads((out / "result.json").read_text())["fingerprints"]
    return found, floating.troubles(environment, left, floating.ALL)


@pytest.mark.skipif(not floating.HERE, reason="environments are set on x86-64 with glibc")
def test_the_environment_decides_a_run_that_promises_nothing_and_no_other(tmp_path, monkeypatch):
    upward = Environment("up", True, True)
    states = {
        guarantee: [
            state(tmp_path / f"{guarantee}{of.rounding}", guarantee, of) for of in (Environment(), upward)
        ]
        for guarantee in ("none", "layout")
    }
    assert states["layout"] == [(states["layout"][0][0], [])] * 2
    assert states["none"][0][0] != states["none"][1][0]
    monkeypatch.setenv("FPNA_DISTURB", "up")  # `fpna cause` wants the arithmetic of the program to be off
    assert state(tmp_path / "disturbed", "layout", upward)[0] != states["layout"][0][0]
