"""One hash of loss, gradients and weights per model, whatever mesh of ranks trains it."""

from functools import cache
from pathlib import Path

import pytest

from tests.launch import LIBRARIES
from tests.ranks import on_ranks

PROGRAM = Path(__file__).parent / "programs" / "partition.py"
AXES = {
    "mlp": "batch,hidden",
    "gpt": "batch,heads,ff",
    "bert": "batch,heads,ff",
    "unet": "batch,rows,columns",
    "moe": "batch,experts",
}
# Seven blocks of samples on 1 to 7 ranks, products of axes, the axes of a mesh in another order, shuffled owners.
DATA = [f"d={p}:batch" for p in range(1, 8)]
MODEL = {
    "mlp": ["m=2:hidden", "m=3:hidden/5", "m=4:hidden", "m=5:hidden", "m=7:hidden/2", "m=8:hidden"],
    "gpt": ["m=2:heads+ff", "m=3:heads+ff", "m=4:heads+ff/4", "h=3:heads", "f=5:ff/1", "f=8:ff"],
    "unet": ["r=2:rows", "r=3:rows/2", "r=6:rows", "c=2:columns", "c=3:columns/1", "r=5:rows", "c=4:columns"],
    "moe": ["x=2:experts", "x=4:experts/3"],
}
MODEL["bert"] = MODEL["gpt"]
TWO = "m=2:heads+ff"
PRODUCTS = {
    "mlp": """
        d=2:batch,m=2:hidden m=2:hidden,d=4:batch/9 d=3:batch,m=2:hidden/8 d=7:batch/6 d=3:batch/3 d=2:batch/1
        d=6:batch/4
    """,
    "gpt": f"""
        d=2:batch,{TWO} {TWO},d=3:batch/9 d=2:batch,h=2:heads,f=2:ff d=5:batch/3 d=2:batch,m=4:heads+ff/7 d=2:batch/1
        d=6:batch/4
    """,
    "unet": """
        d=2:batch,r=2:rows r=2:rows,c=2:columns d=2:batch,r=2:rows,c=2:columns/4 r=4:rows,c=2:columns/3 d=3:batch/2
        d=4:batch d=4:batch,c=2:columns r=4:rows/7 d=2:batch,c=3:columns/9 d=3:batch,r=2:rows d=1:batch d=2:batch
        c=4:columns/2
    """,
    "moe": """
        d=2:batch+experts d=3:batch+experts d=4:batch+experts/3 d=2:batch,x=2:experts d=2:batch,x=4:experts
        x=2:experts,d=4:batch/5 d=8:batch d=3:batch/4 d=5:batch/7 x=3:experts/1 d=3:batch,x=2:experts/2
        d=2:batch,x=3:experts d=2:batch/1
    """,
}
PRODUCTS["bert"] = PRODUCTS["gpt"]
MESHES = {name: [*(DATA if name != "unet" else []), *MODEL[name], *PRODUCTS[name].split()] for name in AXES}
# float32 has 2^-24; the sums have up to some hundred terms, and the networks some twenty layers.
CLOSE = 1e-5


def hashes(
    name, meshes, level="layout", library="mpich", ranks=8, threads=1, shapes="exact", timeout=500, axes=None
):
    """{mesh: hash} of a model, cut by `axes`; gradients are those of autograd in float64, but for rounding."""
    run = on_ranks(
        ranks, [PROGRAM, name, axes or AXES[name], level, threads, shapes, *meshes], library, timeout=timeout
    )
    assert run.returncode == 0, run.stdout + run.stderr
    assert "ranks differ" not in run.stderr
    lines = [line.split() for line in run.stdout.splitlines() if line.count(" ") == 2]
    assert [mesh for mesh, _, _ in lines] == list(meshes)
    assert all(float(error) < CLOSE for _, _, error in lines), run.stdout
    return {mesh: digest for mesh, digest, _ in lines}


@cache
def few(name):
    """The hashes of a model on four meshes."""
    meshes = ["d=1:batch", "d=3:batch", MODEL[name][0], PRODUCTS[name].split()[0]]
    return set(hashes(name, meshes, ranks=4).values())


@pytest.mark.parametrize("name", AXES)
def test_a_model_has_one_hash_on_any_mesh(name):
    assert len(few(name)) == 1


@pytest.mark.slow
@pytest.mark.parametrize("name", AXES)
def test_a_model_has_one_hash_on_twenty_meshes_in_both_shapes(name):
    assert len(MESHES[name]) >= 20
    found = set(hashes(name, MESHES[name]).values())
    few = [mesh for mesh in MESHES[name] if not any(f"={p}" in mesh for p in "5678")][:8]
    for library in LIBRARIES[1:]:
        found |= set(hashes(name, few, library=library).values())
    found |= set(hashes(name, few, shapes="padded").values())
    found |= set(hashes(name, ["d=1:batch", *PRODUCTS[name].split()[:1]], ranks=4, threads=2).values())
    assert len(found) == 1


def test_padding_does_not_show():
    meshes = ["d=3:batch/2", "r=4:rows/3", "c=3:columns/1"]
    assert set(hashes("unet", meshes, ranks=4, shapes="padded").values()) == few("unet")


def test_exact_has_one_hash_too():
    assert len(set(hashes("mlp", ["d=1:batch", "d=3:batch/2", "m=2:hidden"], "exact", ranks=3).values())) == 1


def test_none_and_run_learn_the_same_but_for_rounding():
    meshes = ["d=1:batch", "d=2:batch,r=2:rows/3"]
    for level in ("none", "run"):
        assert len(set(hashes("unet", meshes, level, ranks=4).values())) == 2


STORED = ["d=1:batch", "d=2:batch+stored", "d=3:batch+stored/3", "d=2:batch,s=2:stored"]


@pytest.mark.parametrize(
    "others", [[], pytest.param([(name, "padded") for name in LIBRARIES[1:]], marks=pytest.mark.slow)]
)
def test_owners_of_stored_weights_do_not_show(others):
    """Gradients are reduce-scattered over `d`, or, in the last mesh, all-reduced and cut."""
    argv = [PROGRAM, "mlp", "batch,stored", "layout", 1]
    found = set()
    for library, shapes in [(LIBRARIES[0], "exact"), *others]:
        run = on_ranks(4, [*argv, shapes, *STORED], library)
        assert run.returncode == 0, run.stderr
        assert "ranks differ" not in run.stderr
        found |= {line.split()[1] for line in run.stdout.splitlines()}
    assert len(found) == 1


@pytest.mark.parametrize(
    "model, axes, meshes",
    [
        ("mlp", "batch,stored", ["d=3:batch+stored/3", "d=2:batch,s=2:stored", "d=4:batch"]),
        ("unet", "rows,columns", ["r=2:rows,c=2:columns"]),  # windows of neighbouring blocks overlap
        ("gpt:ring", "batch,tokens/layers=1", ["s=4:tokens", "s=2:tokens,d=2:batch", "s=3:tokens/2"]),
    ],
)
def test_a_step_sends_what_explain_counts(model, axes, meshes):
    run = on_ranks(4, [PROGRAM.with_name("partition_bytes.py"), model, axes, *meshes])
    assert run.returncode == 0, run.stderr
    lines = [line.split() for line in run.stdout.splitlines()]
    assert [mesh for mesh, *_ in lines] == meshes
    assert all(told == sent and int(sent) > 0 for _, told, sent in lines), run.stdout
