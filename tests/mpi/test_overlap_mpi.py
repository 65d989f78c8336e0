"""Sums of gradients that begin early have the bits of those that begin at the end."""

from pathlib import Path

import pytest

from tests.ranks import on_ranks

PROGRAM = Path(__file__).parent / "programs" / "overlapped.py"
ALONE, DATA = "d=1:batch", ["d=2:batch", "d=3:batch/2", "d=4:batch/1"]
BOTH = "d=2:batch,m=2:heads+ff"


def hashes(name, axes, level, meshes, library="mpich", wire="as is"):
    """{mesh: [(hash, reductions) without and with early sums]}."""
    run = on_ranks(4, [PROGRAM, name, axes, level, wire, *meshes], library, timeout=300)
    assert run.returncode == 0, run.stdout + run.stderr
    assert "ranks differ" not in run.stderr
    found = {}
    for mesh, digest, count in map(str.split, run.stdout.splitlines()):
        found.setdefault(mesh, []).append((digest, int(count)))
    assert list(found) == list(meshes)
    return found


@pytest.mark.parametrize(
    "name, axes, level, meshes, library",
    [
        ("gpt", "batch,heads,ff", "layout", [ALONE, *DATA, BOTH], "mpich"),
        ("gpt", "batch,heads,ff", "layout", [DATA[0], BOTH], "openmpi"),
        ("mlp", "batch,hidden", "exact", [ALONE, *DATA], "mpich"),
        ("mlp", "batch,stored", "layout", [ALONE, "d=2:batch+stored", "d=2:batch,s=2:stored/3"], "mpich"),
    ],
)
def test_overlap_keeps_the_bits_on_every_mesh(name, axes, level, meshes, library):
    found = hashes(name, axes, level, meshes, library)
    assert len({digest for both in found.values() for digest, _ in both}) == 1
    for mesh, ((_, before), (_, after)) in found.items():
        assert after > before or mesh == ALONE


def test_overlap_keeps_the_bits_of_a_mesh_under_run():
    found = hashes("gpt", "batch,heads,ff", "run", [*DATA, BOTH])
    for (digest, before), (other, after) in found.values():
        assert digest == other and after > before


def test_overlap_keeps_the_bits_over_a_lossy_wire():
    found = hashes("mlp", "batch,hidden", "layout", [ALONE, *DATA], wire="fp8")
    assert len({digest for both in found.values() for digest, _ in both}) == 1
