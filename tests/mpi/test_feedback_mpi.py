"""A wire with feedback over a mesh: one hash on every mesh, with both MPI libraries, and another one than without; what
it keeps goes through checkpoints."""

import re

import h5py
import numpy as np
import pytest

from tests.ranks import on_ranks

RUN = ["-m", "miniapps.partition", "run", "mlp", "--steps", "4", "--size", "samples=12,batch=6"]


def ran(n, wire, library="mpich", *more):
    run = on_ranks(n, [*RUN, "--wire", wire, *more], library, timeout=120)
    assert run.returncode == 0, run.stdout + run.stderr
    (found,) = re.findall(r"FINGERPRINT (\w+)", run.stdout)
    return found


def test_errors_are_kept_by_block():
    found = {ran(1, "sign:feedback=on"), ran(3, "sign:feedback=on"), ran(2, "sign:feedback=on", "openmpi")}
    assert len(found) == 1 and found != {ran(2, "sign")}


@pytest.mark.parametrize("level", ["none", "run"])
def test_errors_are_kept_by_rank_without_layout(level):
    assert ran(2, "sign:feedback=on", "mpich", "--guarantee", level)


GPT = ["--model", "gpt", "--data", "text", "--axes", "batch,heads,ff,stage", "--batch", "8", "--optimiser", "adam",
       "--set", "training.micro=2", "--set", "model.tokens=16", "--set", "model.hidden=64", "--set", "model.layers=2",
       "--rate", "0.001", "--steps", "4", "--no-progress", "--evaluate-every", "3"]  # fmt: skip
KEPT = ["--wire", "sign:feedback=on", "--checkpoint-every", "2"]


def training(n, out, *options, library="mpich", level="layout"):
    """The fingerprint of a run of the application `mesh` on n ranks."""
    argv = ["-m", "miniapps.mesh", *GPT, "--guarantee", level, *options, "--out", str(out)]
    run = on_ranks(n, argv, library, timeout=240)
    assert run.returncode == 0, run.stdout + run.stderr
    (found,) = re.findall(r"FINGERPRINT state=(\w+)", run.stdout)
    return found


def checkpoint(run):
    return str(run / "checkpoints" / "repeat-0-step-000002.h5")


@pytest.fixture(scope="module")
def straight(tmp_path_factory):
    """A run on 2 ranks with checkpoints: (fingerprint, directory)."""
    out = tmp_path_factory.mktemp("straight") / "run"
    return training(2, out, *KEPT, "--recipe", "dp", "--mesh", "data=2"), out


@pytest.mark.parametrize(
    "n, library, options",
    [
        (1, "mpich", []),
        (4, "mpich", ["--recipe", "dp+tp", "--mesh", "data=2,model=2", "--shuffle-blocks", "3", "--no-fuse"]),
        (2, "openmpi", ["--recipe", "tp", "--mesh", "model=2"]),
        pytest.param(
            4,
            "mpich",
            ["--recipe", "dp+pp", "--mesh", "data=2,stage=2", "--set", "mesh.shapes=padded"],
            marks=pytest.mark.slow,
        ),
        pytest.param(
            4,
            "openmpi",
            ["--recipe", "dp", "--mesh", "data=4", "--overlap", "gradients"],
            marks=pytest.mark.slow,
        ),
    ],
)
def test_under_layout_any_mesh_continues_with_the_bits_of_the_straight_run(
    tmp_path, straight, n, library, options
):
    found, run = straight
    again = [*KEPT, *options, "--restart", checkpoint(run)]
    assert training(n, tmp_path / "run", *again, library=library) == found


def test_checkpoints_of_all_meshes_hold_the_same_errors_by_block(tmp_path, straight):
    mesh = ["--recipe", "dp+tp+pp", "--mesh", "data=2,model=1,stage=2", "--schedule", "circular"]
    assert training(4, tmp_path / "run", *KEPT, *mesh) == straight[0]
    with h5py.File(checkpoint(tmp_path / "run")) as one, h5py.File(checkpoint(straight[1])) as other:
        for name in ("lost", "lost of totals"):
            found, wanted = (file[name][...].view(np.int32) for file in (one, other))
            assert np.array_equal(found, wanted) and found.any()
        assert len(one["lost"]) == 4 * len(one["lost of totals"])  # four blocks of samples


@pytest.mark.parametrize("level", ["none", "run"])
def test_without_layout_the_same_mesh_continues_and_no_other(tmp_path, level):
    mesh = ["--recipe", "dp", "--mesh", "data=2"]
    found = training(2, tmp_path / "run", *KEPT, *mesh, level=level)
    again = [*KEPT, "--restart", checkpoint(tmp_path / "run")]
    # Equal bits without a guarantee too: two ranks add in either order.
    assert training(2, tmp_path / "again", *again, *mesh, level=level) == found
    for n, other, options, reason in (
        (
            1,
            "data=1",
            KEPT,
            r"feedback.mesh = data=2 \(batch\) there, one rank here.*belong to ranks.*same mesh",
        ),
        (2, "data=2", ["--wire", "fp8:feedback=on"], r"feedback.wire = sign:feedback=on there, fp8"),
        (2, "data=2", ["--wire", "sign"], r"feedback.wire = sign:feedback=on there, unknown here"),
        (2, "data=2", [*KEPT, "--guarantee", "layout"], r"feedback.mesh = data=2 \(batch\) there, any here"),
    ):
        argv = [*GPT, "--guarantee", level, *again, "--recipe", "dp", "--mesh", other, *options]
        refused = on_ranks(n, ["-m", "miniapps.mesh", *argv, "--out", str(tmp_path / "no")], timeout=100)
        assert refused.returncode == 2 and re.search(reason, refused.stderr), refused.stdout + refused.stderr
