"""Loading: every run that can be used is there, and everything else is named with a reason and a remedy."""

import shutil

import h5py
import numpy as np
import pandas as pd
import pytest

from analysis.load.columns import STORED
from analysis.load.find import NoRuns
from analysis.load.frames import COLUMNS, RUNS, load
from miniapps.trace import Tracer, node
from tests.analysis.synthetic import (
    BLOCKS,
    STEPS,
    attributes,
    field_at,
    owners,
    record,
    region,
    write_result,
    write_run,
)
from tests.tampering import altered


def reasons(frames, what):
    return frames.excluded.loc[frames.excluded["what"] == what, "reason"].tolist()


def test_frames_hold_every_row_that_the_ranks_recorded(tmp_path):
    run = write_run(tmp_path / "r", size=3, guarantee="layout", ordering="exact", repeats=2)
    frames = load([run])
    assert frames.excluded.empty
    assert frames.runs[["run", "repeat", "size", "complete", "last_step"]].values.tolist() == [
        ["r", 0, 3, True, STEPS - 1],
        ["r", 1, 3, True, STEPS - 1],
    ]
    assert len(frames.fingerprints) == 2 * STEPS * BLOCKS * 2
    sample = frames.of("values", "r", 1).query("name == 'sample' and step == 3")
    assert sample["block"].tolist() == list(range(BLOCKS))
    assert sample["value"].tolist() == field_at(3)[:, 0].tolist()
    assert sample["rank"].tolist() == owners(BLOCKS, 3).tolist()
    assert frames.events["count"].sum() == 3 * 2 * STEPS
    assert frames.of("values", "r", 2).empty and frames.of("values", "none", 0).empty


def test_columns_and_types_are_those_documented_also_without_rows(tmp_path):
    write_run(tmp_path / "r", orders=lambda repeat, step: [[0, 1]])
    (tmp_path / "empty").mkdir()
    Tracer(tmp_path / "empty" / "rank-00000.h5", attributes(0, 1, "none", "native", run_id="e")).close()
    empty = load([tmp_path / "empty"])
    assert "hold no rows" in reasons(empty, "empty")[0] and empty.runs.empty
    for frames in (load([tmp_path / "r"]), empty):
        assert frames.runs.dtypes.astype(str).to_dict() == RUNS
        for table, columns in COLUMNS.items():
            types = getattr(frames, table).dtypes.astype(str).to_dict()
            expected = {key: "category" if dtype == "name" else dtype for key, dtype in columns.items()}
            assert types == {"run": "category"} | expected, table


@pytest.mark.parametrize("pattern", ["{0}", "{0}/a/run-1", "{0}/a/*", "{0}/*/run-[12]"])
def test_a_path_is_a_run_a_directory_of_runs_or_a_pattern(tmp_path, pattern):
    write_run(tmp_path / "a" / "run-1")
    write_run(tmp_path / "b" / "deeper" / "run-2")
    write_run(tmp_path / ".hidden" / "run-3")
    runs = set(load([pattern.format(tmp_path)]).runs["run_id"])
    assert str(tmp_path / "a" / "run-1") in runs
    assert not any(".hidden" in run for run in runs)
    assert (str(tmp_path / "b" / "deeper" / "run-2") in runs) == (pattern == "{0}")


def test_a_run_named_twice_is_loaded_once(tmp_path):
    run = write_run(tmp_path / "r")
    assert len(load([run, tmp_path, str(tmp_path / "*")]).runs) == 1


@pytest.mark.parametrize("place", ["missing", "empty"])
def test_a_path_without_runs_says_what_was_expected_there(tmp_path, place):
    (tmp_path / "empty").mkdir()
    with pytest.raises(NoRuns, match=rf"{place}: no (such directory|run here).*directory"):
        load([tmp_path / place])


def test_a_run_packed_into_files_of_nodes_is_found_and_is_the_same(tmp_path):
    run = write_run(tmp_path / "r", size=3, result=False)
    expected = load([run], keep=False)
    paths = sorted(run.glob("*.h5"))
    node.pack([paths[0], paths[2]], run / "node-00000.h5")
    node.pack([paths[1]], run / "node-00001.h5")
    for where in (tmp_path, run, run / "node-00001.h5"):
        frames = load([where], keep=False)
        assert frames.excluded.empty and frames.runs["complete"].all()
        for table in ("events", "values", "fingerprints"):
            pd.testing.assert_frame_equal(getattr(frames, table), getattr(expected, table))


def test_labels_tell_runs_apart_by_their_place(tmp_path):
    write_run(tmp_path / "a" / "x")
    write_run(tmp_path / "b" / "x")
    assert load([tmp_path]).runs["run"].tolist() == ["a/x", "b/x"]


def damage(path, kind):
    if kind == "truncated":
        path.write_bytes(path.read_bytes()[:3000])
    elif kind == "not HDF5":
        path.write_text("hello")
    elif kind == "foreign":
        path.unlink()
        with h5py.File(path, "w") as file:
            file["x"] = 1
    elif kind == "newer schema":
        altered(path, lambda file: file.attrs.modify("schema", 99))
    elif kind == "gone":
        path.unlink()


@pytest.mark.parametrize("kind, words", [
    ("truncated", "damaged"), ("not HDF5", "damaged"), ("foreign", "not a trace"),
    ("newer schema", "schema 99"),
])  # fmt: skip
def test_a_file_that_cannot_be_used_is_named_and_the_run_is_not_whole(tmp_path, kind, words):
    run = write_run(tmp_path / "r", size=3)
    damage(run / "rank-00001.h5", kind)
    frames = load([run])
    (reason,) = reasons(frames, "unreadable")
    assert words in reason and str(run / "rank-00001.h5") in reason
    assert "ranks without usable traces of rank 1;" in reasons(frames, "missing ranks")[0]
    assert not frames.runs["complete"].any()
    assert set(frames.values["rank"]) == {0, 2}


def test_missing_ranks_are_named(tmp_path):
    run = write_run(tmp_path / "r", size=8)
    for rank in (0, 2, 3, 4, 5, 6):
        damage(run / f"rank-{rank:05d}.h5", "gone")
    frames = load([run])
    assert "ranks 0, 2, 3, 4 and 2 more" in reasons(frames, "missing ranks")[0]
    assert not frames.runs["complete"].any()


def test_a_run_without_a_usable_file_is_left_out_and_the_others_stay(tmp_path):
    bad = write_run(tmp_path / "bad", size=7)
    for path in bad.glob("*.h5"):
        damage(path, "not HDF5")
    write_run(tmp_path / "good")
    frames = load([tmp_path])
    assert frames.runs["run"].tolist() == ["good"]
    lines = reasons(frames, "unreadable")
    assert len(lines) == 5 and "3 more files" in lines[-1]


def test_an_incomplete_run_is_kept_up_to_the_last_step_of_all_ranks(tmp_path):
    run = write_run(tmp_path / "r", size=3, stop={0: 5, 1: 3, 2: 4}, result=False)
    frames = load([run])
    assert frames.runs[["complete", "last_step"]].values.tolist() == [[False, 2]]
    assert (
        frames.fingerprints["step"].max() == frames.values["step"].max() == frames.events["step"].max() == 2
    )
    (note,) = frames.excluded.itertuples()
    assert note.what == "incomplete" and "ranks 0, 1, 2" in note.reason and note.kept == "repeat 0 to step 2"


def test_repeats_that_ended_before_the_run_was_killed_are_whole(tmp_path):
    write_run(tmp_path / "r", repeats=3, stop={0: 2 * STEPS + 4, 1: 2 * STEPS + 5})
    frames = load([tmp_path / "r"])
    assert frames.runs[["repeat", "complete", "last_step"]].values.tolist() == [
        [0, True, STEPS - 1],
        [1, True, STEPS - 1],
        [2, False, 3],
    ]
    assert "3 of 3 repeats begun" in reasons(frames, "incomplete")[0]


def test_files_of_another_launch_in_the_same_directory_are_not_mixed_in(tmp_path):
    run = write_run(tmp_path / "r", size=2)
    shutil.copy(write_run(tmp_path / "old", size=3) / "rank-00002.h5", run)
    frames = load([run])
    assert "rank-00002.h5: of another launch" in reasons(frames, "foreign rank")[0]
    assert set(frames.values["rank"]) == {0, 1}
    assert frames.runs["complete"].all()


def test_a_rank_that_is_there_twice_counts_once(tmp_path):
    run = write_run(tmp_path / "r", size=2)
    shutil.copy(run / "rank-00001.h5", run / "rank-00002.h5")
    frames = load([run])
    values = frames.values
    assert "rank-00002.h5: holds rank 1, as rank-00001.h5 does" in reasons(frames, "foreign rank")[0]
    (run / "rank-00002.h5").unlink()
    pd.testing.assert_frame_equal(values, load([run]).values)


def test_a_copy_of_a_run_is_not_another_sample(tmp_path):
    shutil.copytree(write_run(tmp_path / "a"), tmp_path / "b")
    frames = load([tmp_path])
    assert frames.runs["run"].tolist() == ["a"]
    assert f"a copy of {tmp_path / 'a'}" in reasons(frames, "copy")[0]
    assert len(load([tmp_path], copies=True).runs) == 2


def test_ranks_that_hold_other_bits_of_the_same_thing_are_reported(tmp_path):
    (tmp_path / "r").mkdir()
    for rank in range(3):
        given = attributes(rank, 3, "layout", "exact", run_id="r")
        with Tracer(tmp_path / "r" / f"rank-{rank:05d}.h5", given, size=3) as tracer:
            for step in range(4):
                tracer.at(0, step)
                tracer.value("dt", 0.1 if (rank, step) != (2, 3) else np.nextafter(0.1, 1))
                record(tracer, np.flatnonzero(owners(BLOCKS, 3) == rank), field_at(step))
    frames = load([tmp_path / "r"])
    assert frames.values.query("name == 'dt'")["value"].tolist() == [0.1] * 4
    (reason,) = reasons(frames, "ranks disagree")
    assert "rank 2 recorded other bits" in reason and "repeat 0, step 3" in reason


def test_events_that_end_before_they_start_are_counted_not_summed(tmp_path):
    (tmp_path / "r").mkdir()
    with Tracer(tmp_path / "r" / "rank-00000.h5", attributes(0, 1, "none", "native", run_id="r")) as tracer:
        tracer.at(0, 0)
        tracer.event(region(tracer, "step"), tracer.clock() + 10**12)
        tracer.event(region(tracer, "step"), tracer.clock())
    frames = load([tmp_path / "r"])
    assert frames.events["count"].tolist() == [1]
    assert "1 events end before they start" in reasons(frames, "clock")[0]


def test_what_result_json_says_is_taken_over(tmp_path):
    run = write_run(tmp_path / "r")
    write_result(run, fingerprints=["ab"], checks=[
        {"name": "budget", "passed": False, "detail": "off by 2", "repeat": 0},
        {"name": "finite", "passed": True, "detail": "", "repeat": 0},
    ])  # fmt: skip
    frames = load([run])
    assert frames.runs["state"].tolist() == ["ab"]
    assert len(reasons(frames, "check failed")) == 1
    assert "check budget (repeat 0) failed: off by 2" in reasons(frames, "check failed")[0]


def test_a_failed_run_is_reported_with_its_error_even_without_a_trace(tmp_path):
    (tmp_path / "r").mkdir()
    write_result(tmp_path / "r", status="failed", error="rank 3: disk full")
    write_run(tmp_path / "good")
    frames = load([tmp_path])
    assert "rank 3: disk full" in reasons(frames, "failed")[0]
    assert frames.runs["run"].tolist() == ["good"]


@pytest.mark.parametrize("text", ["{", "[]", '{"checks": 3}', '{"checks": [{}]}'])
def test_a_damaged_result_json_costs_only_itself(tmp_path, text):
    run = write_run(tmp_path / "r")
    (run / "result.json").write_text(text)
    frames = load([run])
    assert str(run / "result.json") in reasons(frames, "damaged result")[0]
    assert frames.runs["complete"].tolist() == [True] and frames.runs["state"].tolist() == [""]


def test_a_result_json_that_is_gone_is_missed(tmp_path):
    """Where the trace says what was in it: without it the final state is not compared."""
    run = write_run(tmp_path / "r", result=False, stated={"fingerprints": "0" * 32})
    frames = load([run])
    (reason,) = reasons(frames, "damaged result")
    assert reason.startswith(f"{run / 'result.json'}: is gone")
    assert frames.runs["complete"].tolist() == [True] and frames.runs["state"].tolist() == [""]


def test_many_files_are_read_by_processes_with_the_same_result(tmp_path):
    write_run(tmp_path / "r", size=34, blocks=40, orders=lambda repeat, step: [np.arange(34)])
    write_run(
        tmp_path / "s", size=2, names=("vorticity", "weights"), choices=lambda repeat, step: f"way {step}"
    )
    one, many = load([tmp_path], processes=1), load([tmp_path], processes=2)
    for table in ("runs", *STORED, "excluded"):
        pd.testing.assert_frame_equal(getattr(one, table), getattr(many, table))
        assert table == "excluded" or len(getattr(one, table))


def test_names_are_the_same_categories_in_all_runs(tmp_path):
    write_run(tmp_path / "a", names=("vorticity", "streamfunction"))
    write_run(tmp_path / "b", names=("weights", "vorticity"))
    frames = load([tmp_path])
    counts = frames.fingerprints.groupby(["run", "name"], observed=True).size()
    assert counts.to_dict() == {
        (run, name): STEPS * BLOCKS
        for run, name in [("a", "vorticity"), ("a", "streamfunction"), ("b", "vorticity"), ("b", "weights")]
    }
