"""The hook of DistributedDataParallel where MPI does not start the processes: the bits are those under mpirun."""

import json
import os
import socket
import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest

from tests.ranks import on_ranks

PROGRAM = Path(__file__).parent / "programs/hooked.py"
NEED_MPI = {
    '{"ordering": "library"}': "ordering 'library' is MPI's own all-reduce",
    '{"ordering": "arrival"}': "ordering 'arrival' needs MPI",
    '{"ordering": "ring", "accumulate": "exact", "wire": "packed"}': "wire 'packed' needs MPI",
}


def without_mpi(**more):
    of_mpi = ("PMI_", "OMPI_", "PMIX_")
    kept = {key: value for key, value in os.environ.items() if not key.startswith(of_mpi)}
    return kept | {"OMP_NUM_THREADS": "1"} | more


@cache
def under_mpirun(size):
    run = on_ranks(size, [PROGRAM])
    assert run.returncode == 0, run.stdout + run.stderr
    return json.loads(run.stdout)


def torchrun(size, *argv):
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(size)]
    run = subprocess.run([*command, *argv], capture_output=True, text=True, env=without_mpi(), timeout=240)
    assert run.returncode == 0, run.stderr
    return run.stdout


def by_torchrun(size):
    return json.loads(torchrun(size, PROGRAM))


def by_environment(size):
    """Processes with the variables that the launchers of accelerate, Lightning and DeepSpeed set."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        port = str(taken.getsockname()[1])
    started = [
        subprocess.Popen(
            [sys.executable, PROGRAM], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
            env=without_mpi(RANK=str(rank), LOCAL_RANK=str(rank), WORLD_SIZE=str(size), MASTER_ADDR="127.0.0.1",
                            MASTER_PORT=port),
        )
        for rank in range(size)
    ]  # fmt: skip
    ended = [process.communicate(timeout=240) for process in started]
    assert [process.returncode for process in started] == [0] * size, ended
    return json.loads(ended[0][0])


@pytest.mark.parametrize(
    ("launched", "size"),
    [
        (by_torchrun, 2),
        (by_torchrun, 3),
        (by_environment, 2),
        pytest.param(by_environment, 3, marks=pytest.mark.slow),
        pytest.param(by_torchrun, 1, marks=pytest.mark.slow),
        pytest.param(by_torchrun, 4, marks=pytest.mark.slow),
    ],
)
def test_launchers_of_torch_give_the_bits_of_mpirun(launched, size):
    found, expected = launched(size), under_mpirun(size)
    assert found["mpi"] == (size == 1)  # no rank started MPI
    for choice, weights in expected.items():
        if choice in NEED_MPI and size > 1:
            (said,) = found[choice]
            assert NEED_MPI[choice] in said
        elif choice not in ("mpi", '{"ordering": "arrival"}'):
            assert found[choice] == weights, choice
            assert len(weights) == 1, choice
            assert len(weights[0]) == 64, choice


def test_a_model_may_outlive_the_process_group():
    printed = torchrun(2, PROGRAM.with_name("hooked_again.py"), "hook")
    assert printed.split() == ["ended", "ended"]
