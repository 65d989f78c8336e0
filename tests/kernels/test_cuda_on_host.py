"""The CUDA kernels without a device: built by the C++ compiler, with threads in turn (tests/cuda_on_host)."""

import os
import shutil

import pytest

from tests.launch import ROOT, run_python

pytestmark = pytest.mark.skipif(
    shutil.which(os.environ.get("CXX", "g++")) is None, reason="no C++ compiler to build the kernels with"
)
STAND_IN = os.pathsep.join([str(ROOT), str(ROOT / "tests" / "cuda_on_host")])

ONE_BARRIER_LESS = """
import os
import numpy as np
import kernels.cuda
from kernels.stencil import backend, reference
from tests.kernels.stencil_cases import v_cycle

barrier = "__syncthreads();"
parts = kernels.cuda.source("stencil").split(barrier)
gpu, case = backend("cupy"), (2, 3, 3, 3, 2)
expected = v_cycle(reference, *case)
for k in range(len(parts)):
    kernels.cuda.source = lambda name: barrier.join(parts[:k]) + barrier.join(parts[k:])
    kernels.cuda.kernel.cache_clear()
    kernels.cuda._module.cache_clear()
    for order in ("ascending", "descending"):
        os.environ["FPNA_HOST_ORDER"] = order
        same = all(a.tobytes() == b.tobytes() for a, b in zip(v_cycle(gpu, *case), expected))
        print(k, "same" if same else "different")
"""


# Every host runs threads in ascending order without being told to.
RUNS = {
    "descending": ("", "_sums", "_contract", "_attention"),
    "1": (
        "",
        "_sums",
        "_contract",
        "_attention",
        "_scatter",
        "_sparse",
        "_vectors",
        "_wires",
        "_order_free",
    ),
}


@pytest.mark.timeout(900)
@pytest.mark.parametrize("order", ["descending", pytest.param("1", marks=pytest.mark.slow)])
def test_the_kernels_give_the_bits_of_the_definition_in_any_order_of_blocks_and_threads(order):
    files = [f"tests/kernels/test_cuda{name}.py" for name in RUNS[order]]
    env = {"PYTHONPATH": STAND_IN, "FPNA_HOST_ORDER": order}
    run = run_python(["-m", "pytest", *files, "-p", "no:cacheprovider", "-v"], env, timeout=800, cwd=ROOT)
    assert run.returncode == 0, run.stdout + run.stderr
    assert "skipped" not in run.stdout and all(f"{file} ." in run.stdout for file in files), run.stdout


def test_every_barrier_is_needed():
    """Kernel and stand-in both: without any one of the seven barriers the bits follow the order of the threads."""
    run = run_python(["-c", ONE_BARRIER_LESS], {"PYTHONPATH": STAND_IN})
    assert run.returncode == 0, run.stderr
    lines = [line.split() for line in run.stdout.splitlines()]
    assert [int(k) for k, _ in lines] == [k for k in range(8) for _ in range(2)]
    assert {what for k, what in lines if k == "0"} == {"same"}  # none left out
    assert {int(k) for k, what in lines if what == "different"} == set(range(1, 8))


ARRIVALS = """
import os
import cupy, numpy as np
from kernels import registry, sums

x = cupy.asarray(np.random.default_rng(1).standard_normal(4000))
for name in ("sptr", "sprg", "tprc", "sp-pairwise", "sp-neumaier", "binned", "fixed-point", "exact", "spa", "ao"):
    found = set()
    for order in ("ascending", "descending", *map(str, range(6))):
        os.environ["FPNA_HOST_ORDER"] = order
        found.add(registry.get("sum", name, "cupy")(x, block=64, items=2).tobytes())
    print(name, len(found))
"""


def test_atomic_sums_follow_the_order_of_blocks_and_the_others_do_not():
    run = run_python(["-c", ARRIVALS], {"PYTHONPATH": STAND_IN})
    assert run.returncode == 0, run.stderr
    counts = {name: int(count) for name, count in map(str.split, run.stdout.splitlines())}
    follow = {name for name, count in counts.items() if count > 1}
    assert follow == {"spa", "ao"} and len(counts) == 10
