"""`--device cuda` of the reductions app: the bits of the CPU where an order is fixed, and all that the device adds.

Without a GPU it runs through the stand-in of tests/cuda_on_host.
"""

import json
import os
import shutil

import numpy as np
import pytest

from miniapps.system.environment import no_cuda
from miniapps.trace import rank_files, read
from tests.launch import ROOT
from tests.ranks import on_ranks

SMALL = ["--size=10", "--size=3000", "--arrays=2", "--samples=2", "--no-progress", "--set=problem.block=1000"]
STAND_IN = {"PYTHONPATH": os.pathsep.join([str(ROOT), str(ROOT / "tests" / "cuda_on_host")])}
needs_compiler = pytest.mark.skipif(
    shutil.which(os.environ.get("CXX", "g++")) is None, reason="no C++ compiler to build the kernels with"
)
needs_device = [pytest.mark.cuda, pytest.mark.skipif(bool(no_cuda()), reason=no_cuda() or "")]


def sums(ranks, out, *options, env=None):
    """{(variant, n, array): [values]} of a run."""
    argv = ["-m", "miniapps.reductions", *SMALL, *options, f"--out={out}"]
    run = on_ranks(ranks, argv, env=env, timeout=200)
    assert run.returncode == 0, run.stdout + run.stderr
    trace, totals = read(rank_files(out)[0]), {}
    table = trace.tables["values"]
    for name, array, value in zip(*(table[c].tolist() for c in ("name", "block", "value")), strict=True):
        operation, variant, _, n = trace.names[name].split(":")
        if operation in ("sum", "dot"):
            totals.setdefault((variant, n, array), []).append(value)
    return totals


def same_as_on_the_cpu(tmp_path, ranks, options, env=None):
    names = [f"--variant={name}" for name in ("sptr", "sprg")]
    device = sums(ranks, tmp_path / "device", "--device=cuda", *names, *options, env=env)
    assert device == sums(1, tmp_path / "cpu", *names, *options)
    recorded = json.loads((tmp_path / "device" / "result.json").read_text())
    assert recorded["method"]["run.device"] == "cuda"


@needs_compiler
@pytest.mark.parametrize(
    ("ranks", "options"),
    [
        (1, []),
        (2, ["--guarantee=layout", "--dtype=float32"]),
        (1, ["--dtype=bfloat16", "--guarantee=layout"]),
    ],
)
def test_the_device_gives_the_bits_of_the_cpu(tmp_path, ranks, options):
    same_as_on_the_cpu(tmp_path, ranks, options, STAND_IN)


@needs_compiler
@pytest.mark.parametrize(
    "options",
    [
        ["--distribution=centred"],
        ["--operation=dot", "--distribution=ill-conditioned", "--condition=1e60"],
        ["--dtype=bfloat16", "--operation=dot", "--distribution=normal"],
        ["--fault=nan@step=3,block=2"],
    ],
)
def test_exact_sums_of_several_devices_are_correctly_rounded(tmp_path, options):
    """The check `correctly rounded` is of every sum, against the superaccumulator of the CPU."""
    options = ["--guarantee=exact", *options]
    device = sums(2, tmp_path / "device", "--device=cuda", *options, env=STAND_IN)
    cpu = sums(1, tmp_path / "cpu", *options)
    assert device.keys() == cpu.keys()
    for key, values in device.items():
        assert np.array(values).tobytes() == np.array(cpu[key]).tobytes()


@needs_compiler
def test_atomic_sums_are_those_of_the_device_and_timed(tmp_path):
    options = ["--device=cuda", "--variant=spa", "--set=launch.block=32", "--set=launch.items=1"]
    totals = sums(1, tmp_path / "run", *options, env=STAND_IN | {"FPNA_HOST_ORDER": "5"})
    trace = read(rank_files(tmp_path / "run")[0])
    assert trace.attributes["promises"] == {"sum:sptr:cupy": "run", "sum:spa:cupy": "none"}
    timed = trace.tables["events"]["name"] == trace.names.index("sum:spa:cupy:3000")
    assert timed.sum() == 4 and "emulate" not in trace.names
    assert np.allclose(totals["spa", "3000", 0], totals["sptr", "3000", 0], rtol=1e-12)


class TestOnADevice:
    pytestmark = needs_device

    @pytest.mark.parametrize("options", [[], ["--guarantee=layout", "--dtype=float32"], ["--dtype=bfloat16"]])
    def test_the_device_gives_the_bits_of_the_cpu(self, tmp_path, options):
        same_as_on_the_cpu(tmp_path, 1, options)

    @pytest.mark.parametrize("guarantee", ["none", "layout"])
    def test_every_variant_of_the_device_passes_verification(self, tmp_path, guarantee):
        for operation in ("sum", "dot"):
            assert sums(
                1,
                tmp_path / operation,
                "--device=cuda",
                f"--operation={operation}",
                f"--guarantee={guarantee}",
            )
