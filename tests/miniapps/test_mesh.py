"""Parts of the mesh app, on one rank, in this process."""

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
