"""The cache: data are read once, and the cache is never used for other traces."""

import contextlib
import os
import shutil

import numpy as np
import pandas as pd
import pytest

from analysis.load import cache, frames
from analysis.load.columns import STORED
from analysis.load.frames import load
from miniapps.trace import TraceError
from tests.analysis.synthetic import flip_bit, write_run

TABLES = ("runs", *STORED, "excluded")


def same(a, b):
    for table in TABLES:
        pd.testing.assert_frame_equal(getattr(a, table), getattr(b, table))


@pytest.fixture
def reads(monkeypatch):
    """The files that are read, one by one."""
    seen = []

    @contextlib.contextmanager
    def readers(*arguments):
        with original(*arguments) as reading:

            def noted(tasks):
                tasks = list(tasks)
                seen.extend(path.name for task in tasks for path in task)
                return reading(tasks)

            yield noted

    original = frames.readers
    monkeypatch.setattr(frames, "readers", readers)
    return seen


def campaign(tmp_path):
    write_run(
        tmp_path / "a", size=2, repeats=2, orders=lambda repeat, step: [[0, 1], [1, 0]],
        choices=lambda repeat, step: ("ring", "direct")[step % 2],
    )  # fmt: skip
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
    for table in STORED:
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


def test_traces_with_another_time_of_change_are_read_again_and_kept_anew(tmp_path, reads):
    run = write_run(tmp_path / "r")
    load([run])
    for path in run.glob("*.h5"):
        os.utime(path, ns=(1, 1))
    reads.clear()
    load([run])
    load([run])
    assert sorted(reads) == ["rank-00000.h5", "rank-00001.h5"]


def kept(run):
    """The directory that holds the tables."""
    (place,) = (path for path in (run / cache.DIRECTORY).iterdir() if path.is_dir())
    return place


def zeros(path):
    """Eight bytes in the middle of a file become zeros."""
    content = bytearray(path.read_bytes())
    middle = len(content) // 2
    content[middle : middle + 8] = bytes(8) if any(content[middle : middle + 8]) else b"\1" * 8
    path.write_bytes(content)


def swap(path, other):
    path.write_bytes((kept(other) / path.name).read_bytes())


def fifo(path):
    path.unlink()
    os.mkfifo(path)


def link(path):
    path.rename(path.parent / "moved")
    path.symlink_to(path.parent / "moved")


def index(place):
    return place.parent / "index.json"


HARMS = {
    "truncated": lambda place, other: os.truncate(place / cache.ROWS, 100),
    "no index": lambda place, other: index(place).unlink(),
    "bad index": lambda place, other: index(place).write_text("{"),
    "index of another type": lambda place, other: index(place).write_text("[[[]]]"),
    "deep index": lambda place, other: index(place).write_text("[" * 100_000),
    "index of a fifo": lambda place, other: fifo(index(place)),
    "other index": lambda place, other: index(place).write_bytes(index(kept(other)).read_bytes()),
    "edited index": lambda place, other: zeros(index(place)),
    "no rows": lambda place, other: (place / cache.ROWS).write_text(""),
    "tables of another run": lambda place, other: [swap(path, other) for path in place.glob("*.*")],
    "a table that is a link": lambda place, other: link(place / cache.ROWS),
    "zeros in small tables": lambda place, other: zeros(place / cache.ROWS),
    "zeros in a large table": lambda place, other: zeros(place / "fingerprints.parquet"),
}  # fmt: skip


@pytest.mark.parametrize("harm", HARMS)
def test_a_damaged_cache_is_made_anew(tmp_path, harm, reads, monkeypatch):
    monkeypatch.setattr(cache, "GROUP", 100)  # fingerprints have a file of their own
    run = write_run(tmp_path / "r", orders=lambda repeat, step: [[0, 1]])
    other = write_run(
        tmp_path / "o", orders=lambda repeat, step: [[1, 0]], change=lambda r, s, field: flip_bit(field, 3)
    )
    load([other])
    expected = load([run])
    expected = {table: getattr(expected, table).copy() for table in TABLES}
    HARMS[harm](kept(run), other)
    reads.clear()
    data = load([run])
    for table in TABLES:
        pd.testing.assert_frame_equal(getattr(data, table), expected[table])
    assert len(reads) == 2
    load([run])
    assert len(reads) == 2  # it was made anew


def test_directories_without_a_use_are_removed_and_nothing_else(tmp_path):
    run = write_run(tmp_path / "r")
    load([run])
    place = run / cache.DIRECTORY
    first = kept(run).name
    for name in ("notes", "0" * 32, "1" * 32, "2" * 32, "3" * 32):
        (place / name).mkdir()
        (place / name / "thesis.tex").write_text("years of work")
    for name in ("2" * 32, "3" * 32):
        (place / name / cache.MARK).write_bytes(cache.MARK_TEXT)
    (place / ("3" * 32) / "thesis.tex").unlink()
    (place / ("4" * 32)).symlink_to(tmp_path)
    (place / ("5" * 32)).mkdir()  # somebody's work in progress
    (place / ("5" * 32) / cache.MARK).write_bytes(cache.MARK_TEXT)
    for name in "01234":
        os.utime(place / (name * 32), (1, 1), follow_symlinks=False)
    os.utime(run / "rank-00000.h5")
    load([run])
    left = {path.name for path in place.iterdir()}
    assert first not in left and "3" * 32 not in left
    assert {"notes", *(name * 32 for name in "01245")} <= left
    for name in ("notes", *(name * 32 for name in "012")):
        assert (place / name / "thesis.tex").read_text() == "years of work"
    assert len(left) == 1 + 5 + 2  # notes, five, the index and what it names


@pytest.mark.parametrize("again", [False, True])
def test_a_link_in_the_place_of_the_cache_is_not_followed(tmp_path, again):
    """`.analysis` of a received run that leads into somebody's home directory."""
    home = tmp_path / "home"
    for name in ("papers", "0" * 32):
        (home / name).mkdir(parents=True)
        (home / name / "thesis.tex").write_text("years of work")
    run = write_run(tmp_path / "r")
    if again:  # with an index that would be believed
        load([run])
        for path in (run / cache.DIRECTORY).iterdir():
            path.rename(home / path.name)
        (run / cache.DIRECTORY).rmdir()
    (run / cache.DIRECTORY).symlink_to(home)
    before = sorted((path.relative_to(home), path.lstat().st_mtime_ns) for path in home.rglob("*"))
    data = load([run])
    assert len(data.fingerprints) and data.excluded.empty
    assert before == sorted((path.relative_to(home), path.lstat().st_mtime_ns) for path in home.rglob("*"))
    assert (run / cache.DIRECTORY).is_symlink()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files away")
@pytest.mark.parametrize("part", ["", "index.json", cache.ROWS, "everything"])
def test_a_cache_that_another_user_wrote_is_not_believed(tmp_path, part, reads):
    run = write_run(tmp_path / "r")
    load([run])
    place = run / cache.DIRECTORY
    for path in (place, *place.rglob("*")):
        if part == "everything" or path.name == (part or place.name):
            os.chown(path, 65534, 65534)
    reads.clear()
    load([run])
    assert len(reads) == 2


def test_the_cache_of_a_copied_run_is_not_believed(tmp_path, reads):
    """Not even where a hostile archive kept the times: the inodes are others."""
    run = write_run(tmp_path / "r")
    load([run])
    shutil.move(run, tmp_path / "away")
    shutil.copytree(tmp_path / "away", run)
    reads.clear()
    load([run])
    assert len(reads) == 2


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
    data = load([tmp_path / "new"])
    assert data.runs["path"].tolist() == [str(tmp_path / "new")]
    assert "old" not in " ".join(data.excluded["reason"])


def test_a_run_where_nothing_can_be_written_is_loaded_all_the_same(tmp_path, monkeypatch):
    run = write_run(tmp_path / "r")

    def full(*arguments, **options):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(cache, "write_file", full)
    data = load([run])
    assert len(data.fingerprints) and data.excluded.empty
    assert not list((run / cache.DIRECTORY).glob("*.json"))


def test_unreadable_traces_are_tried_again(tmp_path, reads):
    run = write_run(tmp_path / "r")
    whole = (run / "rank-00001.h5").read_bytes()
    (run / "rank-00001.h5").write_bytes(whole[:100])
    assert "unreadable" in set(load([run]).excluded["what"])
    (run / "rank-00001.h5").write_bytes(whole)
    assert load([run]).excluded.empty


def test_a_file_that_vanishes_while_runs_are_read_is_named(tmp_path, monkeypatch):
    run = write_run(tmp_path / "r", size=3)

    @contextlib.contextmanager
    def vanishing(*arguments):
        with original(*arguments) as reading:
            (run / "rank-00002.h5").unlink()
            yield reading

    original = frames.readers
    monkeypatch.setattr(frames, "readers", vanishing)
    data = load([run])
    assert "rank-00002.h5: no such file" in " ".join(data.excluded["reason"])
    assert not data.runs["complete"].any()
    assert not (run / cache.DIRECTORY).exists()


def test_only_the_row_groups_that_hold_what_is_asked_for_are_read(tmp_path, monkeypatch):
    monkeypatch.setattr(cache, "GROUP", 10)
    run = write_run(tmp_path / "r", blocks=40)
    load([run])
    data = load([run])
    tree = data.leaves("fingerprints", "r", 0)
    third = np.flatnonzero(tree.step == 3)[:1]
    rows = data.at("fingerprints", "r", tree.places(third))
    assert rows["step"].tolist() == [3] * 40 and rows["block"].tolist() == list(range(40))
    assert data.store.rows_read("fingerprints") == 40
    scattered = data.at("fingerprints", "r", [(1, 3), (25, 26), (99, 102)])
    whole = data.of("fingerprints", "r", 0)
    pd.testing.assert_frame_equal(
        scattered.reset_index(drop=True), whole.iloc[[1, 2, 25, 99, 100, 101]].reset_index(drop=True)
    )
