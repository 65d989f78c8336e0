"""Lines of journals and registers: believed if of the schema, named if not, as if not written if cut off."""

import json

import msgspec
import pytest

from jobs import records
from jobs.files import add, append, to_append
from jobs.records import Begin, End, Submission, cut_off, read_journal, read_register
from jobs.state import LEFT, survey
from miniapps.untrusted.regular import Refused
from tests.jobs.test_recovery import state, task, workload

__all__ = ["state", "task", "workload"]  # fixtures

BEGIN = {"task": "t", "attempt": 1, "at": "noon", "host": "here", "allocation_id": "a"}
PROCESS = {
    "task": "t",
    "attempt": 1,
    "at": "noon",
    "host": "here",
    "process": {"host": "here", "pid": 7, "start": 1},
}
END = {"task": "t", "attempt": 1, "at": "noon", "outcome": "failed", "reason": "exit code 9", "code": 9,
       "seconds": 2.5, "moved": "failed/t.1"}  # fmt: skip
SUBMISSION = {"id": "41", "name": "demo", "site": "frontier", "scheduler": "slurm", "script": "jobs/demo-41.sh",
              "node_hours": 1.0, "elements": 1, "after": None, "time": "noon"}  # fmt: skip


def journal(folder, *lines):
    path = folder / "a0.jsonl"
    path.write_bytes(
        b"".join(line if isinstance(line, bytes) else json.dumps(line).encode() for line in lines)
    )
    return path


def test_what_is_added_is_what_is_read(tmp_path):
    entries = [msgspec.convert(BEGIN, Begin), msgspec.convert(PROCESS, Begin), msgspec.convert(END, End)]
    for entry in entries:
        append(tmp_path / "a0.jsonl", entry)
    assert read_journal(tmp_path / "a0.jsonl") == (entries, [])


@pytest.mark.parametrize("whole", [BEGIN, PROCESS, END], ids=["begin", "process", "end"])
def test_every_beginning_of_a_line_is_as_if_not_written_and_costs_that_line_alone(tmp_path, whole):
    """Wherever a kill or a full disk cuts; what comes after is on a line of its own."""
    text = json.dumps(whole).encode()
    cuts = [
        text[:n] for n in range(1, len(text)) if text[n - 1 : n] != b"}"
    ]  # those look damaged, and are named
    assert [cut for cut in cuts if not cut_off(cut)] == []
    for cut in cuts[:: len(cuts) // 5]:
        path = journal(tmp_path, END, b"\n", cut)
        append(path, msgspec.convert(BEGIN, Begin))
        entries, doubts = read_journal(path)
        assert ([type(entry) for entry in entries], doubts) == ([End, Begin], [])


@pytest.mark.parametrize(
    "line",
    [
        *(BEGIN | changed for changed in (
            {"attempt": "x"}, {"attempt": 0}, {"attempt": -1}, {"attempt": True}, {"attempt": 1.5}, {"attempt": 10**30},
            {"task": 7}, {"task": ""}, {"task": None}, {"task": "x" * 300}, {"host": []}, {"process": 7}, {"at": 3},
            {"process": {"pid": 7}}, {"process": {"host": "here", "pid": -7}})),
        *(END | changed for changed in (
            {"seconds": -1}, {"seconds": "nan"}, {"code": {}}, {"code": "0"}, {"code": 10**30}, {"outcome": "won"},
            {"outcome": None}, {"reason": None}, {"moved": "/etc"}, {"moved": "failed/../../x"},
            {"moved": "failed/.."})),
        {}, [], 7, "text", None, [[]],
        b'{"task": "t", "attempt": NaN, "at": ""}', b'{"task": "t", "attempt": 1e999, "at": "noon"}',
        b'{"task": "t"}}', b"hello", b"\xff\xfe", b'{"task": "\xe3t',
        b"\0" * 50, b"[" * 10**5, b"[" * 10**5 + b"]" * 10**5,
        b'{"a":' * 10**5 + b"}", b'{"task": "t, "attempt": 1}', b'{"attempt": ' + b"9" * 10**5 + b"}",
    ],
    ids=lambda line: str(line)[:60],
)  # fmt: skip
def test_a_line_that_is_none_of_ours_is_named_and_the_others_are_read(tmp_path, line):
    path = journal(tmp_path, BEGIN, b"\n", line, b"\n", END, b"\n")
    entries, doubts = read_journal(path)
    assert [type(entry) for entry in entries] == [Begin, End]
    (doubt,) = doubts
    assert doubt.startswith(f"not believed: {path}, line 2: ")
    assert doubt.isprintable() and len(doubt) < 1000


def test_many_bad_lines_are_counted_and_not_all_named(tmp_path):
    path = journal(tmp_path, b"bad\n" * 1000, BEGIN, b"\n")
    entries, doubts = read_journal(path)
    assert len(entries) == 1 and len(doubts) == records.NAMED + 1
    assert doubts[-1] == f"not believed: {1000 - records.NAMED} more lines of {path}"


@pytest.mark.parametrize("line", [b"bad\n", b"{\n", b"{}\n"])
def test_a_file_of_nothing_but_bad_lines_is_no_journal_and_is_not_read_to_its_end(
    tmp_path, monkeypatch, line
):
    path, read = journal(tmp_path, line * 10**5), []
    monkeypatch.setattr(records, "cut_off", lambda text: read.append(text) or cut_off(text))
    with pytest.raises(Refused, match=r"a0.jsonl, line 1001: .*this is no journal: move it away"):
        read_journal(path)
    assert len(read) == records.WRONG_MOST + 1


def test_a_line_longer_than_any_of_ours_is_named_without_its_text(tmp_path):
    path = journal(tmp_path, b'{"task": "' + b"x" * 2**20 + b'"}\n', BEGIN, b"\n")
    entries, (doubt,) = read_journal(path)
    assert len(entries) == 1 and "line 1: 1,048,588 bytes in one line" in doubt and len(doubt) < 300


def test_unknown_tasks_and_paths_of_a_journal_lead_nowhere(state, task):
    with to_append(state.journal) as file:
        for name in ("../../etc", "/etc", "..", task.id + "/.."):
            add(file, msgspec.convert(END | {"task": name}, End))
    (standing,) = survey(state.out, [task])
    assert (standing.state, standing.record.ended) == (LEFT, [])


def test_a_line_is_cut_off_only_if_more_of_json_could_follow():
    assert cut_off(b'{"task": "t", "atte') and cut_off(b"{")
    for line in (b"[1, 2", b'{"task": 1]', b'{"task": "t"}', b'{"task": "t, "at": 1}', b""):
        assert not cut_off(line)


@pytest.mark.parametrize(
    "changed",
    [{"id": "-x"}, {"id": "4\n5"}, {"id": "../4"}, {"id": ""}, {"id": "$(rm)"}, {"id": 7}, {"after": "--all"},
     {"scheduler": "lsf"}, {"scheduler": []}, {"node_hours": -1}, {"node_hours": "nan"}, {"elements": 0}, {"name": {}}],
    ids=str,
)  # fmt: skip
def test_a_line_of_the_register_that_could_be_an_option_or_a_path_is_refused_by_its_line(tmp_path, changed):
    path = journal(tmp_path, SUBMISSION, b"\n")
    assert read_register(path) == [msgspec.convert(SUBMISSION, Submission)]
    path = journal(tmp_path, SUBMISSION, b"\n", SUBMISSION | changed, b"\n")
    with pytest.raises(Refused, match=r"a0.jsonl, line 2: "):
        read_register(path)
