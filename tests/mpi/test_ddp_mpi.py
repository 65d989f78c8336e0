"""The hook of DistributedDataParallel under real MPI libraries, and the example of the docs."""

import json
from pathlib import Path

import pytest

from analysis.__main__ import main
from miniapps.system.environment import no_cuda
from tests.launch import ROOT, run_mpi
from tests.mpi.sectioned import layouts, reported, sections
from tests.ranks import on_ranks

PROGRAM = "ddp.py"
EXAMPLE = Path(__file__).parents[2] / "docs/examples/torch_ddp.py"


@layouts(2, slow=(1, 4), others=())
@pytest.mark.parametrize("section", sections(PROGRAM))
def test_section(section, library, size):
    assert reported(PROGRAM, library, size)[section] == []


@layouts(2, 3, slow=(1,), others=())
@pytest.mark.parametrize("section", sections("hook_uses.py"))
def test_uses(section, library, size):
    assert reported("hook_uses.py", library, size)[section] == []


@layouts(2, slow=(3,), others=())
def test_drawn_models_have_the_mean(library, size):
    assert reported("drawn_models.py", library, size)["drawn_models_have_the_mean"] == []


@pytest.mark.cuda
@pytest.mark.skipif(bool(no_cuda()), reason=no_cuda() or "")
@pytest.mark.parametrize("size", [2, 3])
def test_gradients_on_a_device_have_the_mean_of_the_host(size):
    run = run_mpi(size, [ROOT / "tests" / "mpi" / "programs" / PROGRAM, "--cuda"])
    assert run.returncode == 0, run.stdout + run.stderr
    found = json.loads(run.stdout)
    assert found and not any(found.values()), found


def test_the_example_repeats_over_a_narrow_wire(tmp_path):
    def ran(name, *wire):
        run = on_ranks(2, [EXAMPLE, tmp_path / name, *wire])
        assert run.returncode == 0, run.stderr
        return run.stdout

    assert ran("a", "table:n=4") == ran("b", "table:n=4") != ran("plain")
    assert main(["divergence", str(tmp_path / "a"), str(tmp_path / "b")]) == 0
    assert main(["divergence", str(tmp_path / "a"), str(tmp_path / "plain")]) == 3
