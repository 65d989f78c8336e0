"""A program of a user's that records itself, read by the analysis, which knows nothing of it."""

import json

import pytest

from analysis.__main__ import main
from analysis.clauses import clause
from analysis.divergence.compare import compare
from analysis.load.frames import load
from analysis.verdict import judge
from miniapps.untrusted.result import read_result
from tests.launch import ROOT, run_mpi
from tests.mpi.sectioned import PROGRAMS
from tests.ranks import on_ranks

ARRIVALS = """
import hashlib, sys, time
import numpy as np
from mpi4py import MPI
import fpna

world = MPI.COMM_WORLD
comm = fpna.wrap(world, "none", ordering="arrival", replay=sys.argv[2] if len(sys.argv) > 2 else None)
x, total, digest = np.empty(5), np.empty(5), hashlib.sha256()
with fpna.record(sys.argv[1], comm) as r:
    for step in range(20):
        r.step(step)
        time.sleep(0.002 * np.random.default_rng([step, world.rank, len(sys.argv)]).random())
        x[:] = np.random.default_rng([step, world.rank]).standard_normal(5) * 10.0 ** (5 * world.rank)
        comm.Allreduce(x, total)
        digest.update(total.tobytes())
if world.rank == 0:
    print(digest.hexdigest())
comm.release()
"""
EXAMPLES = ROOT / "docs" / "examples"


def recorded(tmp_path, name, ranks, *arguments, library="mpich", code=0):
    # Ranks of other tests may have loaded libraries, which are part of the environment.
    run = run_mpi(ranks, [PROGRAMS / "recorded.py", tmp_path / name, *arguments], library)
    assert run.returncode == code, run.stderr
    return tmp_path / name


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    folder = tmp_path_factory.mktemp("recorded")
    for ranks in (1, 2, 3):
        recorded(folder, f"layout{ranks}", ranks)
        recorded(folder, f"none{ranks}", ranks, "none")
    return folder


def first(a, b):
    frames = load([a, b])
    names = frames.runs["run"].tolist()
    return compare(frames, *((next(name for name in names if each.name in name), 0) for each in (a, b))).first


def test_a_promise_holds_on_any_number_of_ranks(runs):
    frames = load([runs / f"layout{ranks}" for ranks in (1, 2, 3)])
    (group,) = judge(frames)
    assert (group.verdict, group.runs, group.incomplete, group.guarantee) == ("holds", 3, 0, "layout"), (
        clause(group)
    )
    assert group.sizes == (1, 2, 3)
    for ranks in (1, 2, 3):
        result = read_result(runs / f"layout{ranks}")
        assert (result.status, result.size, len(result.traces)) == ("done", ranks, ranks)
        reductions = json.loads((runs / f"layout{ranks}" / "result.json").read_text())["reductions"]
        assert {name: facts["calls"] for name, facts in reductions.items()} == {
            "float64x1": 5, "max.float64x1.slot1": 2, "max.float64x1.slot2": 1, "max.float64x1.slot3": 1,
            "max.float64x1.slot4": 1,
        }  # fmt: skip


def test_without_a_promise_the_sum_over_ranks_is_named(runs, capsys):
    point = first(runs / "none2", runs / "none3")
    assert point.name == "total:float64x1"
    assert main(["divergence", str(runs / "none2"), str(runs / "none3")]) == 3
    assert "cause          collective: float64x1" in capsys.readouterr().out


def test_a_changed_bit_is_found_where_it_was_changed(runs, tmp_path):
    changed = recorded(tmp_path, "changed", 3, "layout", "bit")
    point = first(runs / "layout2", changed)
    assert (point.step, point.block) == (3, 7)


def test_a_program_that_raises_leaves_what_it_recorded(tmp_path):
    early = recorded(tmp_path, "early", 2, "layout", "raise")
    frames = load([early])
    assert frames.runs["complete"].tolist() == [False]
    assert "ended early" in " ".join(frames.excluded["reason"])


def test_an_order_of_arrival_is_replayed(tmp_path):
    program = tmp_path / "arrive.py"
    program.write_text(ARRIVALS)
    states = []
    for name, replayed in (("first", ""), ("again", tmp_path / "first"), ("third", tmp_path / "again")):
        run = on_ranks(3, [program, tmp_path / name, *([replayed] if replayed else [])])
        assert run.returncode == 0, run.stderr
        states.append(run.stdout)
    assert states[0] == states[1] == states[2]
    run = run_mpi(2, [program, tmp_path / "fewer", tmp_path / "first"])
    assert run.returncode != 0
    assert "it was recorded on 3 ranks, but this run has 2" in run.stderr


def test_a_directory_in_use_is_refused_on_all_ranks(runs):
    program = "import sys, fpna\nwith fpna.record(sys.argv[1]): pass"
    run = run_mpi(2, ["-c", program, runs / "layout1"])
    assert run.returncode != 0
    assert run.stderr.count("and a run overwrites nothing") >= 1


def test_the_examples_differ_until_their_parts_are_contributions(tmp_path):
    printed, ranks = {}, 3
    for name in ("heat", "heat_wrapped", "heat_rows", "monte_carlo"):
        for size in (1, ranks):
            run = on_ranks(size, [EXAMPLES / f"{name}.py", tmp_path / f"{name}{size}"])
            assert run.returncode == 0, run.stderr
            printed[name, size] = run.stdout
            assert ("LayoutWarning" in run.stderr) == (name == "heat_wrapped" and size > 1)
    assert printed["heat_rows", 1] == printed["heat_rows", ranks]
    assert printed["heat", 1] != printed["heat", ranks]
    plain, promised = zip(*(printed["monte_carlo", size].splitlines() for size in (1, ranks)), strict=True)
    assert promised[0] == promised[1]
    assert len(plain) == 2
