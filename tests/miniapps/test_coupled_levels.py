"""Of `coupled --inference static`, what evaluates the network has the same bits by every instruction set."""

import json
from dataclasses import replace

import pytest

torch = pytest.importorskip("torch")

from mpi4py import MPI  # noqa: E402

import kernels.inference  # noqa: E402, F401 - registers its variants
from benchmarks.apps.settings import BASE, LEAST, judge, run  # noqa: E402
from kernels import registry  # noqa: E402
from kernels.inference.schedule import LEVELS  # noqa: E402
from miniapps.coupled import APP  # noqa: E402
from miniapps.runner.main import main  # noqa: E402

pytestmark = pytest.mark.slow

FEW = ["--set", "grid.nx=32", "--set", "grid.ny=32", "--steps", "2", "--no-progress", "--log-level", "error"]
FEW += ["--guarantee", "layout", "--closure", "online", "--set", "closure.every=1", "--inference", "static"]


def test_one_hash_of_a_whole_run_by_every_instruction_set(tmp_path, monkeypatch):
    """Weights are taken anew after every step, so the chosen set must last."""
    key = ("inference", "static", "native")
    variant, networks, hashes = registry.VARIANTS[key], [], set()
    for level in LEVELS:

        def forced(*arguments, level=level, **options):
            networks.append(variant.function(*arguments, **options))
            networks[-1].level = LEVELS.index(level)
            return networks[-1]

        monkeypatch.setitem(registry.VARIANTS, key, replace(variant, function=forced))
        assert main(APP, [*FEW, "--out", str(tmp_path / level)], MPI.COMM_SELF) == 0
        hashes |= set(json.loads((tmp_path / level / "result.json").read_text())["fingerprints"])
    assert len(hashes) == 1
    assert [network.level for network in networks] == list(range(len(LEVELS)))


def test_no_setting_of_torch_mkl_onednn_openblas_and_numpy_enters_a_network_that_static_evaluates(tmp_path):
    """The same network evaluated by torch follows them, so that they are known to have been heard."""
    cases = ["coupled, surrogate", "coupled, surrogate, static"]
    run(tmp_path, [BASE, LEAST], cases)
    by_torch, by_static = judge(tmp_path, [BASE, LEAST], cases)
    assert by_static["comparable"] and by_static["equal"], by_static["first"]
    if torch.backends.cpu.get_cpu_capability() != "DEFAULT":
        assert not by_torch["equal"]
