"""DLRM has one hash whatever the sharding, the ranks and the MPI library, and its checkpoints fit any of them."""

import re

import pytest

from analysis.load.frames import load
from analysis.runs import ids
from tests.ranks import on_ranks

SMALL = ["--set", "embeddings.rate_ratio=100", "--rows", "300", "--tables", "3", "--pooling", "4", "--batch", "64",
         "--set", "training.micro=8", "--set", "embeddings.features=3", "--set", "embeddings.columns=6",
         "--set", "embeddings.blocks=4", "--set", "model.hidden=8", "--steps", "4",
         "--evaluate-every", "2"]  # fmt: skip
EXACT = ["--aggregate", "exact"]


def training(n, *options, out, library="mpich"):
    """Run on n ranks under `layout`; fails the test unless it ends with 0. (fingerprint, AUC as printed)."""
    argv = [
        "-m",
        "miniapps.dlrm",
        "--guarantee",
        "layout",
        "--no-progress",
        *SMALL,
        *options,
        "--out",
        str(out),
    ]
    run = on_ranks(n, argv, library, timeout=240)
    assert run.returncode == 0, run.stdout + run.stderr
    assert "VERIFICATION: PASS" in run.stdout
    return re.findall(r"FINGERPRINT state=(\w+)|FOM auc=(\S+)", run.stdout)


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """On one rank, with a checkpoint, by order of additions: (fingerprint and AUC, directory)."""
    known = {}

    def of(*order):
        if order not in known:
            out = tmp_path_factory.mktemp("whole") / "run"
            known[order] = training(1, *order, "--checkpoint-every", "2", out=out), out
        return known[order]

    return of


@pytest.mark.parametrize(
    "n, sharding, more",
    [
        (3, "replicated,table,column", ["--shuffle-blocks", "3"]),
        (2, "row", ["--threads", "2"]),
        pytest.param(4, "column", [], marks=pytest.mark.slow),
        pytest.param(8, "row", ["--shuffle-blocks", "5"], marks=pytest.mark.slow),
    ],
)
def test_one_hash_for_every_sharding(tmp_path, whole, n, sharding, more):
    assert training(n, "--sharding", sharding, *more, out=tmp_path / "run") == whole()[0]


@pytest.mark.parametrize("n, sharding", [(3, "row-pooled,table,row"), (2, "row-pooled")])
def test_one_hash_for_every_sharding_of_exact_sums(tmp_path, whole, n, sharding):
    assert training(n, *EXACT, "--sharding", sharding, out=tmp_path / "run") == whole(*EXACT)[0]


def test_one_hash_by_the_other_library(tmp_path, whole):
    found = training(3, "--sharding", "row,column,table", out=tmp_path / "run", library="openmpi")
    assert found == whole()[0]


def test_a_checkpoint_continues_under_another_sharding_with_its_bits(tmp_path, whole):
    checkpoint = whole()[1] / "checkpoints" / "repeat-0-step-000002.h5"
    more = ["--sharding", "column,row,table", "--restart", str(checkpoint)]
    assert training(3, *more, out=tmp_path / "run") == whole()[0]


def test_the_trace_has_regions_with_bytes(tmp_path):
    training(2, "--sharding", "row", out=tmp_path / "run")
    frames = load([tmp_path / "run"])
    (run,) = ids(frames.runs)
    events = frames.of("events", *run)
    sent = events.groupby("name")["bytes"].sum()
    for region in (
        "lookup",
        "interact",
        "scatter",
        "exchange.rows",
        "exchange.answers",
        "exchange.gradients",
    ):
        assert sent[region] > 0, region
    # Half of the rows of a bag are on the other rank, each of 6 columns; two evaluations look up 2,048 samples each.
    learned, judged = 4 * 64 * 3 * 4, 2 * 2048 * 3 * 4
    assert 0.3 < sent["exchange.answers"] / (6 * 4 * (learned + judged)) < 0.7
