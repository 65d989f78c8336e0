"""FSDP2 with the reduce-scatter of the suite under a real MPI library."""

from pathlib import Path

import pytest

from analysis.__main__ import main
from tests.launch import run_mpi
from tests.mpi.sectioned import layouts, reported, sections

PROGRAM = "sharded.py"
EXAMPLE = Path(__file__).parents[2] / "docs/examples/torch_fsdp.py"


@layouts(2, 3, slow=(1, 4), others=())
@pytest.mark.parametrize("section", sections(PROGRAM))
def test_section(section, library, size):
    assert reported(PROGRAM, library, size)[section] == []


@pytest.mark.parametrize("ranks", [2, 3, *(pytest.param(n, marks=pytest.mark.slow) for n in (1, 4))])
def test_the_example_has_the_weights_of_the_hook_in_every_launch(ranks, tmp_path):
    for name, way in (("hook", "ddp"), ("a", "fsdp"), ("b", "fsdp")):
        run = run_mpi(ranks, [EXAMPLE, tmp_path / name, way])
        assert run.returncode == 0, run.stderr
    for name in ("a", "b"):
        assert main(["divergence", str(tmp_path / "hook"), str(tmp_path / name)]) == 0
