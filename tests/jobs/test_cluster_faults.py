"""Faults of a network between nodes, with real runs: a cable out for a while and for good, a lost node, a slow link."""

import json
import os
import signal
import subprocess
import sys
import time

import pytest

from jobs.cluster import cluster, iproute
from miniapps.trace import read_run
from tests.jobs.test_cluster_nodes import mpi_of
from tests.launch import run_python

if reason := iproute.why_not():
    pytest.skip(f"no nodes here: {reason}", allow_module_level=True)
pytestmark = pytest.mark.slow
LIMIT_S = 200  # guards against hanging
STEPS = 300  # more than are done before a cable is cut that was to be cut after the first steps
SMALL = [
    "-m",
    "miniapps.coupled",
    "--no-progress",
    "--guarantee",
    "layout",
    "--closure",
    "physics",
    "--set",
    "grid.nx=64",
    "--set",
    "grid.ny=64",
]


@pytest.fixture(scope="module")
def two():
    with cluster(nodes=2) as made:
        yield made


def started(nodes, out, library, stall, steps, stderr=None):
    """A job of two nodes with two ranks each, once all have come to their first steps."""
    argv = [*SMALL, "--steps", str(steps), "--stall", str(stall), "--out", str(out)]
    job = nodes.start(
        [sys.executable, *argv], 4, 2, stdout=subprocess.DEVNULL, stderr=stderr, **mpi_of(library)
    )
    end = time.monotonic() + LIMIT_S
    while (
        len(files := list(out.glob("rank-*.h5"))) < 4 or min(file.stat().st_size for file in files) < 120_000
    ):
        if time.monotonic() > end or job._process.poll() is not None:
            job.end()
            raise AssertionError("the run did not begin")
        time.sleep(0.1)
    return job


def result(out):
    return json.loads((out / "result.json").read_text())


def assert_readable(out):
    """All four traces are there and say that they are incomplete, and the analysis says the same."""
    assert [rank.complete for rank in read_run(out)] == [False] * 4
    shown = run_python(["-m", "analysis", "show", str(out)])
    assert shown.returncode == 0 and " NO " in shown.stdout, shown.stderr


def test_a_run_goes_on_after_five_seconds_without_a_cable_with_the_same_bits(two, tmp_path):
    with started(two, tmp_path / "cut", "mpich", 100, STEPS) as job:
        two.cut(2)
        try:
            time.sleep(5)
            assert not (tmp_path / "cut/result.json").exists()
        finally:
            two.restore(2)
        assert job.wait(LIMIT_S).code == 0
    assert run_python([*SMALL, "--steps", str(STEPS), "--out", str(tmp_path / "one")]).returncode == 0
    assert result(tmp_path / "cut")["fingerprints"] == result(tmp_path / "one")["fingerprints"]


@pytest.mark.parametrize("library", ["mpich", "openmpi"])
def test_a_cable_that_stays_out_ends_the_ranks_of_both_nodes(two, library, tmp_path):
    out = tmp_path / "run"
    try:
        with (tmp_path / "said").open("w+") as said, started(two, out, library, 6, 100_000, said) as job:
            pids = [rank.attributes["environment"]["pid"] for rank in read_run(out)]
            two.cut(2)
            end = time.monotonic() + LIMIT_S
            while any(os.path.exists(f"/proc/{pid}/exe") for pid in pids):
                assert time.monotonic() < end
                time.sleep(0.1)
            if library == "mpich":  # Open MPI's mpirun waits for its daemon in n2
                assert job.wait(LIMIT_S).code == 1
            said.seek(0)
            [message] = [line for line in said.read().splitlines() if line.startswith("coupled: rank")]
    finally:
        two.restore(2)
    assert "no progress for 6 s (--stall): waits in" in message
    assert "on n2 wait" in message and message.endswith("n2 does not answer n1")
    assert result(out)["failed_rank"] is None and "--stall" in result(out)["error"]
    assert_readable(out)


def test_a_lost_node_is_named_with_its_ranks(two, tmp_path):
    out = tmp_path / "run"
    try:
        with (tmp_path / "said").open("w+") as said, started(two, out, "mpich", 6, 100_000, said) as job:
            two.cut(2)  # before, so that no word of the end of its processes comes out
            for pid in iproute.processes(two.record.namespaces[1]):
                os.kill(pid, signal.SIGKILL)
            assert job.wait(LIMIT_S).code == 1
            said.seek(0)
            [message] = [line for line in said.read().splitlines() if line.startswith("coupled: rank")]
    finally:
        two.restore(2)
    assert "no note from ranks 2, 3 on n2: killed, cut off, or computing; n2 does not answer n1" in message
    assert (result(out)["failed_rank"], result(out)["error"]) == (2, message)
    assert_readable(out)


def test_a_link_of_a_hundredth_of_the_rate_of_others_is_named_as_the_cause_of_waiting(tmp_path):
    argv = ["-m", "miniapps.coupled", "--no-progress", "--steps", "2", "--out", str(tmp_path / "run")]
    with cluster(3, ["100mbit", "1-2=1mbit"]) as nodes:
        assert (
            nodes.run(
                [sys.executable, *argv], 3, 1, LIMIT_S, stdout=subprocess.DEVNULL, **mpi_of("mpich")
            ).code
            == 0
        )
    shown = run_python(["-m", "analysis", "scaling", str(tmp_path / "run")])
    assert "the link between n1 and n2 is slow: ranks on both its sides wait" in shown.stdout, shown.stdout
    assert shown.stdout.count("is slow:") == 1
