"""An ensemble of flows: every member has the bits of a run of its own, on any number of ranks."""

import re

import pytest

from analysis.load.frames import load
from tests.mpi.sectioned import layouts
from tests.ranks import on_ranks

GRID = ["--set", "grid.nx=32", "--set", "grid.ny=32", "--set", "grid.bx=8", "--set", "grid.by=8"]
SMALL = [*GRID, "--steps", "3", "--guarantee", "layout", "--no-progress"]
BLOCKS = 16


def coupled(n, *options, out, library="mpich"):
    """The frames of a run on n ranks, and what it printed."""
    run = on_ranks(n, ["-m", "miniapps.coupled", *SMALL, *options, "--out", str(out)], library, timeout=240)
    assert run.returncode == 0, run.stdout + run.stderr
    return load([out], processes=1), run.stdout


def member(frames, number, alone=False):
    """What is recorded of a member, as if it were alone: {(step, name, block, occurrence): bits}."""
    known = {}
    for table, columns in (("fingerprints", ["hi", "lo"]), ("values", ["value"])):
        for row in getattr(frames, table).itertuples():
            of, block = (0, row.block) if alone else divmod(row.block, BLOCKS)
            if (
                str(row.name) not in ("vorticity", "streamfunction", "sample", "input:vorticity")
                and not alone
            ):
                of, block = row.block, -1
            if of == number or alone:
                key = (row.step, str(row.name), block, row.occurrence)
                known[key] = tuple(
                    float(getattr(row, c)).hex() if c == "value" else getattr(row, c) for c in columns
                )
    return known


@pytest.fixture(scope="module")
def ensemble(tmp_path_factory):
    return coupled(2, "--ensemble", "3", "--seed", "5", out=tmp_path_factory.mktemp("ensemble") / "run")


def test_a_member_has_the_bits_of_a_run_of_its_own(ensemble, tmp_path):
    frames, text = ensemble
    for number in (0, 2):
        alone, _ = coupled(1, "--seed", str(5 + number), out=tmp_path / str(number))
        own = member(alone, 0, alone=True)
        assert member(frames, number) == own and len(own) > 100
    assert "member step/s" in text


@layouts(3, slow=(1, 4, 8), others=(), slow_others=(3,))
def test_an_ensemble_has_one_hash(ensemble, tmp_path, library, size):
    state = re.compile(r"FINGERPRINT state=(\w+)")
    _, text = coupled(size, "--ensemble", "3", "--seed", "5", out=tmp_path / "run", library=library)
    assert state.findall(text) == state.findall(ensemble[1])


def test_a_fault_strikes_one_member(ensemble, tmp_path):
    fault = ["--fault", f"bitflip@step=2,block={BLOCKS + 3}"]
    frames, _ = coupled(2, "--ensemble", "3", "--seed", "5", *fault, out=tmp_path / "run")
    sound, struck = ([member(each, number) for number in range(3)] for each in (ensemble[0], frames))
    assert sound[0] == struck[0] and sound[1] != struck[1] and sound[2] == struck[2]


@pytest.mark.parametrize(
    "options, message",
    [
        (
            ["--checkpoint-every", "1"],
            "--ensemble 2 with --checkpoint-every: files hold one flow.*--seed SEED",
        ),
        (
            ["--set", "flow.initial=kolmogorov", "--closure", "none"],
            "all members would be equal.*flow.initial=random",
        ),
        (["--ensemble", "0"], "ensemble.*1"),
    ],
)
def test_what_an_ensemble_cannot_do_is_refused(tmp_path, options, message):
    argv = ["-m", "miniapps.coupled", *SMALL, "--ensemble", "2", *options, "--out", str(tmp_path / "run")]
    run = on_ranks(1, argv, timeout=60)
    assert run.returncode == 2 and re.search(message, run.stderr, re.DOTALL), run.stderr
