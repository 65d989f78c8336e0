"""Parts of the mesh app, on one rank, in this process."""

import pytest
from mpi4py import MPI

from miniapps.mesh import APP
from miniapps.runner.main import main

SMALL = ["--model=mlp", "--data=blobs", "--set=model.hidden=16", "--batch=64", "--set=training.micro=16", "--steps=4",
         "--no-progress", "--guarantee=layout"]  # fmt: skip


def launched(out, *more):
    return main(APP, [*SMALL, f"--out={out}", *more], MPI.COMM_SELF)


def test_one_axis_of_a_mesh_for_two_of_a_value_is_refused_before_anything_is_created(tmp_path, capsys):
    axes = ["--mesh=data=1", "--recipe=dp+tp", "--map=batch=data,hidden=data"]
    assert launched(tmp_path / "run", *axes) == 2
    assert "--map: data carries batch and hidden, but both cut the value" in capsys.readouterr().err
    assert not (tmp_path / "run").exists()


FREE = ["--guarantee=none"]


@pytest.mark.parametrize(
    "options, message",
    [
        (
            ["--policy=fastest"],
            "--policy fastest decides by a clock and so meets only guarantee none, below layout",
        ),
        (["--seconds=1"], "--seconds decides by a clock"),
        (["--policy=slowest"], "fastest"),
        ([*FREE, "--policy=cautious"], "give it with --seconds"),
        ([*FREE, "--policy=adaprec", "--seconds=1"], "have a loss alone; choose --policy cautious"),
        ([*FREE, "--policy=fastest", "--candidates="], "give the wires among which --policy fastest chooses"),
        ([*FREE, "--policy=fastest", "--candidates=fp8 fp8"], "each once"),
        ([*FREE, "--policy=fastest", "--candidates=packed"], "use float32 as the lossless"),
        ([*FREE, "--policy=fastest", "--wire=fp8"], "leave one of them out"),
        ([*FREE, "--policy=fastest", "--checkpoint-every=2"], "checkpoints do not contain"),
        (
            [*FREE, "--policy=fastest", "--save-plan=plan.json"],
            "no price knows them before; choose --policy fixed",
        ),
        ([*FREE, "--policy=fastest", "--mesh=auto", "--calibration=c"], "choose a mesh, or --policy fixed"),
        (["--policy=lgreco"], "--wire table:n=4"),
        (["--policy=lgreco", "--wire=fp8", "--candidates=sign:hops=every"], "leave hops=every out"),
        (["--policy=lgreco", "--wire=fp8", "--guarantee=exact"], "no total over a lossy wire is exact"),
        (
            ["--policy=lgreco", "--wire=fp8", "--processor=any"],
            "--policy lgreco decides by a clock, or by linear",
        ),
        (["--replay=/nonexistent"], "--replay"),
        (
            ["--wire=sign:feedback=on", "--restart=/nonexistent.h5"],
            "--restart /nonexistent.h5: it cannot be read",
        ),
    ],
)
def test_impossible_policies_are_refused_before_anything_is_created(tmp_path, capsys, options, message):
    assert launched(tmp_path / "run", *options) == 2
    assert message in capsys.readouterr().err
    assert not (tmp_path / "run").exists()


def test_a_replay_needs_the_decisions_of_its_policy(tmp_path, capsys):
    assert launched(tmp_path / "run", *FREE, "--seconds=100") == 0
    for options, message in (
        (["--policy=fastest"], "it has no choices 'fastest'; replay a run with the same --policy"),
        ([], "this run decides nothing by a clock"),
    ):
        assert launched(tmp_path / "again", *FREE, *options, f"--replay={tmp_path / 'run'}") == 2
        assert message in capsys.readouterr().err
    assert not (tmp_path / "again").exists()
