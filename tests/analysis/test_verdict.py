"""Groups and the verdict: the guarantee, whether it holds, and its one line."""

import json
import shutil
from dataclasses import replace

import pandas as pd
import pytest

from analysis.attempts import repeated
from analysis.clauses import clause
from analysis.groups import grouped, problem_names, sums_in_words
from analysis.headline import badge, headline
from analysis.load.frames import load
from analysis.report.build import build
from analysis.verdict import BROKEN, DIFFERS, FAILED, HOLDS, OUTSIDE, SAME, UNTESTED, judge
from miniapps.trace import Tracer
from tests.analysis import stated
from tests.analysis.synthetic import CONFIG, METHOD, attributes, flip_bit, region, write_result, write_run


def flip(block, at=2, lasting=True):
    def change(repeat, step, field):
        if step == at or (lasting and step > at):
            flip_bit(field, block)

    return change


def only(frames):
    (group,) = judge(frames)
    return group


def said(frames):
    """Badge and sentence over all runs."""
    return str(headline(judge(frames), frames))


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
    assert said(frames) == (
        "DIFFERS (local kernel): The same computation gave 3 different results in 3 runs because a "
        "computation on one rank came out differently. With a guarantee 4 runs on 1, 2, 4 ranks gave the same result, "
        "to the last bit (compared: 222 fingerprints and values and the final state)."
    )
    differ, equal = map(clause, groups)
    assert differ.startswith("3 of 3 runs differ, first at step 2, vorticity, block 3; cause: local kernel (")
    assert equal == (
        "4 runs on 1, 2, 4 ranks gave the same bits in 222 fingerprints and values and the final state (a difference "
        "in up to 53 % of runs could have gone unseen, at 95 % confidence)"
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
    assert clause(group).startswith(
        "equal bits were promised, but 2 different results in 3 runs on 1, 2, 3 ranks, first at step 2, vorticity, "
        "block 7"
    )


def test_a_broken_promise_comes_first_in_the_sentence(tmp_path):
    write_run(tmp_path / "a1")
    write_run(tmp_path / "a2")
    write_run(tmp_path / "b1", guarantee="run", ordering="ring")
    write_run(tmp_path / "b2", guarantee="run", ordering="ring", change=flip(0))
    frames = load([tmp_path])
    assert said(frames).startswith(
        "BROKEN PROMISE (probably local kernel): A promise of equal results was broken. "
    )


def test_run_is_judged_at_each_rank_count_apart(tmp_path):
    for size in (1, 2):
        for name in "ab":
            change = flip(size)  # another result on another rank count, the same on every repeat
            write_run(tmp_path / f"{name}{size}", size=size, guarantee="run", ordering="ring", change=change)
    group = only(load([tmp_path]))
    assert group.verdict == HOLDS and group.distinct == 2
    assert clause(group).startswith(
        "4 runs on 1, 2 ranks gave the same bits wherever the number of ranks was the same in 222 fingerprints and "
        "values and the final state (a difference in up to 53 % of runs could have gone unseen, at 95 % confidence); "
        "2 different results on different numbers of ranks, "
        "between which nothing is promised, first at step 2, vorticity, block 1"
    )
    assert "within each number of ranks" in said(load([tmp_path]))
    write_run(tmp_path / "c2", size=2, guarantee="run", ordering="ring", change=flip(9))
    group = only(load([tmp_path]))
    assert group.verdict == BROKEN
    assert "2 different results in 3 runs on 2 ranks, first at step 2" in clause(group)


def test_no_difference_without_a_promise_comes_with_its_power(tmp_path):
    for name in "abc":
        write_run(tmp_path / name)
    group = only(load([tmp_path]))
    assert group.verdict == SAME
    assert clause(group) == (
        "3 runs on 2 ranks gave the same bits in 222 fingerprints and values and the final state (a difference in up "
        "to 63 % of runs could have gone unseen, at 95 % confidence)"
    )
    assert said(load([tmp_path])) == (
        "IDENTICAL: 3 runs on 2 ranks gave the same result, to the last bit (compared: 222 fingerprints and values and "
        "the final state)."
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
    assert clause(only(load([tmp_path]))).startswith(
        "5 of 5 runs differ, first at step 2, vorticity, block 5; "
    )


def test_repeats_of_one_launch_are_runs(tmp_path):
    write_run(tmp_path / "a", repeats=3, change=lambda repeat, step, field: flip_bit(field, repeat))
    assert clause(only(load([tmp_path]))).startswith(
        "3 of 3 runs differ, first at step 0, vorticity, block 0; "
    )


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
    assert clause(only(frames)) == "no complete run (1 incomplete)"
    assert said(frames).startswith("NOTHING TO COMPARE: ")


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
    assert said(frames).endswith("; 1 run left out.")


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
    assert said(frames).endswith("; 1 run with damaged or missing files.")


def test_no_usable_run_at_all(tmp_path):
    bad = write_run(tmp_path / "c", size=1)
    (bad / "rank-00000.h5").write_text("")
    frames = load([tmp_path])
    assert said(frames) == "NOTHING TO COMPARE: No run can be used, so there is no verdict; 1 run left out."


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
    write_run(tmp_path / "a", guarantee="layout", ordering="exact,ring")
    assert only(load([tmp_path])).label == "coupled layout/exact+ring"


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


def test_rank_counts_between_which_nothing_is_promised_are_compared_too(tmp_path):
    write_run(tmp_path / "a", size=2, ordering="library")
    write_run(tmp_path / "b", size=3, ordering="library", change=flip_all)
    group = only(load([tmp_path]))
    assert group.verdict == DIFFERS and {cell.verdict for cell in group.cells} == {UNTESTED}
    assert "The same computation gave 2 different results in 2 runs on 2, 3 ranks" in said(load([tmp_path]))
    summed = replace(group, cause=replace(group.cause, kind="collective"))
    assert (summed.why, badge(summed)) == ("number of ranks", "DIFFERS (number of ranks)")


def flip_all(repeat, step, field):
    if step >= 2:
        for block in range(len(field)):
            flip_bit(field, block)


CHECKS = [{"name": "energy", "passed": False, "detail": "gained 3", "repeat": 0}]


def test_a_run_that_failed_its_own_checks_comes_first_whatever_its_bits_are(tmp_path):
    for name in "ab":
        write_run(tmp_path / "broken" / name, guarantee="run", change=flip(3) if name == "b" else None)
        write_run(tmp_path / "failed" / name)
    write_result(tmp_path / "failed" / "b", checks=CHECKS)
    frames = load([tmp_path])
    assert [group.verdict for group in judge(frames)] == [FAILED, BROKEN]
    assert (
        said(frames) == "FAILED: 1 of 4 launches failed; failed/b: check energy (repeat 0) failed: gained 3."
    )
    failed = judge(frames)[0]
    assert failed.bits == SAME and clause(failed).startswith(
        "failed/b: check energy (repeat 0) failed: gained 3; 2 runs"
    )


def write_attempts(out, **last):
    """A campaign of three tasks, of which one crashed twice, once before it wrote a trace, before it got to its end."""
    write_run(out / "a")
    write_run(out / "failed" / "a.1", stop={0: 2, 1: 2})
    (out / "failed" / "a.2").mkdir()
    for name in ("a.1", "a.2"):
        write_result(out / "failed" / name, status="failed", exit_code=1, error="rank 1: no memory")
    write_run(out / "b", **last)
    write_run(out / "c")


@pytest.mark.usefixtures("undrawn")
def test_attempts_that_were_repeated_with_success_are_told_and_do_not_count(tmp_path):
    write_attempts(tmp_path)
    frames = load([tmp_path])
    assert repeated(frames) == {"failed/a.1": "a", "failed/a.2": "a"}
    group = only(frames)
    assert (group.verdict, group.failures, group.incomplete) == (SAME, (), 1)
    assert said(frames).startswith("IDENTICAL: 3 runs on 2 ranks")
    assert said(frames).endswith("; 2 failed attempts repeated with success.")
    html = build(frames).html
    assert (
        "rank 1: no memory; repeated with success: a" in html
        and '<span class="badge failed">FAILED' not in html
    )


def test_the_last_attempt_decides(tmp_path):
    write_attempts(tmp_path)
    write_result(tmp_path / "b", checks=CHECKS)
    assert said(load([tmp_path])) == (
        "FAILED: 1 of 3 launches failed; b: check energy (repeat 0) failed: gained 3; "
        "2 failed attempts repeated with success."
    )


@pytest.mark.parametrize("spoilt", ["crashed", "incomplete", "of another problem", "absent"])
def test_an_attempt_without_a_success_of_its_own_makes_the_verdict_failed(tmp_path, spoilt):
    write_attempts(tmp_path)
    shutil.rmtree(tmp_path / "failed" / "a.2")
    shutil.rmtree(tmp_path / "a")
    if spoilt != "absent":
        stop, problem = (
            {0: 3, 1: 3} if spoilt == "incomplete" else None,
            "p1" if "problem" in spoilt else "p0",
        )
        write_run(tmp_path / "a", stop=stop, problem=problem)
    if spoilt == "crashed":
        write_result(tmp_path / "a", status="failed", exit_code=1, error="again")
    frames = load([tmp_path])
    assert repeated(frames) == {} and said(frames).startswith("FAILED: ")


def write_replay(tmp_path, change=None, **more):
    write_run(tmp_path / "runs" / "source", repeats=2)
    write_run(tmp_path / "runs" / "other", change=flip(1))
    replay = METHOD | {"run.replay": "runs/source"}
    options = stated.options(METHOD | {"run.guarantee": "none"}, CONFIG)
    options |= {"run.replay": {"effect": "replay", "of_ranks": False, "records": []}}
    return write_run(tmp_path / "again", method=replay, options=options, change=change, **more)


def test_a_replay_is_compared_with_its_source_and_must_have_its_bits(tmp_path):
    write_replay(tmp_path)
    frames = load([tmp_path])
    group = next(group for group in judge(frames) if "replay" in group.label)
    assert (group.verdict, clause(group)) == (
        HOLDS,
        "the same bits as the run that it replays, runs/source:0, in 222 fingerprints and values and the final state",
    )
    assert "replaying runs/source" in group.words


def test_a_replay_with_other_bits_breaks_its_promise(tmp_path):
    write_replay(tmp_path, change=flip(6))
    frames = load([tmp_path])
    group = next(group for group in judge(frames) if "replay" in group.label)
    assert group.verdict == BROKEN
    assert (
        "other bits than the run that it replays, runs/source:0, first at step 2, vorticity, block 6"
        in clause(group)
    )
    assert "A promise of equal results was broken. A run and its replay gave different results" in said(
        frames
    )


def test_a_replay_in_another_environment_is_outside_its_promise(tmp_path):
    write_replay(tmp_path, change=flip(6), environment={"cpu": "B", "node": "n1", "variables": {}})
    groups = judge(load([tmp_path]))
    assert next(group.verdict for group in groups if "replay" in group.label) == OUTSIDE


def test_a_faulty_run_is_compared_with_the_sound_one_and_breaks_no_promise(tmp_path):
    fault = {"run.fault": ["flip@step=2,block=3"]}
    write_run(tmp_path / "sound", guarantee="run")
    write_run(tmp_path / "faulty", guarantee="run", method=fault, change=flip(3))
    frames = load([tmp_path])
    faulty = next(group for group in judge(frames) if "fault" in group.label)
    assert faulty.verdict == DIFFERS
    assert clause(faulty).startswith(
        "other bits than the run without the fault, sound:0, first at step 2, vorticity, block 3"
    )
    assert said(frames) == (
        "DIFFERS (injected fault flip@step=2,block=3): A run and the same run with a fault gave different results "
        "because of the injected fault flip@step=2,block=3."
    )


def test_decks_name_problems_and_what_differs_within_a_deck_tells_those_apart(tmp_path):
    for name, deck, n in (("a", "S", 64), ("b", "S", 128), ("c", "decks/M.toml", 256)):
        config = {"run": {"seed": 1, "deck": deck}, "grid": {"n": n}}
        write_run(tmp_path / name, problem=f"p{n}", config=config)
    runs = load([tmp_path]).runs
    assert problem_names(runs) == {"p64": "deck S, n=64", "p128": "deck S, n=128", "p256": "deck M"}
    assert "coupled: no guarantee, sums in order of arrival, deck M" in set(grouped(runs)["words"])


@pytest.mark.parametrize(
    "ordering, words",
    [
        ("arrival", "sums in order of arrival"),
        ("library,ring", "sums by the MPI library and by ring"),
        ("direct in exact,direct in float64", "sums by direct in exact and float64 arithmetic"),
        ("", ""),
    ],
)
def test_orderings_are_said_in_words(ordering, words):
    assert sums_in_words(ordering) == words
