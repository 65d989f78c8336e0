"""The cache: what was read once is not read again, and never stands for other traces."""

import os
import shutil

import numpy as np
import pandas as pd
import pytest

from analysis.load import cache, frames
from analysis.load.frames import load
from miniapps.trace import TraceError
from tests.analysis.synthetic import flip_bit, write_run

TABLES = ("runs", "events", "values", "fingerprints", "order", "excluded")


def same(a, b):
    for table in TABLES:
        pd.testing.assert_frame_equal(getattr(a, table), getattr(b, table))


@pytest.fixture
def reads(monkeypatch):
    """The files that are read, one by one."""
    seen = []

    def read_piece(paths):
        seen.extend(path.name for path in paths)
        return original(paths)

    original = frames.read_piece
    monkeypatch.setattr(frames, "read_piece", read_piece)
    return seen


def campaign(tmp_path):
    write_run(tmp_path / "a", size=2, repeats=2, orders=lambda repeat, step: [[0, 1], [1, 0]])
    write_run(tmp_path / "b", size=3, names=("vorticity", "weights"), stop={0: 4})
    return tmp_path


def test_a_second_load_reads_no_trace_and_gives_the_same_frames(tmp_path, reads):
    first = load([campaign(tmp_path)])
    assert len(reads) == 5
    second = load([tmp_path])
    assert len(reads) == 5
    same(first, second)
    same(second, load([tmp_path], keep=False))
    assert len(reads) == 10


def test_what_was_asked_for_in_parts_is_what_is_in_the_whole(tmp_path):
    load([campaign(tmp_path)])
    parts, whole = load([tmp_path]), load([tmp_path])
    for table in TABLES[1:5]:
        frame = getattr(whole, table)
        for run, repeat in (("a", 0), ("a", 1), ("b", 0), ("none", 0)):
            expected = frame[(frame["run"] == run) & (frame["repeat"] == repeat)].reset_index(drop=True)
            pd.testing.assert_frame_equal(parts.of(table, run, repeat).reset_index(drop=True), expected)
            again = whole.of(table, run, repeat).reset_index(drop=True)
            pd.testing.assert_frame_equal(again, expected)


def test_a_changed_trace_is_read_again(tmp_path, reads):
    run = write_run(tmp_path / "r")
    before = load([run]).fingerprints
    kept = tmp_path / "kept"
    shutil.move(run / cache.DIRECTORY, kept)
    shutil.rmtree(run)
    write_run(run, change=lambda repeat, step, field: flip_bit(field, 3) if step == 2 else None)
    shutil.move(kept, run / cache.DIRECTORY)
    reads.clear()
    after = load([run])
    assert len(reads) == 2
    assert not before["hi"].equals(after.fingerprints["hi"])
    same(after, load([run], keep=False))


def test_traces_with_another_time_of_change_but_the_same_bytes_are_not_read_again(tmp_path, reads):
    run = write_run(tmp_path / "r")
    load([run])
    for path in run.glob("*.h5"):
        os.utime(path, ns=(1, 1))
    reads.clear()
    load([run])
    load([run])
    assert reads == []


@pytest.mark.parametrize("harm", ["truncated", "no index", "bad index", "other version", "no tree"])
def test_a_damaged_cache_is_made_anew(tmp_path, harm):
    run = write_run(tmp_path / "r")
    expected = load([run])
    expected = {table: getattr(expected, table).copy() for table in TABLES}
    (place,) = (path for path in (run / cache.DIRECTORY).iterdir() if path.is_dir())
    if harm == "truncated":
        os.truncate(place / "values.parquet", 100)
    elif harm == "no index":
        (place.parent / "index.json").unlink()
    elif harm == "bad index":
        (place.parent / "index.json").write_text("{")
    elif harm == "no tree":
        (place / "values-tree.parquet").write_text("")
    else:
        index = (place.parent / "index.json").read_text()
        (place.parent / "index.json").write_text(index.replace(cache.VERSION, "0"))
    found = load([run])
    for table in TABLES:
        pd.testing.assert_frame_equal(getattr(found, table), expected[table])
    assert sorted(path.name for path in place.iterdir()) == sorted(
        [*(f"{table}.parquet" for table in cache.STORED), "values-tree.parquet",
         "fingerprints-tree.parquet"]
    )  # fmt: skip
    assert sorted(path.name for path in place.parent.iterdir()) == sorted([place.name, "index.json"])


def test_frames_never_show_rows_of_traces_that_changed_after_they_were_loaded(tmp_path):
    run = write_run(tmp_path / "r")
    load([run])
    older = load([run])
    (run / "rank-00000.h5").unlink()
    load([run])
    with pytest.raises(TraceError, match="the traces of this run changed"):
        older.of("fingerprints", "r", 0)


def test_a_moved_run_is_named_by_its_new_place(tmp_path):
    run = write_run(tmp_path / "old", size=2, stop={0: 3})
    load([run])
    shutil.move(run, tmp_path / "new")
    found = load([tmp_path / "new"])
    assert found.runs["path"].tolist() == [str(tmp_path / "new")]
    assert "old" not in " ".join(found.excluded["reason"])


def test_a_run_where_nothing_can_be_written_is_loaded_all_the_same(tmp_path, monkeypatch):
    run = write_run(tmp_path / "r")

    def full(*arguments, **options):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(cache.tempfile, "mkdtemp", full)
    found = load([run])
    assert len(found.fingerprints) and found.excluded.empty
    assert not list((run / cache.DIRECTORY).iterdir())


def test_unreadable_traces_are_tried_again(tmp_path, reads):
    run = write_run(tmp_path / "r")
    whole = (run / "rank-00001.h5").read_bytes()
    (run / "rank-00001.h5").write_bytes(whole[:100])
    assert "unreadable" in set(load([run]).excluded["what"])
    (run / "rank-00001.h5").write_bytes(whole)
    assert load([run]).excluded.empty


def test_a_file_that_vanishes_while_runs_are_read_is_named(tmp_path, monkeypatch):
    run = write_run(tmp_path / "r", size=3)
    original = frames.read_piece

    def vanishing(paths):
        (run / "rank-00002.h5").unlink(missing_ok=True)
        return original(paths)

    monkeypatch.setattr(frames, "read_piece", vanishing)
    found = load([run])
    assert "rank-00002.h5: no such file" in " ".join(found.excluded["reason"])
    assert not found.runs["complete"].any()
    assert not (run / cache.DIRECTORY).exists()


def test_only_the_row_groups_that_hold_what_is_asked_for_are_read(tmp_path, monkeypatch):
    monkeypatch.setattr(cache, "GROUP", 10)
    run = write_run(tmp_path / "r", blocks=40)
    load([run])
    found = load([run])
    tree = found.leaves("fingerprints", "r", 0)
    third = np.flatnonzero(tree.step == 3)[:1]
    rows = found.at("fingerprints", "r", tree.places(third))
    assert rows["step"].tolist() == [3] * 40 and rows["block"].tolist() == list(range(40))
    assert found.store.rows_read("fingerprints") == 40
    scattered = found.at("fingerprints", "r", [(1, 3), (25, 26), (99, 102)])
    whole = found.of("fingerprints", "r", 0)
    pd.testing.assert_frame_equal(
        scattered.reset_index(drop=True), whole.iloc[[1, 2, 25, 99, 100, 101]].reset_index(drop=True)
    )
