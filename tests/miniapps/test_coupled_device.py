"""`--device cuda`: the device path of the coupled app gives the bits of the CPU, and says what it lacks.

Without a GPU it runs through the stand-in of tests/cuda_on_host, whose arrays refuse to mix with NumPy's.
"""

import json
import os
import re
import shutil

import pytest

from miniapps.system.environment import no_cuda
from tests.launch import ROOT, run_mpi
from tests.ranks import on_ranks

SMALL = [f"--set=grid.{name}" for name in ("nx=24", "ny=24", "bx=8", "by=8")] + ["--no-progress"]
STAND_IN = {"PYTHONPATH": os.pathsep.join([str(ROOT), str(ROOT / "tests" / "cuda_on_host")])}
needs_compiler = pytest.mark.skipif(
    shutil.which(os.environ.get("CXX", "g++")) is None, reason="no C++ compiler to build the kernels with"
)
needs_device = [pytest.mark.cuda, pytest.mark.skipif(bool(no_cuda()), reason=no_cuda() or "")]


def coupled(ranks, out, *arguments, env=None):
    """The fingerprints of a run of two steps, one per repeat."""
    argv = ["-m", "miniapps.coupled", *SMALL, "--steps=2", f"--out={out}", *arguments]
    run = on_ranks(ranks, argv, env=env, timeout=120)
    assert run.returncode == 0, run.stdout + run.stderr
    return re.findall(r"FINGERPRINT state=(\w+)", run.stdout)


@needs_compiler
@pytest.mark.parametrize(
    ("guarantee", "closure", "ranks"),
    [
        ("layout", "online", 1),
        pytest.param("layout", "online", 3, marks=pytest.mark.slow),
        ("exact", "physics", 2),
    ],
)
def test_the_device_path_gives_the_bits_of_the_cpu(tmp_path, guarantee, closure, ranks):
    arguments = [f"--guarantee={guarantee}", f"--closure={closure}"]
    device = coupled(ranks, tmp_path / "device", "--device=cuda", *arguments, env=STAND_IN)
    assert device == coupled(1, tmp_path / "cpu", *arguments) and len(device) == 1
    recorded = json.loads((tmp_path / "device" / "result.json").read_text())
    assert recorded["method"]["run.device"] == "cuda"


@needs_compiler
def test_checkpoints_and_snapshots_go_between_device_and_cpu(tmp_path):
    layout = "--guarantee=layout"
    files = ["--checkpoint-every=1", "--snapshot-every=2"]
    whole = coupled(1, tmp_path / "device", "--device=cuda", layout, *files, env=STAND_IN)
    checkpoint = tmp_path / "device" / "checkpoints" / "repeat-0-step-000001.h5"
    assert coupled(1, tmp_path / "cpu", layout, f"--restart={checkpoint}") == whole
    restarted = [layout, "--device=cuda", f"--restart={checkpoint}"]
    assert coupled(1, tmp_path / "again", *restarted, env=STAND_IN) == whole


@needs_compiler
def test_a_state_on_the_device_that_is_no_longer_finite_is_named(tmp_path):
    fault = ["--device=cuda", "--closure=none", "--fault=nan@step=2,block=5", "--steps=3"]
    out = f"--out={tmp_path / 'run'}"
    run = run_mpi(1, ["-m", "miniapps.coupled", *SMALL, *fault, out], env=STAND_IN)
    assert run.returncode == 1 and "vorticity of block 5" in run.stderr, run.stderr


@pytest.mark.skipif(not no_cuda(), reason="there is a device")
def test_without_a_device_the_option_is_refused_and_nothing_is_created(tmp_path):
    run = on_ranks(1, ["-m", "miniapps.coupled", "--device=cuda", f"--out={tmp_path / 'run'}"])
    assert run.returncode == 2 and "--device cuda: " in run.stderr and "--device cpu" in run.stderr, (
        run.stderr
    )
    assert not (tmp_path / "run").exists()


def test_what_is_set_for_repeatable_convolutions_is_restored():
    torch = pytest.importorskip("torch")
    from miniapps.coupled.surrogate import repeatable_convolutions

    cudnn = torch.backends.cudnn

    def now():
        return cudnn.deterministic, cudnn.benchmark, cudnn.allow_tf32

    before = now()
    with pytest.raises(RuntimeError, match="inside"), repeatable_convolutions():
        assert now() == (True, False, False)
        raise RuntimeError("inside")
    assert now() == before and before != (True, False, False)


class TestOnADevice:
    pytestmark = needs_device

    @pytest.mark.parametrize("guarantee", ["layout", "exact"])
    def test_the_flow_has_the_bits_of_the_cpu(self, tmp_path, guarantee):
        arguments = [f"--guarantee={guarantee}", "--closure=physics"]
        device = coupled(1, tmp_path / "device", "--device=cuda", *arguments)
        assert device == coupled(1, tmp_path / "cpu", *arguments)

    def test_the_learned_closure_repeats_and_does_not_follow_the_ranks(self, tmp_path):
        prints = set()
        for ranks in (1, 3):
            prints.update(
                coupled(ranks, tmp_path / str(ranks), "--device=cuda", "--guarantee=layout", "--repeats=2")
            )
        assert len(prints) == 1
