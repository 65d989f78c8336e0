"""A calibration on two ranks, and a prediction of two ranks from runs on one, appended before the run that it is of."""

import json

import numpy as np

from analysis.__main__ import main
from analysis.predict.reading.calibration import read_calibration
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
