"""A campaign from submission to report under a real Slurm (tests/jobs/slurm.py)."""

import json
import subprocess
import sys
import time
from importlib.resources import files

import pytest

from tests.jobs.campaigns import SMALL, write
from tests.launch import environment

pytest.importorskip("psij", reason="the extra `jobs`: pip install psij-python")
pytestmark = pytest.mark.slow


def test_a_submitted_campaign_runs_in_two_allocations_and_its_report_is_made_after_them(slurm, tmp_path):
    text = files("jobs").joinpath("sites/generic-slurm.toml").read_text()
    (tmp_path / "cluster.toml").write_text(text.replace('"srun --', '"srun --mpi=pmi2 --'))
    campaign = SMALL.replace("[defaults]", "[sites.cluster]\nranks_per_node = 2\n[defaults]\nallocations = 2")
    path = write(tmp_path, campaign)
    env = environment({name: slurm.environment[name] for name in ("SLURM_CONF", "PATH")})

    def jobs(command):
        argv = [sys.executable, "-m", "jobs", command, str(path), "--site", "cluster.toml"]
        argv += ["--yes"] if command == "submit" else []
        return subprocess.run(argv, env=env, cwd=tmp_path, capture_output=True, text=True, timeout=60)

    submitted = jobs("submit")
    assert submitted.returncode == 0, submitted.stderr
    end = time.monotonic() + 120
    while not (tmp_path / "out/report.html").exists():
        assert time.monotonic() < end, jobs("status").stdout
        time.sleep(0.5)
    assert "         1      2     2" in jobs("status").stdout
    results = [json.loads(file.read_text()) for file in (tmp_path / "out").glob("*/result.json")]
    assert [result["size"] for result in results] == [2] * 4
    assert len({result["allocation_id"] for result in results}) == 2
    group = "reductions: guaranteed on any number of ranks (layout), sums by direct in exact arithmetic"
    assert group in (tmp_path / "out/report.html").read_text()
