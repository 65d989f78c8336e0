"""Policies over a mesh: the same decisions and bits on every mesh, replays of what a clock decided."""

import re

import pytest

from miniapps.trace import read
from tests.ranks import on_ranks

GPT = ["--model", "gpt", "--data", "text", "--axes", "batch,heads,ff,stage", "--batch", "8", "--optimiser", "adam",
       "--set", "training.micro=2", "--set", "model.tokens=16", "--set", "model.hidden=64", "--set", "model.layers=2",
       "--rate", "0.001", "--no-progress", "--evaluate-every", "0"]  # fmt: skip
DATA, TENSOR = ["--recipe", "dp", "--mesh", "data=2"], ["--recipe", "tp", "--mesh", "model=2"]
PIPELINE = ["--recipe", "dp+pp", "--mesh", "data=2,stage=2", "--shuffle-blocks", "3"]


def training(n, out, *options, library="mpich", level="layout"):
    """The fingerprint of a run of the application `mesh` on n ranks."""
    argv = ["-m", "miniapps.mesh", *GPT, "--guarantee", level, *options, "--out", str(out)]
    run = on_ranks(n, argv, library, timeout=240)
    assert run.returncode == 0, run.stdout + run.stderr
    (found,) = re.findall(r"FINGERPRINT state=(\w+)", run.stdout)
    return found


def decided(run, *names):
    """[(step, name, block, choice, score)] of the decisions `names` of a run."""
    trace = read(run / "rank-00000.h5")
    table = trace.tables["choices"]
    columns = [table[key].tolist() for key in ("step", "name", "block", "choice", "score")]
    rows = [
        (step, trace.names[n], block, trace.names[c], score)
        for step, n, block, c, score in zip(*columns, strict=True)
    ]
    return [row for row in rows if row[1] in names]


LGRECO = ["--steps", "2", "--policy", "lgreco", "--wire", "table:n=4,feedback=on"]


@pytest.fixture(scope="module")
def alone(tmp_path_factory):
    """A run of lgreco on one rank: (fingerprint, decisions)."""
    out = tmp_path_factory.mktemp("alone") / "run"
    return training(1, out, *LGRECO), decided(out, "lgreco")


@pytest.mark.parametrize(
    "n, mesh, library",
    [
        (2, DATA, "mpich"),
        (2, TENSOR, "openmpi"),
        (4, PIPELINE, "mpich"),
        pytest.param(
            4,
            ["--recipe", "dp+tp", "--mesh", "data=2,model=2", "--set", "mesh.shapes=padded", "--no-fuse"],
            "openmpi",
            marks=pytest.mark.slow,
        ),
        pytest.param(
            4, ["--recipe", "zero", "--mesh", "data=4", "--overlap", "sums"], "mpich", marks=pytest.mark.slow
        ),
    ],
)
def test_the_wires_of_lgreco_and_their_bits_do_not_depend_on_the_mesh(tmp_path, alone, n, mesh, library):
    assert training(n, tmp_path / "run", *LGRECO, *mesh, library=library) == alone[0]
    assert decided(tmp_path / "run", "lgreco") == alone[1]


def test_lgreco_takes_several_wires_of_fewer_bits_than_the_reference(alone):
    assert len({choice for *_, choice, _ in alone[1]}) > 1
    assert all(0 < score < 4.5 for *_, score in alone[1])  # table:n=4 has 4 bits and its tables


@pytest.mark.slow
def test_what_lgreco_measures_changes_no_bit(tmp_path):
    """It decides twice, for the only candidate, and has the bits of this wire without a policy."""
    wire, steps = "sign:feedback=on", ["--steps", "102", "--set", "model.layers=1"]
    fixed = training(2, tmp_path / "fixed", *steps, "--wire", wire, *DATA)
    options = ["--policy", "lgreco", "--wire", wire, "--candidates", wire]
    assert training(2, tmp_path / "run", *steps, *options, *TENSOR) == fixed
    assert {step for step, *_ in decided(tmp_path / "run", "lgreco")} == {0, 100}


CLOCKS = {
    "fastest": ["--policy", "fastest", "--steps", "3", "--candidates", "fp8 sign:feedback=on"],
    "cautious": [
        "--policy",
        "cautious",
        "--steps",
        "300",
        "--seconds",
        "1.5",
        "--candidates",
        "float32 sign:feedback=on",
    ],
    "seconds": ["--seconds", "0.5", "--steps", "100000", "--wire", "fp8"],
}


@pytest.mark.parametrize("clock", ["fastest", "cautious", pytest.param("seconds", marks=pytest.mark.slow)])
def test_decisions_of_a_clock_are_replayed_with_one_hash_on_all_meshes(tmp_path, clock):
    """Recorded without a guarantee; repeated under layout on other meshes of as many ranks."""
    options, again = CLOCKS[clock], ["--replay", str(tmp_path / "run")]
    recorded = training(2, tmp_path / "run", *options, *DATA, level="none")
    assert training(2, tmp_path / "none", *options, *DATA, *again, level="none") == recorded
    names = ("time", "fastest", "task", "begin", "wire", "end")
    choices = [row[:4] for row in decided(tmp_path / "run", *names)]
    found = set()
    for number, (mesh, library) in enumerate(((DATA, "mpich"), (TENSOR, "openmpi"))):
        out = tmp_path / str(number)
        found.add(training(2, out, *options, *mesh, *again, library=library))
        assert [row[:4] for row in decided(out, *names)] == choices != []
    assert len(found) == 1


def test_a_saved_plan_has_the_sums_over_its_wire(tmp_path):
    for wire in ("as is", "fp8"):
        options = [
            "--wire",
            wire,
            *DATA,
            "--save-plan",
            str(tmp_path / f"{wire}.json"),
            "--out",
            str(tmp_path / wire),
        ]
        run = on_ranks(2, ["-m", "miniapps.mesh", *GPT, "--guarantee", "layout", *options], timeout=240)
        assert run.returncode == 0, run.stdout + run.stderr
    assert "over fp8" in (tmp_path / "fp8.json").read_text()
    assert "over fp8" not in (tmp_path / "as is.json").read_text()
