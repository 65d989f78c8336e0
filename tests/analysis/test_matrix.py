"""The matrix of verdicts: results per group and rank count."""

import pytest

from analysis.load.frames import load
from analysis.matrix import ALL, matrix
from analysis.verdict import judge
from tests.analysis.synthetic import flip_bit, write_run


def cells(root):
    """{(guarantee, ranks or ALL): (distinct, runs, verdict)} of all runs below `root`."""
    frames = load([root])
    table = matrix(frames, judge(frames))
    return {(row.guarantee, row.size): (row.distinct, row.runs, row.verdict) for row in table.itertuples()}


def flipped(block, only=None):
    def change(repeat, step, field):
        if only is None or step == only:
            flip_bit(field, block)

    return change


def test_without_a_promise_every_rank_count_is_judged_alone_and_the_total_not_at_all(tmp_path):
    for i in range(3):
        write_run(tmp_path / f"two-{i}", size=2, change=flipped(i))
        write_run(tmp_path / f"three-{i}", size=3)
    write_run(tmp_path / "four", size=4)
    assert cells(tmp_path) == {
        ("none", 2): (3, 3, "differs"),
        ("none", 3): (1, 3, "no difference seen"),
        ("none", 4): (1, 1, "not tested"),
        ("none", ALL): (4, 7, ""),
    }


def test_results_that_change_with_the_rank_count_break_layout_though_every_rank_count_holds(tmp_path):
    for i in range(2):
        write_run(tmp_path / f"one-{i}", size=1, guarantee="layout")
        write_run(tmp_path / f"two-{i}", size=2, guarantee="layout", change=flipped(3))
        write_run(tmp_path / f"run-one-{i}", size=1, guarantee="run")
        write_run(tmp_path / f"run-two-{i}", size=2, guarantee="run", change=flipped(3))
    assert cells(tmp_path) == {
        ("layout", 1): (1, 2, "holds"),
        ("layout", 2): (1, 2, "holds"),
        ("layout", ALL): (2, 4, "BROKEN"),
        ("run", 1): (1, 2, "holds"),
        ("run", 2): (1, 2, "holds"),
        ("run", ALL): (2, 4, ""),
    }


def test_a_difference_on_the_way_breaks_the_rank_count_that_has_it_and_the_total(tmp_path):
    write_run(tmp_path / "a", size=1, guarantee="layout")
    write_run(tmp_path / "b", size=1, guarantee="layout")
    write_run(tmp_path / "c", size=2, guarantee="layout")
    write_run(tmp_path / "d", size=2, guarantee="layout", change=flipped(3, only=2))
    assert cells(tmp_path) == {
        ("layout", 1): (1, 2, "holds"),
        ("layout", 2): (1, 2, "BROKEN"),
        ("layout", ALL): (1, 4, "BROKEN"),
    }


def test_incomplete_runs_are_in_no_cell_and_the_bound_is_that_of_as_many_runs(tmp_path):
    for i in range(4):
        write_run(tmp_path / f"r{i}", size=1, stop={0: 2} if i == 3 else None)
    frames = load([tmp_path])
    row = matrix(frames, judge(frames)).iloc[0]
    assert row["runs"] == 3
    assert row["bound"] == pytest.approx(1 - 0.05 ** (1 / 3))
