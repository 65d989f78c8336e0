"""No byte of a journal, result, log, register or name reaches the terminal as anything but text."""

import json
import unicodedata

import msgspec
import pytest

from jobs import __main__ as jobs_main
from jobs.campaign import read
from jobs.files import append, to_append
from jobs.plan import plan
from jobs.records import Submission
from jobs.runner import run
from jobs.state import CHECK_FAILED, FAILED, look
from jobs.verdict import judge
from tests.jobs.campaigns import MPIRUN, SMALL, write
from tests.jobs.test_records import BEGIN, END, SUBMISSION
from tests.jobs.test_recovery import state, task, workload
from tests.jobs.test_state import finish

__all__ = ["state", "task", "workload"]  # fixtures

HOSTILE = "\x1b]0;gone\x07\x1b[2J\x9b31m[red]\u202egnp.exe\u2028\r\n[1/1] all done"


def clean(text):
    """Whether a terminal shows `text` as it is; lines end where the program ends them."""
    return all(c == "\n" or (unicodedata.category(c)[0] not in "C" and c not in "\u2028\u2029") for c in text)


def main(capsys, *argv):
    """(exit code, all that is printed) of a command."""
    try:
        code = jobs_main.main(list(map(str, argv)))
    except SystemExit as end:
        code = end.code
    printed = capsys.readouterr()
    return code, printed.out + printed.err


def test_what_journals_say_is_shown_and_not_obeyed(workload, state, task, capsys):
    lines = [END | {"task": task.id, "reason": HOSTILE, "moved": "failed/" + HOSTILE.replace("/", "")}]
    lines += [BEGIN | {"task": task.id, "attempt": HOSTILE}, {HOSTILE: HOSTILE}]
    with to_append(state.journal) as file:
        file.write("".join(json.dumps(line) + "\n" for line in lines).encode())
    for command in ("status", "plan", "collect"):
        code, printed = main(capsys, command, workload.campaign.path)
        assert clean(printed), command
        assert code == (0 if command == "plan" else 1)  # not all is done
    code, printed = main(capsys, "status", workload.campaign.path)
    assert r"[red]\u202egnp.exe\u2028\x0d\x0a[1/1] all done" in printed
    assert "not believed: " in printed and "a0.jsonl, line 2: " in printed and "line 3: " in printed


def test_a_lock_is_shown_and_not_obeyed(workload, state, capsys):
    state.lock_file.write_text(json.dumps({"host": HOSTILE, "pid": 7, "since": HOSTILE}))
    code, printed = main(capsys, "local", workload.campaign.path, "--mpirun", "true")
    assert (code, clean(printed)) == (1, True) and "process 7 on \\x1b]0;gone" in printed


def test_the_register_is_shown_and_not_obeyed(workload, state, capsys):
    (state.out / "jobs").mkdir()
    entry = SUBMISSION | {"id": HOSTILE, "name": HOSTILE}
    (state.out / "jobs" / "submitted.jsonl").write_text(json.dumps(entry))
    code, printed = main(capsys, "status", workload.campaign.path)
    assert (code, clean(printed)) == (1, True) and "submitted.jsonl, line 1: " in printed


def test_what_a_scheduler_says_is_shown_and_not_obeyed(workload, state, capsys, monkeypatch):
    psij = pytest.importorskip("psij", reason="the extra `jobs`: pip install psij-python")
    from jobs import executors

    (state.out / "jobs").mkdir()
    append(
        state.out / "jobs" / "submitted.jsonl",
        msgspec.convert(SUBMISSION | {"name": HOSTILE}, Submission),
    )
    status = psij.JobStatus(psij.JobState.QUEUED, message=HOSTILE)
    monkeypatch.setattr(executors, "statuses", lambda *_: {"41": status})
    code, printed = main(capsys, "status", workload.campaign.path)
    assert (code, clean(printed)) == (1, True)
    assert [line for line in printed.splitlines() if line.startswith("job 41 ")]
    assert "\n[1/1]" not in printed, "a message makes no lines of its own"


def test_what_a_result_says_is_shown_and_not_obeyed(state, task):
    run = finish(state, task, status="failed", exit_code=1, error=HOSTILE)
    outcome, reason = look(run, task.ranks)
    assert outcome == FAILED and clean(reason) and "\n" not in reason
    run.rename(state.out / "elsewhere")
    run = finish(state, task, exit_code=3, checks=[{"name": HOSTILE, "passed": False}])
    outcome, reason = look(run, task.ranks)
    assert outcome == CHECK_FAILED and clean(reason) and "\n" not in reason


@pytest.mark.skipif(not MPIRUN.exists(), reason="no mpirun beside the interpreter (pip install mpich)")
def test_what_a_program_prints_before_it_fails_is_shown_and_not_obeyed(tmp_path):
    """A stand-in for mpirun; one rank, so that no two have to find each other."""
    from jobs.launcher import here

    hostile = tmp_path / "hostile"
    hostile.write_text("#!/bin/sh\nprintf 'error: \\033]0;gone\\007[red]\\n'; exit 9\n")
    hostile.chmod(0o755)
    workload, lines = plan(read(write(tmp_path, SMALL, ranks="[1]"))), []
    run(workload, 0, here(str(hostile)), lines.append, allocation_id="a", pauses=[])
    assert r"exit code 9: error: \x1b]0;gone\x07[red]" in lines[1]
    assert clean("\n".join(lines))


def test_a_log_is_judged_by_its_last_bytes_and_only_if_it_is_one(state, task, tmp_path):
    log = tmp_path / "log"
    with open(log, "wb") as file:
        file.truncate(40 * 2**30)
        file.seek(0, 2)
        file.write(b"\nerror: at the end\n")
    ranks = state.ranks(task, 1)
    ranks.write_text("1\n" * task.ranks)
    attempt = (state.out / task.id, task, 9, log, ranks, 60)
    assert judge(*attempt)[1] == "exit code 9: error: at the end"
    log.unlink()
    log.symlink_to("/proc/self/environ")
    assert judge(*attempt)[1] == "exit code 9: no output"


def test_names_of_files_are_shown_and_not_obeyed(tmp_path, capsys):
    folder = tmp_path / "\x1b[2J\udcff"
    folder.mkdir()
    path = write(folder)
    code, printed = main(capsys, "plan", path)
    assert (code, clean(printed)) == (0, True) and r"\x1b[2J\xff" in printed
    for argv in (["plan", folder / "absent.toml"], ["plan", path, "--site", folder / "absent.toml"],
                 ["plan", path, "--site", HOSTILE], ["collect", path],
                 ["render", path, "--site", "local", "--environment", "/env"]):  # fmt: skip
        code, printed = main(capsys, *argv)
        assert code in (1, 2) and clean(printed) and r"\x1b" in printed, argv


def test_a_report_is_not_written_through_a_link(workload, state, task, tmp_path, capsys):
    finish(state, task)
    state.begin(task, 1, "a")
    state.end(task, 1, "done", "")
    (state.out / "report.html").symlink_to(tmp_path / "outside")
    code, printed = main(capsys, "collect", workload.campaign.path)
    assert code == 2 and "report.html: is a symbolic link, and the report is not written there" in printed
    assert not (tmp_path / "outside").exists()
