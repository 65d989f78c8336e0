"""What ran on many ranks, executed again on one, or on another number of them."""

import re

import pytest

from miniapps.trace.checked import check
from miniapps.trace.heads import checkpoint_file
from tests.launch import run_python
from tests.ranks import on_ranks

FLOW = ["-m", "miniapps.coupled", "--closure", "none", "--steps", "4", "--checkpoint-every", "2",
        "--set", "grid.nx=32", "--set", "grid.ny=32", "--set", "grid.bx=8", "--set", "grid.by=8"]  # fmt: skip
SOLVE = ["-m", "miniapps.solver", "--nx", "8", "--ny", "8", "--nz", "8", "--right-side", "random",
         "--set", "grid.bx=4", "--set", "grid.by=4", "--set", "grid.bz=4", "--checkpoint-every", "6"]  # fmt: skip
GPT = ["-m", "miniapps.mesh", "--model", "gpt", "--data", "text", "--batch", "8", "--set", "training.micro=2",
       "--set", "model.tokens=16", "--set", "model.hidden=16", "--set", "model.layers=1", "--steps", "3",
       "--checkpoint-every", "2"]  # fmt: skip
MESH = ["--recipe", "dp+tp", "--mesh", "data=2,model=2"]


def ran(n, argv, out, *more, library="mpich"):
    """A run on n ranks under `layout`; its heads by step."""
    run = on_ranks(
        n, [*argv, "--guarantee", "layout", "--quiet", *more, "--out", str(out)], library, timeout=240
    )
    assert run.returncode == 0, run.stdout + run.stderr
    checked = check(out)
    (chain,) = checked.chains
    assert not checked.broken and not checked.contradictions
    heads = {mark.step: mark.head for mark in chain.marks}
    assert heads == {
        int(s): h for s, h in re.findall(r"^CHAIN step=(\d+) head=(\w+)$", run.stdout, re.MULTILINE)
    }
    return heads


def verified(n, run, *options):
    """The lines of `verify` on n ranks, and its exit code."""
    argv = ["-m", "miniapps", "verify", str(run), "--fraction", "1", *options]
    if n == 1:  # one of several ranks that are there is no process of its own
        done = run_python(argv, timeout=240, cwd=run.parent)
    else:
        done = on_ranks(n, argv, timeout=240, cwd=run.parent)
    assert done.returncode in (0, 3), done.stderr
    return done.stdout.splitlines(), done.returncode


@pytest.mark.parametrize(
    "argv",
    [
        FLOW,
        [*FLOW, "--checkpoint-bits", "20"],
        pytest.param(SOLVE, marks=pytest.mark.slow),
        [*SOLVE, "--method", "cg-pipelined", "--preconditioner", "jacobi"],
    ],
)
def test_heads_are_those_of_any_ranks_and_parts_agree_on_one(tmp_path, argv):
    heads = ran(3, argv, tmp_path / "three", "--shuffle-blocks", "5")
    assert ran(2, argv, tmp_path / "two", library="openmpi") == heads
    lines, code = verified(1, tmp_path / "three")
    whole = f"VERIFIED: {len(heads)} of {len(heads)} intervals"
    assert code == 0 and any(line.startswith(whole) for line in lines)


def test_a_solve_continues_on_other_ranks(tmp_path):
    heads = ran(3, SOLVE, tmp_path / "straight")
    rest = ran(2, SOLVE, tmp_path / "rest", "--continue", str(tmp_path / "straight" / checkpoint_file(0, 6)))
    assert rest == {step: head for step, head in heads.items() if step > 6} and rest


def test_a_fault_on_three_ranks_is_named_on_two(tmp_path):
    on_ranks(3, [*FLOW, "--guarantee", "layout", "--quiet", "--fault", "bitflip@step=3,block=5,bit=7",
                 "--out", str(tmp_path / "run")])  # fmt: skip
    lines, code = verified(2, tmp_path / "run")
    wrong = [line for line in lines if line.startswith("NOT VERIFIED")]
    assert code == 3 and len(wrong) == 1
    assert wrong[0].startswith("NOT VERIFIED: step 3, vorticity, block 5: other bits (from step 2 to step 4")


@pytest.mark.slow
def test_a_training_over_a_mesh_agrees_on_one_rank_and_on_another_mesh(tmp_path):
    heads = ran(4, GPT, tmp_path / "run", *MESH)
    assert verified(1, tmp_path / "run")[1] == 0
    lines, code = verified(2, tmp_path / "run", "--mesh", "data=1,model=2", "--quiet")
    assert code == 0 and lines == [
        f"VERIFIED: {len(heads)} of {len(heads)} intervals of {tmp_path / 'run'} agree in every bit"
    ]


@pytest.mark.slow
def test_64_ranks_are_verified_on_one(tmp_path):
    ran(64, [*FLOW, "--set", "grid.nx=64", "--set", "grid.ny=64"], tmp_path / "run")
    lines, code = verified(1, tmp_path / "run")
    assert code == 0 and lines[0].startswith("coupled, --guarantee layout, 64 ranks: 3 of 3 intervals")
