"""A few of the campaigns of tests/jobs/outages.py, which draws any number."""

import subprocess
import sys

import pytest

from tests.jobs.slurm import missing
from tests.launch import ROOT, environment

pytest.importorskip("psij", reason="the extra `jobs`: pip install psij-python")
pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]  # Slurm's own timers take minutes


def test_drawn_campaigns_come_to_their_end_whatever_happens_to_slurm():
    if reason := missing():
        pytest.skip(reason)
    drawn = subprocess.run(
        [sys.executable, "-m", "tests.jobs.outages", "--cases", "3", "--seed", "0"],
        cwd=ROOT,
        env=environment({}),
        capture_output=True,
        text=True,
        timeout=840,
    )
    assert drawn.returncode == 0, drawn.stdout + drawn.stderr
    assert "3 campaigns of seed 0, 0 wrong" in drawn.stdout
