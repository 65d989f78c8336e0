"""A ledger of predictions: rows are appended, never changed, and whoever changes them is named."""

import json
import math
import os
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import pytest

from analysis.predict.scoring.ledger import append
from analysis.predict.simulation.model import quantiles_of
from miniapps.untrusted import Refused
from miniapps.untrusted.ledger import LINE_MOST, START, hash_of, line_of, read_ledger
from miniapps.untrusted.prediction import from_json, method_hash
from tests.analysis.predict_runs import predicted, write_ledger


@pytest.fixture
def ledger(tmp_path):
    """A ledger of four rows."""
    return write_ledger(tmp_path / "ledger.jsonl", *(predicted(50 + p, p) for p in (1, 2, 4, 8)))


def lines(path):
    return path.read_bytes().splitlines(keepends=True)


def rewritten(row):
    """The line of a row whose own hash fits, whatever it says."""
    return line_of(row["before"], row["time"], row["prediction"])


def test_rows_are_read_as_they_were_appended(ledger):
    rows = read_ledger(ledger).rows
    assert [row.prediction for row in rows] == [predicted(50 + p, p) for p in (1, 2, 4, 8)]
    assert [row.number for row in rows] == [1, 2, 3, 4]
    assert [row.before for row in rows] == [START, *(row.hash for row in rows[:-1])]
    assert append(ledger, predicted(70, 16)) == read_ledger(ledger).head


def test_a_hash_is_that_of_the_canonical_json_of_its_row(ledger):
    row = json.loads(lines(ledger)[1])
    text = json.dumps(
        {key: row[key] for key in ("before", "prediction", "time")}, sort_keys=True, separators=(",", ":")
    )
    import hashlib

    assert (
        row["hash"]
        == hashlib.sha256(text.encode()).hexdigest()
        == hash_of(row["before"], row["time"], row["prediction"])
    )


def test_an_anchor_is_part_of_its_row_and_a_row_without_one_has_no_such_key(ledger, tmp_path):
    append(ledger, predicted(70, 16), "the headline of today")
    append(ledger, predicted(80, 32))
    assert [row.anchor for row in read_ledger(ledger).rows[-3:]] == ["", "the headline of today", ""]
    assert [b'"anchor"' in line for line in lines(ledger)[-3:]] == [False, True, False]
    for other in (b'"the headline of yesterday"', b'""', b"null", b"3"):
        rows = [*lines(ledger)]
        rows[4] = rows[4].replace(b'"the headline of today"', other)
        (tmp_path / "other").write_bytes(b"".join(rows))
        with pytest.raises(Refused, match="line 5"):
            read_ledger(tmp_path / "other")


def test_an_empty_ledger_ends_where_it_starts(tmp_path):
    (tmp_path / "new").touch()
    assert (read_ledger(tmp_path / "new").rows, read_ledger(tmp_path / "new").head) == ([], START)


def edited(rows):
    return [rows[0], rows[1].replace(b'"ranks":2', b'"ranks":3'), *rows[2:]], 2


def edited_with_a_hash_that_fits(rows):
    row = json.loads(rows[1])
    row["prediction"]["ranks"] = 3
    return [rows[0], rewritten(row), *rows[2:]], 3


def removed_first(rows):
    return rows[1:], 1


def removed_between(rows):
    return [rows[0], *rows[2:]], 2


def swapped(rows):
    return [rows[0], rows[2], rows[1], rows[3]], 2


def doubled(rows):
    return [*rows[:2], *rows[1:]], 3


def begun_again(rows):
    return [*rows, rows[0]], 5


def cut_off(rows):
    return [*rows[:3], rows[3][:-1]], 4


def cut_in_the_middle(rows):
    return [*rows[:3], rows[3][:100]], 4


def spaced(rows):
    return [rows[0], rows[1].replace(b'":', b'": ', 1), *rows[2:]], 2


def empty_line(rows):
    return [rows[0], b"\n", *rows[1:]], 2


def not_json(rows):
    return [*rows[:2], b"predicted: 5 ms\n", *rows[2:]], 3


def not_a_number(rows):
    row = json.loads(rows[3])
    row["prediction"]["quantiles"][3] = math.nan
    return [*rows[:3], json.dumps(row, sort_keys=True, separators=(",", ":")).encode() + b"\n"], 4


def doubled_key(rows):
    return [rows[0].replace(b'"ranks":1', b'"ranks":1,"ranks":1'), *rows[1:]], 1


def descending(rows):
    row = json.loads(rows[3])
    row["prediction"]["quantiles"].reverse()
    return [*rows[:3], rewritten(row)], 4


def of_another_version(rows):
    row = json.loads(rows[3])
    row["prediction"]["colour"] = "blue"
    return [*rows[:3], rewritten(row)], 4


def without_a_zone(rows):
    row = json.loads(rows[3])
    row["time"] = row["time"][:19]
    return [*rows[:3], rewritten(row)], 4


def endless(rows):
    return [*rows, b'{"before":"' + b"0" * LINE_MOST + b'"}\n'], 5


def deep(rows):
    return [*rows, b"[" * 10_000 + b"\n"], 5


CHANGES = (edited, edited_with_a_hash_that_fits, removed_first, removed_between, swapped, doubled, begun_again, cut_off,
           cut_in_the_middle, spaced, empty_line, not_json, not_a_number, doubled_key, descending, of_another_version,
           without_a_zone, endless, deep)  # fmt: skip


@pytest.mark.parametrize("change", CHANGES, ids=lambda change: change.__name__)
def test_what_was_not_appended_is_refused_with_its_line(ledger, change):
    changed, line = change(lines(ledger))
    ledger.write_bytes(b"".join(changed))
    before = ledger.read_bytes()
    for use in (read_ledger, lambda path: append(path, predicted(1))):
        with pytest.raises(Refused, match=rf"ledger\.jsonl: line {line}: "):
            use(ledger)
    assert ledger.read_bytes() == before


def test_every_byte_of_a_row_counts(ledger):
    whole = ledger.read_bytes()
    for place in range(0, len(whole), 7):
        ledger.write_bytes(whole[:place] + bytes([whole[place] ^ 1]) + whole[place + 1 :])
        with pytest.raises(Refused, match="line"):
            read_ledger(ledger)


@pytest.mark.parametrize(
    "make", (os.mkdir, os.mkfifo, lambda path: os.truncate(os.open(path, os.O_CREAT | os.O_RDWR), 2**40))
)
def test_what_is_no_file_of_a_sane_size_is_refused_at_once(tmp_path, make):
    path = tmp_path / "ledger.jsonl"
    make(path)
    for use in (read_ledger, lambda path: append(path, predicted(1))):
        with pytest.raises((Refused, IsADirectoryError)):
            use(path)


def test_appends_at_the_same_time_follow_each_other(tmp_path):
    path = tmp_path / "ledger.jsonl"
    with ThreadPoolExecutor(
        8
    ) as pool:  # locks are of open files, so that threads are as processes to each other
        hashes = list(pool.map(lambda p: append(path, predicted(50, p)), range(1, 25)))
    rows = read_ledger(path).rows
    assert len(set(hashes)) == 24 and {row.hash for row in rows} == set(hashes)
    assert {row.prediction.ranks for row in rows} == set(range(1, 25))


def test_a_row_that_cannot_be_written_whole_leaves_the_ledger_as_it_was(ledger, monkeypatch):
    before = ledger.read_bytes()

    def full(handle):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("analysis.predict.scoring.ledger.os.fsync", full)
    with pytest.raises(OSError, match="No space"):
        append(ledger, predicted(1))
    assert ledger.read_bytes() == before


def test_a_lock_that_another_process_keeps_is_no_reason_to_wait_for_ever(ledger, monkeypatch):
    import fcntl

    monkeypatch.setattr("miniapps.untrusted.ledger.WAIT_S", 0.02)
    with open(ledger) as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        for use in (read_ledger, lambda path: append(path, predicted(1))):
            with pytest.raises(Refused, match="another process has locked it"):
                use(ledger)


def test_a_file_system_without_locks_is_read_and_not_appended_to(ledger, monkeypatch):
    def none(file, how):
        raise OSError(37, "No locks available")

    before = ledger.read_bytes()
    monkeypatch.setattr("miniapps.untrusted.ledger.fcntl.flock", none)
    assert read_ledger(ledger).rows
    with pytest.raises(Refused, match=r"has no locks .No locks available., and two appends at once"):
        append(ledger, predicted(1))
    assert ledger.read_bytes() == before


@pytest.mark.parametrize("wrong", [
    {"quantiles": (1.0,) * 6}, {"quantiles": (1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 0.9)}, {"quantiles": (0.0,) * 7},
    {"quantiles": (1.0,) * 6 + (math.inf,)}, {"ranks": 0}, {"traces": ("abc",)}, {"regions": {"work": -1.0}},
    {"clock": "sun"}, {"app": ""},
])  # fmt: skip
def test_a_prediction_that_says_nothing_enters_no_ledger(tmp_path, wrong):
    with pytest.raises((Refused, ValueError)):
        append(tmp_path / "ledger.jsonl", replace(predicted(50), **wrong))
    assert not (tmp_path / "ledger.jsonl").exists()


def test_a_prediction_is_the_same_after_a_file():
    whole = predicted(50, 4, mesh="data=4", clock="cpu", extrapolated=("work",), remarks=("T2 not measured",))
    assert from_json(whole.to_json().encode(), "x") == whole
    assert whole.interval == (pytest.approx(0.046), pytest.approx(0.054)) and whole.median == 0.05
    with pytest.raises(Refused, match=r"x: .*ranks"):
        from_json(whole.to_json().replace('"ranks": 4', '"ranks": "4"').encode(), "x")


def test_quantiles_are_of_replays_that_gave_a_time():
    assert quantiles_of(range(101)) == (5, 10, 25, 50, 75, 90, 95)
    for wrong in ([], [1.0, math.nan]):
        with pytest.raises(ValueError, match="gave a finite time"):
            quantiles_of(wrong)


def test_a_method_is_all_that_may_change_times_and_nothing_else():
    base = {
        "method": {"run.guarantee": "none"}, "options": {"run.links": {"effect": "cost"}, "x.y": {"effect": "size"}},
        "config": {"run": {"links": None, "out": "a"}, "x": {"y": 1}},
    }  # fmt: skip
    same = base | {"config": {"run": {"links": None, "out": "b"}, "x": {"y": 2}}}
    slower = base | {"config": {"run": {"links": "rate=1e6"}}}
    other = base | {"method": {"run.guarantee": "layout"}}
    assert method_hash(base) == method_hash(same)
    assert len({method_hash(each) for each in (base, slower, other)}) == 3
