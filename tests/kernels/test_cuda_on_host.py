"""Without a device: the CUDA kernels built by the C++ compiler, their threads taking turns (tests/cuda_on_host)."""

import os
import re
import shutil

import pytest

from tests.launch import ROOT, run_python

pytestmark = pytest.mark.skipif(
    shutil.which(os.environ.get("CXX", "g++")) is None, reason="no C++ compiler to build the kernels with"
)
STAND_IN = os.pathsep.join([str(ROOT), str(ROOT / "tests" / "cuda_on_host")])

ONE_BARRIER_LESS = """
import numpy as np
import kernels.cuda
from kernels.stencil import backend, reference
from tests.kernels.stencil_cases import v_cycle

barrier = "__syncthreads();"
parts = kernels.cuda.source("stencil").split(barrier)
kernels.cuda.source = lambda name: barrier.join(parts[:{k}]) + barrier.join(parts[{k}:])
gpu, case = backend("cupy"), (2, 3, 3, 3, 2)
results = [v_cycle(module, *case) for module in (gpu, reference)]
same = all(a.tobytes() == b.tobytes() for a, b in zip(*results))
print(len(parts) - 1, "same" if same else "different")
"""


RUNS = [
    (f"test_cuda{file}.py", order) for file in ("", "_sums") for order in ("ascending", "descending", "1")
]
RUNS += [
    ("test_cuda_order_free.py", "1"),
    ("test_cuda_scatter.py", "descending"),
    ("test_cuda_scatter.py", "1"),
    ("test_cuda_sparse.py", "descending"),
    ("test_cuda_sparse.py", "1"),
    ("test_cuda_vectors.py", "descending"),
    ("test_cuda_vectors.py", "1"),
]


@pytest.mark.parametrize("file, order", RUNS)
def test_the_kernels_give_the_bits_of_the_definition_in_any_order_of_blocks_and_threads(file, order):
    env = {"PYTHONPATH": STAND_IN, "FPNA_HOST_ORDER": order}
    run = run_python(["-m", "pytest", f"tests/kernels/{file}", "-p", "no:cacheprovider"], env, cwd=ROOT)
    assert run.returncode == 0, run.stdout + run.stderr
    assert "skipped" not in run.stdout and re.search(r"\b[1-9]\d* passed", run.stdout), run.stdout


@pytest.mark.parametrize("k", range(8))
def test_every_barrier_is_needed(k):
    """Kernel and stand-in both: without any one of the seven barriers the bits follow the order of the threads."""
    found = set()
    for order in ("ascending", "descending"):
        env = {"PYTHONPATH": STAND_IN, "FPNA_HOST_ORDER": order}
        run = run_python(["-c", ONE_BARRIER_LESS.replace("{k}", str(k))], env)
        assert run.returncode == 0, run.stderr
        count, what = run.stdout.split()
        assert count == "7"
        found.add(what)
    assert found == {"same"} if k == 0 else "different" in found


ARRIVALS = """
import os
import cupy, numpy as np
from kernels.sums import cupy as gpu

x = cupy.asarray(np.random.default_rng(1).standard_normal(4000))
for name in ("sptr", "sprg", "tprc", "sp_pairwise", "sp_neumaier", "binned", "fixed_point", "exact", "spa", "ao"):
    found = set()
    for order in ("ascending", "descending", *map(str, range(6))):
        os.environ["FPNA_HOST_ORDER"] = order
        found.add(getattr(gpu, name)(x, block=64, items=2).tobytes())
    print(name, len(found))
"""


def test_atomic_sums_follow_the_order_of_blocks_and_the_others_do_not():
    run = run_python(["-c", ARRIVALS], {"PYTHONPATH": STAND_IN})
    assert run.returncode == 0, run.stderr
    counts = {name: int(count) for name, count in map(str.split, run.stdout.splitlines())}
    follow = {name for name, count in counts.items() if count > 1}
    assert follow == {"spa", "ao"} and len(counts) == 10
