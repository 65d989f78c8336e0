"""`fpna.accumulate`: one hash of the weights on any number of processes, by MPI and by torchrun."""

import os
import re
import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest

from tests.ranks import on_ranks

pytest.importorskip("torch")
PROGRAM = Path(__file__).parent / "programs/accumulated.py"


@cache
def trained(model, ranks):
    """The hash that all ranks print."""
    run = on_ranks(ranks, [PROGRAM, model])
    assert run.returncode == 0, run.stderr
    return hash_of(run.stdout, ranks)


def hash_of(printed, ranks):
    found = re.findall(r"weights ([0-9a-f]{16})", printed)
    assert len(found) == ranks and len(set(found)) == 1
    return found[0]


@pytest.mark.parametrize(
    "ranks", [2, pytest.param(3, marks=pytest.mark.slow), pytest.param(4, marks=pytest.mark.slow)]
)
@pytest.mark.parametrize("model", ["images", "tokens", "recurrent"])
def test_the_number_of_ranks_changes_no_bit(model, ranks):
    assert trained(model, ranks) == trained(model, 1)


def test_torchrun_gives_the_same_network():
    env = {key: value for key, value in os.environ.items() if not key.startswith(("PMI_", "OMPI_", "PMIX_"))}
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    run = subprocess.run([*torchrun, PROGRAM, "tokens"], capture_output=True, text=True, env=env, timeout=240)
    assert run.returncode == 0, run.stderr
    assert hash_of(run.stdout, 2) == trained("tokens", 1)


def test_batch_normalisation_is_refused_on_all_ranks():
    run = on_ranks(2, [PROGRAM, "normed"])
    assert run.returncode != 0 and "fpna.accumulate: norm is BatchNorm2d" in run.stderr
