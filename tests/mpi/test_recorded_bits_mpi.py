"""Bits of all applications as they were recorded: what the code is moved by must not move them.

recorded_bits.json was written by tests/mpi/programs/recorded_bits.py. A change that means to change bits records them
anew, in a commit of its own that says why.
"""

import json
from pathlib import Path

import pytest

from tests.ranks import on_ranks

HERE = Path(__file__).parent
RECORDED = json.loads((HERE / "recorded_bits.json").read_text())
LEARNED = ("surrogate", "online")  # bits of these belong to a version of torch and to a processor


def runs(library, ranks):
    done = on_ranks(max(ranks), [HERE / "programs" / "recorded_bits.py", *ranks], library, timeout=290)
    assert done.returncode == 0, done.stdout + done.stderr
    return {name: " | ".join(lines) for name, lines in json.loads(done.stdout).items()}


def learned():
    torch = pytest.importorskip("torch")
    # The closure is trained by torch, whose products are MKL's: it has other kernels on processors of another vendor.
    capability = torch.backends.cpu.get_cpu_capability()
    return {"torch": torch.__version__, "capability": capability, "vendor": vendor()}


def vendor():
    lines = Path("/proc/cpuinfo").read_text().splitlines() if Path("/proc/cpuinfo").exists() else []
    return next((line.split(":")[1].strip() for line in lines if line.startswith("vendor_id")), "")


@pytest.mark.parametrize(
    ("library", "ranks"),
    [
        ("mpich", (3,)),
        pytest.param("mpich", (1, 4), marks=pytest.mark.slow),
        pytest.param("openmpi", (2,), marks=pytest.mark.slow),
    ],
)
def test_every_run_has_the_recorded_bits(library, ranks):
    same_torch = learned() == RECORDED["learned"]
    here = runs(library, ranks)
    recorded = {
        name: lines
        for name, lines in RECORDED["runs"].items()
        if name.endswith(tuple(f" on {n}" for n in ranks))
    }
    assert recorded and here.keys() == recorded.keys()
    differ = {
        name: (lines, here[name])
        for name, lines in recorded.items()
        if here[name] != lines and (same_torch or not any(word in name for word in LEARNED))
    }
    assert not differ
