"""Blocks move to the ranks that are done first, and no bit follows them."""

import re

import pytest

from analysis.load.frames import load
from tests.launch import run_mpi
from tests.mpi.sectioned import layouts
from tests.ranks import on_ranks

APPS = {
    "coupled": [
        "--steps",
        "9",
        "--set",
        "grid.nx=64",
        "--set",
        "grid.ny=64",
        "--set",
        "grid.bx=8",
        "--set",
        "grid.by=8",
    ],
    "training": ["--data", "blobs", "--steps", "9", "--batch", "64", "--set", "training.micro=2"],
}
COMMON = ["--guarantee", "layout", "--no-progress"]
AUTO = ["--shares", "auto", "--checkpoint-every", "3"]


def run(app, n, *options, out, by=on_ranks, library="mpich"):
    """(hash of the state, choices) of a run that must succeed."""
    argv = ["-m", f"miniapps.{app}", *APPS[app], *COMMON, *options, "--out", str(out)]
    done = by(n, argv, library, timeout=200)
    assert done.returncode == 0, done.stdout + done.stderr
    choices = load([out], processes=1).choices
    return re.findall(r"FINGERPRINT state=(\w+)", done.stdout), choices[choices["name"] == "shares"]


@pytest.mark.parametrize(
    "app", [pytest.param(app, marks=[pytest.mark.slow] * (app != "coupled")) for app in APPS]
)
def test_a_slow_rank_gives_blocks_away_and_the_bits_stay(tmp_path, app):
    alone, _ = run(app, 1, out=tmp_path / "alone")
    slow = ["--fault", "slow@step=1,rank=1,factor=15"]
    shared, choices = run(app, 2, *AUTO, *slow, out=tmp_path / "shared", by=run_mpi)
    assert shared == alone
    assert choices["step"].tolist() == [3, 6]
    counts = [[int(n) for n in text.split(",")] for text in choices["choice"]]
    assert all(fast > slow for fast, slow in counts), counts


@layouts(3, slow=(2, 8), others=(), slow_others=(3,))
def test_moving_ownership_at_random_keeps_the_bits(tmp_path, library, size):
    even, _ = run("coupled", size, out=tmp_path / "even")
    moved, choices = run(
        "coupled", size, *AUTO, "--shuffle-blocks", "5", out=tmp_path / "moved", library=library
    )
    assert moved == even and len(choices) == 2


def test_a_replay_repeats_the_shares(tmp_path):
    arrival = ["--guarantee", "none", "--fault", "slow@step=1,rank=0,factor=15"]
    first, chosen = run("coupled", 2, *AUTO, *arrival, out=tmp_path / "first")
    again = ["--guarantee", "none", "--replay", str(tmp_path / "first")]
    second, repeated = run("coupled", 2, *AUTO, *again, out=tmp_path / "second")
    assert second == first and repeated["choice"].tolist() == chosen["choice"].tolist()


@pytest.mark.parametrize(
    "app, options, message",
    [
        ("coupled", ["--shares", "auto"], "add --checkpoint-every N"),
        (
            "training",
            ["--shares", "auto", "--checkpoint-every", "3", "--guarantee", "none"],
            "training.calls=block",
        ),
        ("coupled", [*AUTO, "--guarantee", "run"], "depend on the owners of blocks.*--replay RUN"),
        ("coupled", ["--fault", "slow@step=1,rank=0,factor=0"], "factor 0: choose 1 to 100"),
    ],
)
def test_shares_that_cannot_be_are_refused(tmp_path, app, options, message):
    argv = ["-m", f"miniapps.{app}", *APPS[app], *COMMON, *options, "--out", str(tmp_path / "run")]
    done = on_ranks(2, argv, timeout=100)
    assert done.returncode == 2 and re.search(message, done.stderr + done.stdout, re.DOTALL), done.stderr
