"""`fpna identify --backend`: the all-reduce of gloo under mpirun and torchrun, and a certificate of it."""

import json
import os
import subprocess
import sys

import pytest

from tests.ranks import on_ranks

pytest.importorskip("torch")


def test_gloo_is_a_ring_whose_start_follows_the_place_in_the_vector(tmp_path):
    file = tmp_path / "gloo.json"
    options = ["-m", "fpna", "identify", "--backend", "gloo", "--length", "1", "12", "--tree"]
    run = on_ranks(3, [*options, "--json", file])
    assert run.returncode == 0, run.stderr
    one, twelve = json.loads(file.read_text())["lengths"]
    assert one["repeats"] and one["ranks_agree"] and one["orderings"]
    assert len(twelve["trees"]) == 3 and all(tree["verified"] for tree in twelve["trees"])
    assert sorted(tree["elements"][0] for tree in twelve["trees"]) == [[0, 3], [4, 7], [8, 11]]
    env = {key: value for key, value in os.environ.items() if not key.startswith(("PMI_", "OMPI_", "PMIX_"))}
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "3"]
    again = subprocess.run(
        [*torchrun, *options, "--against", file], capture_output=True, text=True, env=env, timeout=240
    )
    assert again.returncode == 0, again.stderr
    assert f"The bits are those of {file}" in again.stdout


@pytest.mark.parametrize(
    "options, said",
    [
        (["--backend", "absent"], "this torch has no backend 'absent'; it has gloo"),
        (["--backend", "gloo", "--call", "persistent"], "--call persistent is a call of MPI"),
        (
            ["--against", "absent.json"],
            "absent.json: cannot be read: No such file or directory; `identify --json`",
        ),
    ],
)
def test_a_mistake_is_told_once(options, said, tmp_path):
    run = on_ranks(2, ["-m", "fpna", "identify", *options], cwd=tmp_path)
    assert run.returncode == 2 and run.stderr.count(said) == 1, run.stderr
