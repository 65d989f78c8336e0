"""Bits of all applications as they were recorded: what the code is moved by must not move them.

recorded_bits.json was written by tests/mpi/programs/recorded_bits.py. A change that means to change bits records them
anew, in a commit of its own that says why.
"""

import json
from importlib.util import find_spec
from pathlib import Path

import pytest

from tests.ranks import on_ranks

HERE = Path(__file__).parent
RECORDED = json.loads((HERE / "recorded_bits.json").read_text())
LEARNED = ("surrogate", "online")  # bits of these belong to a version of torch and to a processor


def measured(library, ranks):
    """What recorded_bits.json holds of these numbers of ranks, as it is here."""
    done = on_ranks(max(ranks), [HERE / "programs" / "recorded_bits.py", *ranks], library, timeout=290)
    assert done.returncode == 0, done.stdout + done.stderr
    return json.loads(done.stdout)


@pytest.mark.skipif(find_spec("torch") is None, reason="no torch, which learns in two of the runs")
@pytest.mark.parametrize(
    ("library", "ranks"),
    [
        ("mpich", (3,)),
        pytest.param("mpich", (1, 4), marks=pytest.mark.slow),
        pytest.param("openmpi", (2,), marks=pytest.mark.slow),
    ],
)
def test_every_run_has_the_recorded_bits(library, ranks):
    found = measured(library, ranks)
    same_torch = found["learned"] == RECORDED["learned"]
    here = {name: " | ".join(lines) for name, lines in found["runs"].items()}
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
