"""Blocks that two ranks compute: the rank that is wrong is named, and no sound run is accused."""

import re

import pytest

from analysis.load.frames import load
from tests.mpi.sectioned import layouts
from tests.ranks import on_ranks

APPS = {
    "coupled": ["--steps", "4", "--set", "grid.nx=64", "--set", "grid.ny=64"],
    "training": ["--data", "blobs", "--steps", "4", "--batch", "64", "--set", "training.micro=4"],
}
KERNEL = {"coupled": "closure", "training": "gradient"}


def run(app, n, *options, out, code=0, library="mpich"):
    """What a run printed; its hash."""
    argv = [
        "-m",
        f"miniapps.{app}",
        *APPS[app],
        "--guarantee",
        "layout",
        "--no-progress",
        *options,
        "--out",
        str(out),
    ]
    done = on_ranks(n, argv, library, timeout=200)
    assert done.returncode == code, done.stdout + done.stderr
    return done.stdout, re.findall(r"FINGERPRINT state=(\w+)", done.stdout)


@pytest.mark.parametrize("app", APPS)
@layouts(3, slow=(2, 8), others=(), slow_others=(3,))
def test_sound_ranks_agree_and_the_bits_stay(tmp_path, library, size, app):
    _, alone = run(app, 1, out=tmp_path / "alone")
    printed, twice = run(
        app, size, "--duplicate", "0.5", "--shuffle-blocks", "3", out=tmp_path / "run", library=library
    )
    assert twice == alone and "CHECK FAIL" not in printed


@pytest.mark.parametrize("app", APPS)
@pytest.mark.parametrize("size, by", [(2, "when both repeated it"), (3, "and rank")])
def test_the_rank_whose_kernel_was_wrong_is_named(tmp_path, app, size, by):
    fault = ["--fault", "kernel-bit@step=2,block=13,bit=3"]
    printed, _ = run(app, size, "--duplicate", "1", *fault, out=tmp_path / "run", code=3)
    owner = 13 * size // 16
    pattern = rf"step 2, {KERNEL[app]} of block 13: rank {owner} computed other bits than rank \d {by}"
    assert re.search(pattern, printed) and printed.count("computed other bits") == 1
    frames = load([tmp_path / "run"], processes=1)
    wrong = frames.values[frames.values["name"] == "wrong_rank"]
    assert wrong[["step", "block", "value"]].to_numpy().tolist() == [[2, 13, owner]]


def test_a_fault_in_a_block_that_was_not_drawn_is_not_seen(tmp_path):
    fault = ["--fault", "kernel-bit@step=2,block=13,bit=3"]
    printed, _ = run("coupled", 2, "--duplicate", "1e-9", *fault, out=tmp_path / "run")
    assert "VERIFICATION: PASS" in printed


@pytest.mark.parametrize(
    "app, n, options, message",
    [
        ("coupled", 1, [], "there is one; start 2 or more"),
        ("coupled", 2, ["--guarantee", "run"], "choose --guarantee layout"),
        ("coupled", 2, ["--ensemble", "2"], "run each member alone"),
        ("training", 2, ["--guarantee", "none"], "choose --guarantee layout"),
        ("coupled", 2, ["--duplicate", "1.5"], "duplicate.*1.5"),
    ],
)
def test_what_cannot_be_computed_twice_is_refused(tmp_path, app, n, options, message):
    argv = ["-m", f"miniapps.{app}", *APPS[app], "--guarantee", "layout", "--duplicate", "0.1", *options]
    done = on_ranks(n, [*argv, "--out", str(tmp_path / "run")], timeout=60)
    assert done.returncode == 2 and re.search(message, done.stderr), done.stderr
