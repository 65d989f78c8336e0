"""The examples of Accelerate and Lightning under the launchers of these packages."""

import os
import sys
from pathlib import Path

import pytest

from analysis.__main__ import main
from tests.launch import ROOT, run_command
from tests.mpi.test_packages import installed

EXAMPLES = Path(__file__).parents[2] / "docs/examples"


def started(package, processes, out, way):
    place = installed(package)
    if package == "accelerate":
        how = ["--cpu"] if processes == 1 else ["--multi_gpu"]
        words = [
            "-m",
            "accelerate.commands.launch",
            *how,
            "--num_processes",
            processes,
            "--main_process_port",
            0,
        ]
        words += [EXAMPLES / "torch_accelerate.py", out, way]
    else:
        words = [EXAMPLES / "torch_lightning.py", out, processes, way]
    paths = f"{ROOT}{os.pathsep}{ROOT / '.venv-packages'}"
    run = run_command([sys.executable, *map(str, words)], place.env | {"PYTHONPATH": paths}, 150, None)
    assert run.returncode == 0, run.stdout + run.stderr
    assert f"60 steps on {processes} processes" in run.stdout
    return run.stdout


@pytest.mark.slow
@pytest.mark.parametrize("package", ["accelerate", "lightning"])
def test_micro_batches_have_equal_bits_on_one_to_three_processes(package, tmp_path):
    for processes in (1, 2, 3):
        started(package, processes, tmp_path / str(processes), "micro")
    assert main(["divergence", *(str(tmp_path / str(processes)) for processes in (1, 2, 3))]) == 0


@pytest.mark.slow
@pytest.mark.parametrize("package", ["accelerate", "lightning"])
def test_the_hook_repeats_its_bits_on_three_processes(package, tmp_path):
    for name in "ab":
        started(package, 3, tmp_path / name, "hook")
    assert main(["divergence", str(tmp_path / "a"), str(tmp_path / "b")]) == 0
