"""Groups and the verdict: what is promised, whether it is kept, and the one line that says so."""

import json

import pandas as pd
import pytest

from analysis.groups import grouped, problem_names
from analysis.load.frames import load
from analysis.verdict import BROKEN, DIFFERS, HOLDS, SAME, UNTESTED, clause, judge, sentence
from miniapps.trace import Tracer
from tests.analysis.synthetic import CONFIG, attributes, flip_bit, region, write_run


def flip(block, at=2, lasting=True):
    def change(repeat, step, field):
        if step == at or (lasting and step > at):
            flip_bit(field, block)

    return change


def only(frames):
    (group,) = judge(frames)
    return group


def cells(frames):
    """{cell: its runs}"""
    return grouped(frames.runs).groupby("cell")["run"].agg(list).to_dict()


def test_the_verdict_of_the_two_groups_of_the_demonstration(tmp_path):
    for i in range(3):
        write_run(tmp_path / f"none-{i}", size=4, change=flip(3 + i))
    for size in (1, 2, 4, 4):
        name = f"layout-{size}-{len(list(tmp_path.iterdir()))}"
        write_run(tmp_path / name, size=size, guarantee="layout", ordering="exact")
    frames = load([tmp_path])
    groups = judge(frames)
    assert sentence(groups, frames) == (
        "2 groups: coupled none/arrival: 3 of 3 runs differ, first at step 2, vorticity, block 3; "
        "coupled layout/exact: 4 runs on 1, 2, 4 ranks: one hash (p < 53 % at 95 %)."
    )
    assert [group.verdict for group in groups] == [DIFFERS, HOLDS]
    assert groups[0].state == "" and len(groups[1].state) == 32


@pytest.mark.parametrize("guarantee", ["layout", "exact"])
def test_one_rank_count_that_differs_breaks_the_promise_of_layout(tmp_path, guarantee):
    for size in (1, 2, 3):
        write_run(
            tmp_path / f"on{size}", size=size, guarantee=guarantee, change=flip(7) if size == 3 else None
        )
    group = only(load([tmp_path]))
    assert group.verdict == BROKEN
    assert clause(group) == (
        "BROKEN: 2 distinct results in 3 runs on 1, 2, 3 ranks, first at step 2, vorticity, block 7"
    )


def test_a_broken_promise_comes_first_in_the_sentence(tmp_path):
    write_run(tmp_path / "a1")
    write_run(tmp_path / "a2")
    write_run(tmp_path / "b1", guarantee="run", ordering="ring")
    write_run(tmp_path / "b2", guarantee="run", ordering="ring", change=flip(0))
    frames = load([tmp_path])
    assert sentence(judge(frames), frames).startswith(
        "2 groups: coupled run/ring: BROKEN: 2 of 2 runs differ"
    )


def test_run_is_judged_at_each_rank_count_apart(tmp_path):
    for size in (1, 2):
        for name in "ab":
            change = flip(size)  # another result on another rank count, the same on every repeat
            write_run(tmp_path / f"{name}{size}", size=size, guarantee="run", ordering="ring", change=change)
    group = only(load([tmp_path]))
    assert group.verdict == HOLDS and group.distinct == 2
    assert clause(group) == (
        "4 runs on 1, 2 ranks: one hash per rank count (p < 53 % at 95 %, mean over rank counts)"
    )
    write_run(tmp_path / "c2", size=2, guarantee="run", ordering="ring", change=flip(9))
    group = only(load([tmp_path]))
    assert group.verdict == BROKEN
    assert clause(group).startswith("BROKEN: 2 distinct results in 3 runs on 2 ranks, first at step 2")


def test_no_difference_without_a_promise_comes_with_its_power(tmp_path):
    for name in "abc":
        write_run(tmp_path / name)
    group = only(load([tmp_path]))
    assert group.verdict == SAME
    assert clause(group) == (
        "3 runs on 2 ranks: one hash (0 of 3 differ: p < 63 % at 95 %; 299 runs would bound 1 %)"
    )


def test_one_run_alone_says_that_nothing_can_be_concluded(tmp_path):
    write_run(tmp_path / "a", guarantee="layout", ordering="exact")
    group = only(load([tmp_path]))
    assert group.verdict == UNTESTED
    assert clause(group) == "1 run on 2 ranks: nothing to compare with"


def test_the_earliest_divergence_of_any_run_is_the_one_named(tmp_path):
    for name, block, step in (("b", 1, 4), ("c", 9, 2), ("d", 5, 2), ("e", 0, 3)):
        write_run(tmp_path / name, change=flip(block, at=step))
    write_run(tmp_path / "a")
    assert clause(only(load([tmp_path]))) == "5 of 5 runs differ, first at step 2, vorticity, block 5"


def test_repeats_of_one_launch_are_runs(tmp_path):
    write_run(tmp_path / "a", repeats=3, change=lambda repeat, step, field: flip_bit(field, repeat))
    assert clause(only(load([tmp_path]))) == "3 of 3 runs differ, first at step 0, vorticity, block 0"


def test_a_difference_on_the_way_counts_though_the_end_is_equal(tmp_path):
    write_run(tmp_path / "a", guarantee="run")
    write_run(tmp_path / "b", guarantee="run", change=flip(4, lasting=False))
    group = only(load([tmp_path]))
    assert group.verdict == BROKEN and group.distinct == 1
    assert "2 runs end in one result but differ on the way, first at step 2" in clause(group)


def test_incomplete_runs_are_counted_but_not_judged(tmp_path):
    write_run(tmp_path / "a", guarantee="layout")
    write_run(tmp_path / "b", guarantee="layout", change=flip(1), stop={0: 4}, result=False)
    group = only(load([tmp_path]))
    assert (group.runs, group.incomplete, group.verdict) == (1, 1, UNTESTED)
    write_run(tmp_path / "c", guarantee="layout")
    assert only(load([tmp_path])).verdict == HOLDS


def test_only_incomplete_runs_are_no_result(tmp_path):
    write_run(tmp_path / "b", stop={0: 4}, result=False)
    frames = load([tmp_path])
    assert sentence(judge(frames), frames) == "1 group: coupled none/arrival: no complete run (1 incomplete)."


def test_runs_that_recorded_nothing_are_not_called_equal(tmp_path):
    for name in "ab":
        (tmp_path / name).mkdir()
        with Tracer(
            tmp_path / name / "rank-00000.h5", attributes(0, 1, "layout", "exact", run_id=name)
        ) as tracer:
            tracer.at(0, 0)
            tracer.event(region(tracer, "step"), tracer.clock())
    group = only(load([tmp_path]))
    assert group.verdict == UNTESTED
    assert clause(group) == "2 runs recorded nothing in common to compare"


def test_what_was_left_out_limits_the_verdict(tmp_path):
    write_run(tmp_path / "a")
    write_run(tmp_path / "b")
    bad = write_run(tmp_path / "c", size=1)
    (bad / "rank-00000.h5").write_text("")
    frames = load([tmp_path])
    assert sentence(judge(frames), frames).endswith("; 1 run left out.")


def test_rank_counts_are_those_of_runs_that_were_compared(tmp_path):
    for name, size in (("a", 1), ("b", 2)):
        write_run(tmp_path / name, size=size, guarantee="layout", ordering="exact")
    write_run(tmp_path / "c", size=3, guarantee="layout", ordering="exact", stop={0: 2})
    (group,) = judge(load([tmp_path]))
    assert (group.sizes, group.runs, group.incomplete, group.verdict) == ((1, 2), 2, 1, HOLDS)


def test_damaged_files_limit_the_verdict(tmp_path):
    for name in "abc":
        write_run(tmp_path / name)
    (tmp_path / "c" / "rank-00001.h5").write_text("")
    frames = load([tmp_path])
    assert sentence(judge(frames), frames).endswith("; 1 run with damaged or missing files.")


def test_no_usable_run_at_all(tmp_path):
    bad = write_run(tmp_path / "c", size=1)
    (bad / "rank-00000.h5").write_text("")
    frames = load([tmp_path])
    assert sentence(judge(frames), frames) == "No usable run: nothing can be said."


def test_layout_spans_rank_counts_ownership_and_threads_and_run_does_not(tmp_path):
    for guarantee in ("run", "layout"):
        write_run(tmp_path / guarantee / "a", guarantee=guarantee, size=1)
        write_run(tmp_path / guarantee / "b", guarantee=guarantee, size=2)
        write_run(
            tmp_path / guarantee / "c", guarantee=guarantee, size=2, shuffle=3, method={"run.threads": 4}
        )
    groups = cells(load([tmp_path]))
    assert groups.pop("coupled layout/arrival") == ["layout/a", "layout/b", "layout/c"]
    assert sorted(groups.values()) == [["run/a"], ["run/b"], ["run/c"]]


def test_groups_that_share_guarantee_and_ordering_are_told_apart_by_their_method(tmp_path):
    write_run(tmp_path / "a")
    write_run(tmp_path / "b", method={"run.device": "cuda"})
    write_run(tmp_path / "c", method={"run.fault": ["flip@step=2,block=3"]})
    labels = grouped(load([tmp_path]).runs).set_index("run")["group"].to_dict()
    assert labels == {
        "a": "coupled none/arrival (device=cpu)",
        "b": "coupled none/arrival (device=cuda)",
        "c": "coupled none/arrival (device=cpu, fault=flip@step=2,block=3)",
    }


def test_problems_are_never_mixed_and_are_named_by_what_differs(tmp_path):
    other = json.loads(json.dumps(CONFIG))
    other["grid"]["n"] = 256
    other["run"]["out"] = "elsewhere"
    write_run(tmp_path / "a")
    write_run(tmp_path / "b", problem="p1", config=other, change=flip(1))
    frames = load([tmp_path])
    assert set(cells(frames)) == {
        "coupled none/arrival (n=128) on 2 ranks",
        "coupled none/arrival (n=256) on 2 ranks",
    }
    assert {group.verdict for group in judge(frames)} == {UNTESTED}


def test_several_orderings_of_one_run_read_as_one_label(tmp_path):
    write_run(tmp_path / "a", guarantee="layout", ordering="exact,fixed-point")
    assert only(load([tmp_path])).label == "coupled layout/exact+fixed-point"


def test_grouping_keeps_every_row_and_the_callers_frame(tmp_path):
    write_run(tmp_path / "a", repeats=2)
    write_run(tmp_path / "b", guarantee="exact")
    runs = load([tmp_path]).runs
    before = runs.copy()
    table = grouped(runs)
    pd.testing.assert_frame_equal(runs, before)
    assert sorted(zip(table["run"], table["repeat"], strict=True)) == [("a", 0), ("a", 1), ("b", 0)]


def test_what_differs_within_a_problem_or_by_method_does_not_name_it(tmp_path):
    def config(n, samples, split):
        return {"run": {"seed": 1}, "grid": {"n": n}, "method": {"samples": samples, "split": split}}

    runs = [("a", "p0", 64, 5, "x"), ("b", "p0", 64, 9, "x"), ("c", "p1", 128, 7, "y")]
    for name, problem, n, samples, split in runs:
        write_run(
            tmp_path / name, problem=problem, config=config(n, samples, split), method={"method.split": split}
        )
    names = problem_names(load([tmp_path]).runs)
    assert names == {"p0": "n=64", "p1": "n=128"}
