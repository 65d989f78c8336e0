"""Attention block by block has one hash on every mesh, with both MPI libraries."""

from pathlib import Path

import pytest

from tests.ranks import on_ranks

PROGRAM = Path(__file__).parent / "programs" / "partition.py"
ALONE = "s=1:tokens"


@pytest.mark.parametrize(
    ("name", "axes", "meshes", "library"),
    [
        (
            "gpt",
            "tokens,batch",
            [
                ALONE,
                "s=2:tokens",
                "s=3:tokens/2",
                "s=4:tokens",
                "s=2:tokens,d=2:batch",
                "s=2:tokens///tokens",
            ],
            "mpich",
        ),
        ("bert", "tokens,heads,ff", [ALONE, "s=4:tokens/1", "s=2:tokens,m=2:heads+ff"], "mpich"),
        ("gpt", "tokens,batch", [ALONE, "s=2:tokens///tokens", "s=2:tokens,d=2:batch"], "openmpi"),
    ],
)
def test_blocks_of_keys_keep_the_bits_on_every_mesh(name, axes, meshes, library):
    arguments = [PROGRAM, f"{name}:ring", f"{axes}/layers=1", "layout", "1", "exact", *meshes]
    run = on_ranks(4, arguments, library, timeout=300)
    assert run.returncode == 0, run.stdout + run.stderr
    lines = [line.split() for line in run.stdout.splitlines()]
    assert [line[0] for line in lines] == meshes and len({line[1] for line in lines}) == 1
    assert max(float(line[2]) for line in lines) < 2.0**-20  # 8 operations of float32 on the largest gradient
