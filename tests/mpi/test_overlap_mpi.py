"""Messages that begin early have the bits of those that begin where they are needed."""

from pathlib import Path

import pytest

from tests.ranks import on_ranks

PROGRAM = Path(__file__).parent / "programs" / "overlapped.py"
ALONE, DATA = "d=1:batch", ["d=2:batch", "d=3:batch/2", "d=4:batch/1"]
BOTH = "d=2:batch,m=2:heads+ff"
STAGED = "batch,heads,ff,stage/layers=4,samples=8,batch=2,micro_batches=4,tokens=8,width=16,feedforward=16"
STAGES = ["d=2:batch,s=2:stage", "s=2:stage,m=2:heads+ff//circular"]
NORMS, DATA_NORMS = "batch,heads,ff,norms", "d=2:batch,m=2:heads+ff+norms"
PARTS = 4  # of a product, at most, of at least one row each


def hashes(name, axes, level, meshes, library="mpich", wire="as is"):
    """{mesh: [(hash, reductions) for each of OVERLAPS]}."""
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
        ("gpt", "batch,heads,ff", "layout", [ALONE, *DATA, BOTH, "m=4:heads+ff/5"], "mpich"),
        ("gpt", "batch,heads,ff", "layout", [DATA[0], BOTH], "openmpi"),
        ("mlp", "batch,hidden", "exact", [ALONE, *DATA, "d=2:batch,m=2:hidden"], "mpich"),
        ("mlp", "batch,stored", "layout", [ALONE, "d=2:batch+stored", "d=2:batch,s=2:stored/3"], "mpich"),
        ("mlp", "batch,stored", "layout", [ALONE, "d=4:batch+stored"], "openmpi"),
        ("unet", "batch,rows,columns", "layout", [ALONE, DATA[0], "r=2:rows,c=2:columns"], "mpich"),
        ("unet", "batch,rows,columns", "layout", ["d=2:batch,r=2:rows"], "openmpi"),
        ("gpt", STAGED, "layout", [ALONE, "s=2:stage//gpipe", *STAGES], "mpich"),
        ("gpt", STAGED, "layout", STAGES[1:], "openmpi"),
        ("gpt", NORMS, "layout", [ALONE, "m=2:heads+ff+norms", "m=4:heads+ff+norms/5", DATA_NORMS], "mpich"),
        ("gpt", NORMS, "layout", ["m=3:heads+ff+norms", DATA_NORMS], "openmpi"),
        ("bert", NORMS, "exact", [ALONE, "m=2:heads+ff+norms"], "mpich"),
    ],
)
def test_overlap_keeps_the_bits_on_every_mesh(name, axes, level, meshes, library):
    found = hashes(name, axes, level, meshes, library)
    assert len({digest for each in found.values() for digest, _ in each}) == 1
    if name == "gpt":
        for mesh, ((_, before), (_, gradients), *_) in found.items():
            assert gradients > before or "d=" not in mesh or mesh == ALONE


def test_products_are_added_part_by_part():
    (found,) = hashes("gpt", "batch,heads,ff", "layout", ["m=2:heads+ff"]).values()
    (_, before), *_, (_, sums), (_, rings) = found
    assert before == sums and rings == before * PARTS


def test_overlap_keeps_the_bits_of_a_mesh_under_run():
    found = hashes("gpt", "batch,heads,ff", "run", [*DATA, BOTH])
    found |= hashes("gpt", NORMS, "run", [DATA_NORMS])
    for (digest, before), (other, after), *more in found.values():
        assert {digest} == {other, *(each for each, _ in more)} and after > before


def test_overlap_keeps_the_bits_over_a_lossy_wire():
    found = hashes("mlp", "batch,hidden", "layout", [ALONE, *DATA], wire="fp8")
    assert len({digest for each in found.values() for digest, _ in each}) == 1
