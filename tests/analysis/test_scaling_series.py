"""Which runs are one scaling, and their speedups: times are known."""

import pytest

from analysis.groups import grouped
from analysis.load.frames import load
from analysis.studies.scaling.series import STRONG, WEAK, scaled, series, speedups
from tests.analysis.synthetic import METHOD, write_timed


def timed(out, ms, size, **more):
    return write_timed(out, lambda rank, step: [("step", ms, [])], size=size, **more)


def config(**grid):
    return {"run": {"seed": 1}, "grid": {"nx": 64, "ny": 64, "bx": 16} | grid, "time": {"steps": 10}}


def of(tmp_path):
    frames = load([tmp_path])
    points, notes = series(grouped(frames.runs), frames.excluded)
    return points, notes


def test_strong_speedup_is_over_the_median_of_the_base(tmp_path):
    for i, ms in enumerate((90, 100, 140)):
        timed(tmp_path / f"one-{i}", ms, 1)
    timed(tmp_path / "four", 50, 4)
    points, notes = of(tmp_path)
    four = points[points["size"] == 4].iloc[0]
    assert (four["kind"], four["base"], four["speedup"], four["efficiency"]) == (STRONG, 1, 2, 0.5)
    assert points["speedup"].tolist()[:3] == pytest.approx([100 / 90, 1, 100 / 140])
    assert notes == []


def test_a_base_of_several_ranks_counts_as_perfectly_used(tmp_path):
    timed(tmp_path / "two", 100, 2)
    timed(tmp_path / "eight", 50, 8)
    table = speedups(of(tmp_path)[0]).set_index("size")
    assert table.loc[8, ["base", "speedup", "efficiency"]].tolist() == [2, 4, 0.5]
    assert table.loc[2, ["speedup", "efficiency"]].tolist() == [2, 1]


def test_runs_of_one_problem_on_several_rank_counts_are_strong(tmp_path):
    timed(tmp_path / "a", 100, 1)
    timed(tmp_path / "b", 100, 2)
    timed(tmp_path / "c", 100, 2, problem="other", config=config(nx=32))
    points = scaled(of(tmp_path)[0])
    assert points["run"].tolist() == ["a", "b"]


@pytest.mark.parametrize(
    "other",
    [
        {"guarantee": "layout"},
        {"ordering": "ring"},
        {"method": METHOD | {"run.threads": 2}},
        {"method": METHOD | {"solve.preconditioner": "jacobi"}},
        {"config": config() | {"record": {"every": 10}}},
    ],
)
def test_runs_that_differ_in_what_costs_time_are_no_series(tmp_path, other):
    timed(tmp_path / "a", 100, 1, config=config())
    timed(tmp_path / "b", 60, 2, **{"config": config()} | other)
    assert scaled(of(tmp_path)[0]).empty


def test_constant_work_per_rank_is_weak(tmp_path):
    timed(tmp_path / "a", 100, 1, problem="p1", config=config())
    timed(tmp_path / "b", 125, 2, problem="p2", config=config(nx=128))
    timed(tmp_path / "c", 200, 4, problem="p4", config=config(nx=128, ny=128))
    points = of(tmp_path)[0]
    assert set(points["kind"]) == {WEAK}
    assert points["efficiency"].tolist() == pytest.approx([1, 0.8, 0.5])
    assert points["speedup"].tolist() == pytest.approx([1, 1.6, 2])
    assert set(points["series"]) == {"coupled none/arrival (weak, 4096 per rank)"}


def test_work_may_differ_by_1_percent_and_not_more(tmp_path):
    for name, size, nx in (("a", 1, 1000), ("b", 2, 2019), ("c", 4, 4041)):
        timed(tmp_path / name, 100, size, problem=name, config=config(nx=nx))
    points = of(tmp_path)[0]
    assert points.loc[points["kind"] == WEAK, "run"].tolist() == ["a", "b"]  # c: 1.025 % more than a


def test_other_options_must_not_grow_with_the_ranks(tmp_path):
    timed(tmp_path / "a", 100, 1, problem="p1", config=config(bx=8))
    timed(tmp_path / "b", 100, 2, problem="p2", config=config(nx=128, bx=16))
    assert set(of(tmp_path)[0]["kind"]) == {STRONG}


def test_every_size_of_a_list_grows(tmp_path):
    def sizes(*n):
        return {"run": {"seed": 1}, "problem": {"sizes": n, "arrays": 2}}

    timed(tmp_path / "a", 100, 1, problem="p1", config=sizes(10, 1000))
    timed(tmp_path / "b", 100, 2, problem="p2", config=sizes(20, 2000))
    timed(tmp_path / "c", 100, 4, problem="p4", config=sizes(10, 4000))
    points = of(tmp_path)[0]
    assert points.loc[points["kind"] == WEAK, "run"].tolist() == ["a", "b"]


def test_where_files_lie_tells_no_runs_apart(tmp_path):
    one, two = ({**config(), "problem": {"matrix": f"{place}/m.mtx", "contents": "h"}} for place in "ab")
    timed(tmp_path / "a", 100, 1, config=one)
    timed(tmp_path / "b", 100, 2, config=two)
    assert len(scaled(of(tmp_path)[0])) == 2


def test_what_cannot_be_used_is_said(tmp_path):
    timed(tmp_path / "a", 100, 1)
    timed(tmp_path / "b", 100, 2, method=METHOD | {"run.fault": ["nan@step=1"]})
    timed(tmp_path / "c", 100, 2)
    (tmp_path / "c" / "rank-00001.h5").unlink()
    points, notes = of(tmp_path)
    assert points["run"].tolist() == ["a"]
    assert notes == [
        "1 run left out: each ended early, or lacks ranks",
        "1 run left out: each has an injected fault",
    ]


def test_runs_of_a_clock_that_jumped_are_left_out(tmp_path):
    timed(tmp_path / "a", 100, 1)
    write_timed(tmp_path / "b", lambda rank, step: [("step", 100, []), ("back", -5, [])], size=1)
    points, notes = of(tmp_path)
    assert points["run"].tolist() == ["a"]
    assert "clock jumped" in notes[0]


def test_intervals_need_six_runs_of_both(tmp_path):
    for i in range(6):
        timed(tmp_path / f"a{i}", 100 + i, 1)
        timed(tmp_path / f"b{i}", 50 + i, 2)
    timed(tmp_path / "c", 30, 4)
    table = speedups(of(tmp_path)[0]).set_index("size")
    assert table.loc[2, "low_s"] == pytest.approx(0.050) and table.loc[2, "high_s"] == pytest.approx(0.055)
    assert (
        100 / 55
        <= table.loc[2, "speedup_low"]
        < table.loc[2, "speedup"]
        < table.loc[2, "speedup_high"]
        <= 105 / 50
    )
    assert table.loc[2, "efficiency_low"] == table.loc[2, "speedup_low"] / 2
    assert table.loc[[1, 4], "speedup_low"].isna().all()
