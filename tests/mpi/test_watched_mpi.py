"""A watched model on several ranks: DistributedDataParallel, FSDP2, and ranks that do not watch the same."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from miniapps.trace import read_run
from tests.miniapps.watched_faults import judged
from tests.ranks import on_ranks

PROGRAM = Path(__file__).parent / "programs/watched.py"


def trained(out, way, ranks=2):
    run = on_ranks(ranks, [PROGRAM, out, way])
    assert run.returncode == 0, run.stdout + run.stderr
    return out


@pytest.fixture(scope="module")
def plain(tmp_path_factory):
    return trained(tmp_path_factory.mktemp("watched") / "ddp", "ddp")


@pytest.mark.parametrize(
    "way, ranks, expected",
    [
        ("ddp", 2, None),
        ("wrong", 2, ("collective", "sum of gradients over ranks", 1)),
        ("fsdp", 2, None),  # two contributions have one order
        ("alone", 1, ("contributions or order", "gradient of", 1)),
    ],
)
def test_the_first_difference_is_named(plain, way, ranks, expected, tmp_path):
    found = judged(plain, trained(tmp_path / "other", way, ranks))
    if expected is None:
        assert found is None
    else:
        kind, name, step = found
        assert (kind, step) == expected[::2] and name.startswith(expected[1])


def test_ranks_that_watch_other_modules_are_refused_on_all_of_them(tmp_path):
    run = on_ranks(2, [PROGRAM, tmp_path / "a", "other"])
    assert run.returncode != 0
    said = "fpna.watch: ranks have different modules: parameter 2.weight (4, 64) on rank 0, parameter 2.weight (5, 64)"
    assert said in run.stderr


def test_torchrun_gives_the_records_of_mpirun(plain, tmp_path):
    """Without MPI between the processes: torch's own group serves the recording."""
    program = PROGRAM.with_name("watched_by_torchrun.py")
    env = {key: value for key, value in os.environ.items() if not key.startswith(("PMI_", "OMPI_", "PMIX_"))}
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    run = subprocess.run(
        [*command, program, tmp_path / "a"], capture_output=True, text=True, env=env, timeout=240
    )
    assert run.returncode == 0, run.stderr
    assert len(list(read_run(tmp_path / "a"))) == 2
    assert judged(plain, tmp_path / "a") is None
