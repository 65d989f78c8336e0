"""A calibration on two ranks, and a prediction of two ranks from runs on one, appended before the run that it is of."""

import json

import numpy as np

from analysis.__main__ import main
from analysis.load.guard import read_run
from analysis.predict.costs.collectives import Collectives, measured
from analysis.predict.reading.calibration import read_calibration
from miniapps.calibrate import sharing
from tests.launch import run_mpi
from tests.mpi.sectioned import layouts
from tests.ranks import on_ranks

COUPLED = ["-m", "miniapps.coupled", "--set", "grid.nx=32", "--set", "grid.bx=8", "--set", "grid.by=8", "--steps", "4",
           "--guarantee", "layout", "--no-progress"]  # fmt: skip
USED = ("library", "direct in exact")  # what the runs add by
SHORT = [
    "--budget",
    "0",
    "--what",
    "collectives",
    "--what",
    "noise",
    *(f"--reduction={each}" for each in USED),
]


def run(n, *argv, library="mpich"):
    ended = on_ranks(n, [*argv], library, timeout=120)
    assert ended.returncode == 0, ended.stdout + ended.stderr


@layouts(2, others=())
def test_a_prediction_is_scored_by_the_run_that_follows_it(tmp_path, capsys, library, size):
    def out(name):
        return ["--out", str(tmp_path / name)]

    run(size, "-m", "miniapps.calibrate", *SHORT, "--no-progress", *out("cal"), library=library)
    cases = read_calibration(tmp_path / "cal")
    assert cases.noise.shape[1] == size
    exchanges = cases.of("exchange")
    assert exchanges["bytes"].tolist() == [8, 512, 8192, 131072, 1048576]  # both neighbours are one rank
    together, alone = (
        cases.cases[cases.cases["region"].str.endswith(each)] for each in (":together", ":alone")
    )
    assert len(together) == len(alone) > 0
    assert set(together["ranks"]) == {size}

    sources = [str(tmp_path / f"ny{ny}") for ny in (32, 16)]
    for ny, source in zip((32, 16), sources, strict=True):
        run(1, *COUPLED, "--set", f"grid.ny={ny}", "--out", source, library=library)
    ledger = str(tmp_path / "ledger.jsonl")
    assert main(["predict", *sources, "--calibration", str(tmp_path / "cal"), "--ranks", str(size), "--ledger", ledger,
                 "--json"]) == 0  # fmt: skip
    (row,) = json.loads(capsys.readouterr().out)["tables"]["predictions"]
    assert row["extrapolated"] == ""
    assert np.isfinite(row["p50_s"]) and 0 < row["p10_s"] <= row["p90_s"]
    run(
        size,
        *COUPLED,
        "--set",
        "grid.ny=32",
        "--ledger",
        ledger,
        "--repeats",
        "2",
        *out("target"),
        library=library,
    )
    assert main(["score", ledger, *sources, str(tmp_path / "target"), "--json"]) == 0
    scored = json.loads(capsys.readouterr().out)["tables"]["targets"]
    assert [(each["ranks"], each["runs"]) for each in scored] == [(size, 2)]


@layouts(4, others=())
def test_reductions_are_timed_in_the_groups_of_the_drawn_meshes(tmp_path, library, size):
    plan = "mlp dp+tp features=8 width=16 samples=8 batch=4 data=2 model=2 guarantee=layout"
    run(size, "-m", "miniapps.calibrate", *SHORT, "--plan", plan, "--programs", "1", "--no-progress", "--out",
        str(tmp_path / "cal"), library=library)  # fmt: skip
    known = read_calibration(tmp_path / "cal")
    table = measured(known)
    assert sorted(set(zip(table["ranks"], table["near"], strict=True))) == [(2, 2), (4, 4)]
    pairs, all_ranks = (table[table["ranks"] == n] for n in (2, 4))
    alike = ["label", "length", "contributions", "scatters"]
    assert len(pairs) == len(all_ranks) > 0
    assert (pairs[alike].to_numpy() == all_ranks[alike].to_numpy()).all()
    assert (pairs["alone"].to_numpy() == all_ranks["alone"].to_numpy()).all()
    schedules = table[table["label"] == "direct"].groupby("ranks")["messages"].max()
    assert schedules[2] < schedules[4]  # counted for the ranks of a group
    prices = Collectives(known)
    assert prices.allreduce("block-tree", 4096, 8, 2) > 0 and not prices.extrapolated


ON_ONE_CORE = """
import os, runpy, sys
os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
sys.argv = ["calibrate", *sys.argv[1:]]
runpy.run_module("miniapps.calibrate", run_name="__main__")
"""


@layouts(2, others=())
def test_ranks_that_share_a_core_work_in_turns(tmp_path, library, size):
    ended = run_mpi(size, ["-c", ON_ONE_CORE, "--budget", "0", "--what", "noise", "--no-progress", "--out",
                           str(tmp_path / "cal")], library)  # fmt: skip
    assert ended.returncode == 0, ended.stdout + ended.stderr
    known = read_calibration(tmp_path / "cal")
    assert known.cores == 1
    assert 0.0 <= known.leaves <= sharing.BURST_S or known.leaves == np.inf  # it sleeps
    for trace in read_run(tmp_path / "cal", tables=["events"]):
        events = trace.tables["events"]
        seconds = (events["end"] - events["start"])[
            np.array(trace.names)[events["name"]] == sharing.TURN
        ] / 1e9
        assert len(seconds) == sharing.SECONDS / sharing.BURST_S / size / size
        assert seconds.min() >= 0.99 * sharing.BURST_S
