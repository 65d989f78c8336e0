"""Wall time: known times in, the same times out."""

import numpy as np
import pandas as pd
import pytest

from analysis.load.frames import load
from analysis.page.sections import Table, filled
from analysis.page.tables import region_table
from analysis.regions import cost_summary, costs, regions, summary
from tests.analysis.synthetic import region, write_run, write_timed


def tree(rank, step):
    """Rank 1 waits in the all-reduce for rank 0, which has more to do."""
    halo = [("halo", 2, [])]
    return [
        (
            "step",
            1,
            [("poisson", 10 if rank == 0 else 6, [("allreduce", 1 if rank == 0 else 5, []), *halo]), *halo],
        )
    ]


@pytest.fixture
def frames(tmp_path):
    return load([write_timed(tmp_path / "r", tree, steps=3)])


def test_inclusive_and_exclusive_times_are_means_over_ranks(frames):
    table = regions(frames).set_index("name")
    per_step = {"halo": 4, "allreduce": 3, "poisson": (10 + 6) / 2 + 3 + 2, "step": 1 + 13 + 2}
    own = {"halo": 4, "allreduce": 3, "poisson": 8, "step": 1}
    assert table["total_s"].to_dict() == pytest.approx({name: 3 * ms / 1000 for name, ms in per_step.items()})
    assert table["exclusive_s"].to_dict() == pytest.approx({name: 3 * ms / 1000 for name, ms in own.items()})
    assert table["calls"].to_dict() == {"halo": 12, "allreduce": 6, "poisson": 6, "step": 6}


def test_exclusive_times_add_up_to_the_wall_time(frames):
    table = regions(frames)
    assert table["exclusive_s"].sum() == pytest.approx(frames.runs["wall_s"].item())
    assert table["share"].sum() == pytest.approx(1)


def test_imbalance_is_the_slowest_rank_over_the_mean(frames):
    table = regions(frames).set_index("name")
    assert table.loc["allreduce", "imbalance"] == pytest.approx(5 / 3 - 1)
    assert table.loc["allreduce", "max_s"] == pytest.approx(0.015)
    assert table.loc["step", "imbalance"] == pytest.approx(0)


def test_a_rank_that_never_enters_a_region_counts_as_zero(tmp_path):
    frames = load([write_timed(tmp_path / "r", lambda rank, step: [("io", 6, [])] * (rank == 0), size=3)])
    table = regions(frames).set_index("name")
    assert table.loc["io", "total_s"] == pytest.approx(0.002)
    assert table.loc["io", "imbalance"] == pytest.approx(2)


def test_summary_is_the_median_over_complete_runs_longest_first(tmp_path):
    for i, ms in enumerate((4, 9, 5)):
        write_timed(tmp_path / f"r{i}", lambda rank, step, ms=ms: [("a", 1, []), ("b", ms, [])], size=1)
    table = summary(regions(load([tmp_path])))
    assert table["name"].tolist() == ["b", "a"]
    assert table["total_s"].tolist() == pytest.approx([0.005, 0.001])
    assert table["runs"].tolist() == [3, 3]


def timed(out, ms, size=2, guarantee="none", ordering="native", **more):
    write_timed(
        out, lambda rank, step: [("step", ms, [])], size=size, guarantee=guarantee, ordering=ordering, **more
    )


def test_cost_is_relative_to_the_fastest_group_of_the_weakest_guarantee(tmp_path):
    for i, ms in enumerate((10, 11, 30)):
        timed(tmp_path / f"native{i}", ms)
    timed(tmp_path / "arrival", 20, ordering="arrival")
    for i, ms in enumerate((22, 33)):
        timed(tmp_path / f"exact{i}", ms, guarantee="exact", ordering="exact")
    points = costs(load([tmp_path]))
    assert set(points["base"]) == {"coupled none/native"}
    table = cost_summary(points).set_index("group")
    assert table["relative"].to_dict() == pytest.approx(
        {"coupled none/native": 1, "coupled none/arrival": 20 / 11, "coupled exact/exact": 2.5}
    )
    assert table.loc["coupled exact/exact", ["runs", "base_runs"]].tolist() == [2, 3]
    assert table.loc["coupled exact/exact", ["lowest", "highest"]].tolist() == pytest.approx([2, 3])


def test_where_nothing_is_guaranteed_nothing_has_a_price(tmp_path):
    timed(tmp_path / "library", 10)
    timed(tmp_path / "arrival", 20, ordering="arrival")
    assert costs(load([tmp_path])).empty
    timed(tmp_path / "layout", 20, guarantee="layout", ordering="exact")
    assert not costs(load([tmp_path])).empty


def test_only_runs_of_one_problem_rank_count_and_device_are_priced_together(tmp_path):
    timed(tmp_path / "a", 10)
    timed(tmp_path / "b", 20, size=4, guarantee="layout")
    timed(tmp_path / "c", 20, problem="other", guarantee="layout")
    timed(tmp_path / "d", 20, guarantee="layout", method={"run.device": "cuda"})
    timed(tmp_path / "e", 20, guarantee="layout", method={"run.device": "cpu", "run.fault": ["nan@step=1"]})
    assert costs(load([tmp_path])).empty


def test_without_times_there_are_no_times(tmp_path):
    from miniapps.trace import Tracer
    from tests.analysis.synthetic import attributes

    (tmp_path / "r").mkdir()
    given = attributes(0, 1, "none", "native", run_id="r")
    with Tracer(tmp_path / "r" / "rank-00000.h5", given, level="off") as tracer:
        tracer.at(0, 0)
        tracer.event(region(tracer, "step"), tracer.clock())
        tracer.value("energy", 1.0)
    frames = load([tmp_path])
    assert np.isnan(frames.runs["wall_s"].item())
    assert regions(frames).empty and summary(regions(frames)).empty and costs(frames).empty


def test_incomplete_runs_have_no_price(tmp_path):
    write_run(tmp_path / "a", guarantee="none")
    write_run(tmp_path / "b", guarantee="layout", stop={0: 3}, result=False)
    assert costs(load([tmp_path])).empty


def test_rank_counts_are_columns_of_the_table_of_regions():
    rows = [
        (group, size, name, 1200 * size, total, own, 0.1 * size - 0.1, 0.5, 4)
        for group in ("a", "b")
        for size in (1, 2, 4)
        for name, total, own in (("step", 3.0, 0.5), ("halo", 1.5, 1.5))
        if (group, size, name) != ("b", 4, "halo")
    ]
    columns = ["group", "size", "name", "calls", "total_s", "exclusive_s", "imbalance", "share", "runs"]
    table = filled(region_table(pd.DataFrame(rows, columns=columns)))
    assert table.by == "group"
    assert table.shown == (
        "region", "calls a rank", "s inclusive on 4", "s exclusive on 1", "s exclusive on 2", "s exclusive on 4",
        "share on 1", "share on 4", "imbalance on 4",
    )  # fmt: skip
    assert table.headings == [
        "region", "calls a rank", "s inclusive on 4", "s exclusive on 1", "on 2", "on 4", "share on 1", "on 4",
        "imbalance on 4",
    ]  # fmt: skip
    assert table.parts == [
        ("a", [("step", "1,200", "3", "0.5", "0.5", "0.5", "50.0%", "50.0%", "30.0%"),
               ("halo", "1,200", "", "1.5", "1.5", "1.5", "50.0%", "50.0%", "30.0%")]),
        ("b", [("step", "1,200", "3", "0.5", "0.5", "0.5", "50.0%", "50.0%", "30.0%"),
               ("halo", "1,200", "", "1.5", "1.5", "", "50.0%", "", "")]),
    ]  # fmt: skip


def test_columns_without_anything_are_left_out_but_the_first():
    table = Table(("a", "b", "c"), [("", "", "1"), ("", "", "2")], numbers=("b", "c"))
    assert (filled(table).columns, filled(table).rows) == (("a", "c"), [("", "1"), ("", "2")])
    assert filled(Table(("a", "b"), [])).columns == ("a", "b")
    assert filled(Table(("a", "b"), [("", 0)])).columns == ("a", "b")  # a zero is something
