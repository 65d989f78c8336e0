"""The timelines of the report: what ran on each rank around a first divergence."""

from dataclasses import replace

import pytest

from analysis.divergence.classes import Cause
from analysis.divergence.compare import compare
from analysis.divergence.preceding import event_of
from analysis.load.frames import load
from analysis.load.timeline import timeline
from analysis.overview import Overview
from analysis.report import timelines
from analysis.report.timelines import MARKED, RANKS, timeline_figure, timeline_sections
from tests.analysis.synthetic import flip_bit, write_run


def at_step_3(repeat, step, field):
    if step >= 3 and repeat:
        flip_bit(field, 7)


@pytest.fixture
def frames(tmp_path):
    return load([write_run(tmp_path / "r", size=3, repeats=2, change=at_step_3)])


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


def test_the_event_in_which_the_difference_arose_is_framed(frames, monkeypatch):
    divergence = compare(frames, ("r", 0), ("r", 1))
    path = frames.runs["path"].iloc[0]
    event = event_of(timeline(path, 1, [3], [2]).assign(call=0).iloc[0])
    judged = Cause("local kernel", divergence.first, "rhs", 2, event, ())
    monkeypatch.setattr(timelines, "cause", lambda frames, divergence: judged)
    (figure,) = timeline_figure(frames, divergence, "t", "cell")
    marked = figure.data[figure.data[MARKED]]
    assert marked[["run", "rank"]].to_numpy().tolist() == [["r:1", 2]]
    assert "Framed: the event in which the difference arose (local kernel: rhs)" in figure.caption


def test_of_many_ranks_the_owner_and_the_slowest_are_drawn(tmp_path):
    frames = load([write_run(tmp_path / "r", size=12, repeats=2, change=at_step_3)])
    divergence = compare(frames, ("r", 0), ("r", 1))
    (figure,) = timeline_figure(frames, divergence, "t", "cell")
    assert divergence.first.rank_b == 7
    for repeat in (0, 1):
        events = frames.of("events", "r", repeat)
        slowest = events[events["step"] == 3].groupby("rank")["exclusive_ns"].sum().idxmax()
        shown = set(figure.data.loc[figure.data["run"] == f"r:{repeat}", "rank"])
        assert len(shown) == RANKS and {7, slowest} <= shown


def test_without_events_the_section_says_so(tmp_path):
    run = write_run(tmp_path / "r", size=3, repeats=2, change=at_step_3)
    frames = load([run], keep=False)
    (tmp_path / "r").rename(tmp_path / "moved")
    (section,) = timeline_sections(Overview(frames))
    assert not section.figures and "recorded no events" in section.nothing
    alone = replace(frames, runs=frames.runs[frames.runs["repeat"] == 0].reset_index(drop=True))
    (section,) = timeline_sections(Overview(alone))
    assert "no divergence to look at" in section.nothing
