"""The timelines of the report: what ran on each rank around a first divergence."""

from dataclasses import replace

import pytest

from analysis.divergence import compare
from analysis.load.frames import load
from analysis.load.timeline import timeline
from analysis.report.material import Material
from analysis.report.timelines import MARKED, RANKS, timeline_figure, timeline_sections, window
from tests.analysis.synthetic import flip_bit, write_run


def at_step_3(repeat, step, field):
    if step >= 3 and repeat:
        flip_bit(field, 7)


@pytest.fixture
def frames(tmp_path):
    return load([write_run(tmp_path / "r", size=3, repeats=2, change=at_step_3)])


def with_after(frames, after):
    """`frames` with a column `after`: what the function of (step, rank) says."""
    tables = {
        table: (rows := getattr(frames, table)).assign(
            after=[after(step, rank) for step, rank in zip(rows["step"], rows["rank"], strict=True)]
        )
        for table in ("values", "fingerprints")
    }
    return replace(frames, **tables)


def test_the_events_of_the_step_of_all_ranks_and_both_runs_are_drawn(frames):
    (figure,) = timeline_figure(frames, compare(frames, ("r", 0), ("r", 1)), "t", "cell")
    data = figure.data
    assert set(data["run"]) == {"r:0", "r:1"} and set(data["rank"]) == {0, 1, 2} and set(data["step"]) == {3}
    path = frames.runs["path"].iloc[0]
    for repeat in (0, 1):
        events = timeline(path, repeat, [3])
        shown = data[data["run"] == f"r:{repeat}"]
        length = ((events["end"] - events["start"]) / 1e6).sum()
        assert len(shown) == len(events)
        assert (shown["end_ms"] - shown["start_ms"]).sum() == pytest.approx(length)
        assert shown["start_ms"].min() == 0
    assert "rank 2" in figure.svg and "step" in figure.svg
    assert not data[MARKED].any() and "do not tell which event" in figure.caption


def test_what_ran_between_the_last_equal_record_and_the_first_that_differs_is_framed(frames):
    # One event a step, which ends after its records are made.
    known = with_after(frames, lambda step, rank: step)
    found = compare(known, ("r", 0), ("r", 1))
    assert window(known, ("r", 1), found.first) == (found.first.rank_b, 2, 3)
    every = with_after(frames, lambda step, rank: 0)
    assert window(every, ("r", 1), found.first) is None  # nothing ended in between
    old = with_after(frames, lambda step, rank: -1)
    assert window(old, ("r", 1), found.first) is None


def test_an_event_that_is_known_to_be_the_cause_is_framed(frames):
    found = compare(frames, ("r", 0), ("r", 1))
    path = frames.runs["path"].iloc[0]
    index = int(timeline(path, 1, [3], [2])["index"].iloc[0])
    (figure,) = timeline_figure(frames, found, "t", "cell", (2, index))
    marked = figure.data[figure.data[MARKED]]
    assert marked[["run", "rank"]].to_numpy().tolist() == [["r:1", 2]]
    assert "Framed: the event in which" in figure.caption


def test_of_many_ranks_the_owner_and_the_slowest_are_drawn(tmp_path):
    frames = load([write_run(tmp_path / "r", size=12, repeats=2, change=at_step_3)])
    found = compare(frames, ("r", 0), ("r", 1))
    (figure,) = timeline_figure(frames, found, "t", "cell")
    assert found.first.rank_b == 7
    for repeat in (0, 1):
        events = frames.of("events", "r", repeat)
        slowest = events[events["step"] == 3].groupby("rank")["exclusive_ns"].sum().idxmax()
        shown = set(figure.data.loc[figure.data["run"] == f"r:{repeat}", "rank"])
        assert len(shown) == RANKS and {7, slowest} <= shown


def test_without_events_the_section_says_so(frames, tmp_path):
    (tmp_path / "r").rename(tmp_path / "moved")
    (section,) = timeline_sections(Material(frames))
    assert not section.figures and "recorded no events" in section.nothing
    alone = replace(frames, runs=frames.runs[frames.runs["repeat"] == 0].reset_index(drop=True))
    (section,) = timeline_sections(Material(alone))
    assert "no divergence to look at" in section.nothing
