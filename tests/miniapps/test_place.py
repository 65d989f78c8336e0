"""The directory of a run is watched: one that goes is noticed, never made again, and nothing is written elsewhere."""

import contextlib
import json
import os
import re
import resource
import signal
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
from mpi4py import MPI

from miniapps.errors import UsageError
from miniapps.runner import console, failure, launch, main
from miniapps.system import peers
from miniapps.system.interrupts import Terminated
from miniapps.system.place import Place, PlaceError
from miniapps.trace import Tracer, read, writer
from tests.launch import run_mpi
from tests.miniapps.vanishing import Mishap, exchanged, full, moved, removed, replaced, unlinked

PROGRAM = Path(__file__).parent / "programs" / "vanishing.py"
STATE = "FINGERPRINT state=[0-9a-f]{32}"


@pytest.fixture(autouse=True)
def _as_before(monkeypatch):
    """What happens to a run here may be an answer of the system."""
    alarm = signal.getsignal(signal.SIGALRM)
    monkeypatch.setattr(failure, "HEARD_S", 0.0)
    monkeypatch.setattr(os, "access", os.access)
    yield
    signal.alarm(0)
    signal.signal(signal.SIGALRM, alarm)


@contextlib.contextmanager
def limits_as_before():
    """Before pytest writes of the test, maybe to a file."""
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)


def started(mishap, out, monkeypatch, *more, often=True):
    """The exit code of a run on one rank in which it happens; `often`: rows are written in every step."""
    monkeypatch.setattr(writer, "INTERVAL_NS", -1 if often else 10**18)
    with limits_as_before():
        return main.main(mishap.app(), ["--out", str(out), "--log-level", "error", *more], MPI.COMM_SELF)


def names(folder):
    return sorted(path.name for path in folder.iterdir())


def result(run):
    return json.loads((run / "result.json").read_text())


def unwritable(out):
    """What the system says of a directory that was made immutable, or whose mode was changed, but to root."""
    os.access = lambda path, mode: path != out


MISHAPS = [
    (
        removed,
        "directory .* was removed during the run, with everything written so far; start",
        {},
    ),
    (
        replaced,
        "directory .* was removed during the run, .*; something else has its name now; start",
        {"run": []},
    ),
    (
        moved,
        "directory .* was moved to .*run-moved during the run, and the files written so far are there",
        {"run-moved": ["rank-00000.h5", "result.json"]},
    ),
    (
        exchanged,
        "directory .* was moved to .*run-moved during",
        {"run": [], "run-moved": ["rank-00000.h5", "result.json"]},
    ),
    (unlinked, "the trace of rank 0, .*rank-00000.h5, was removed during", {"run": ["result.json"]}),
    (unwritable, r"can no longer be written to \(mode drwx", {"run": ["rank-00000.h5", "result.json"]}),
]
each_mishap = pytest.mark.parametrize("happen, reason, left", MISHAPS, ids=[m[0].__name__ for m in MISHAPS])


@each_mishap
def test_it_is_noticed_when_rows_are_written(happen, reason, left, tmp_path, monkeypatch, capsys):
    mishap = Mishap(happen, step=3)
    assert started(mishap, tmp_path / "run", monkeypatch) == 1
    assert mishap.steps == [1, 2, 3]
    out, err = capsys.readouterr()
    assert out == ""
    message, where, *_ = err.splitlines()
    assert re.match(
        f"vanishing: rank 0 of 1, repeat 0, step 4: .*{reason}.*leave its directory alone", message
    )
    assert "Traceback" not in err
    assert {folder.name: names(folder) for folder in tmp_path.iterdir()} == left
    for run in (folder for folder in tmp_path.iterdir() if "result.json" in names(folder)):
        assert (result(run)["status"], result(run)["error"]) == ("failed", message)
        if happen is not unlinked:
            assert where == f"  trace: {run / 'rank-00000.h5'} (marked incomplete)"
            trace = read(run / "rank-00000.h5")
            assert not trace.complete and trace.tables["values"]["value"].tolist() == [1.0, 2.0, 3.0]
    assert ("is lost" in where) == (happen in (removed, replaced, unlinked))


@each_mishap
def test_at_the_end_the_results_are_printed_without_a_verdict(
    happen, reason, left, tmp_path, monkeypatch, capsys
):
    assert started(Mishap(happen, step=6), tmp_path / "run", monkeypatch, often=False) == 1
    out, err = capsys.readouterr()
    assert re.fullmatch(f"FOM steps=6\n{STATE}\n", out)
    message, *more = err.splitlines()
    assert re.match(f"vanishing: rank 0 of 1: .*{reason}.*leave its directory alone", message)
    assert more == ["  results: on standard output, since the run finished"]
    assert {folder.name: names(folder) for folder in tmp_path.iterdir()} == left
    for run in (folder for folder in tmp_path.iterdir() if "result.json" in names(folder)):
        assert [result(run)[key] for key in ("status", "exit_code", "error")] == ["failed", 1, message]
        assert happen is unlinked or not read(run / "rank-00000.h5").complete


def test_the_bits_of_repeats_that_were_done_are_in_the_message(tmp_path, monkeypatch, capsys):
    assert started(Mishap(removed, step=3), tmp_path / "run", monkeypatch, "--repeats", "3") == 1
    done = [line for line in capsys.readouterr().err.splitlines() if "FINGERPRINT" in line]
    assert [bool(re.fullmatch(f"  repeat {k} was done: {STATE}", line)) for k, line in enumerate(done)] == [
        True
    ] * 2


def test_an_immutable_directory_is_one_that_cannot_be_written_to(tmp_path):
    directory = Place(tmp_path)
    if subprocess.run(["chattr", "+i", tmp_path], capture_output=True).returncode:
        pytest.skip("no immutable directories for this user or on this file system")
    try:
        assert "can no longer be written to" in directory.trouble()
    finally:
        subprocess.run(["chattr", "-i", tmp_path], check=True)
    assert directory.trouble() == "" and directory.require() == tmp_path


def test_files_of_an_application_go_to_no_other_directory(tmp_path, monkeypatch, capsys):
    """`ctx.directory()`, through which applications write, between two looks at the trace."""
    mishap, reached = Mishap(exchanged, step=3), []

    def run(ctx):
        def happen(out):
            exchanged(out)
            reached.append(ctx.directory())

        mishap.happen = happen
        return Mishap.run(mishap, ctx)

    mishap.run = run
    assert started(mishap, tmp_path / "run", monkeypatch, often=False) == 1
    assert reached == [] and names(tmp_path / "run") == []
    assert names(tmp_path / "run-moved") == ["rank-00000.h5", "result.json"]  # no traceback of a clear error
    assert re.search("was moved to .*run-moved during", capsys.readouterr().err)


def test_a_link_that_others_lead_elsewhere_is_noticed(tmp_path, monkeypatch, capsys):
    for name in ("first", "second"):
        (tmp_path / name).mkdir()
    (tmp_path / "run").symlink_to("first")

    def led_elsewhere(out):
        out.unlink()
        out.symlink_to("second")

    assert started(Mishap(led_elsewhere, step=3), tmp_path / "run", monkeypatch) == 1
    assert f"was moved to {tmp_path / 'first'} during" in capsys.readouterr().err
    assert names(tmp_path / "first") == ["rank-00000.h5", "result.json"] and names(tmp_path / "second") == []


@pytest.mark.parametrize("kind", ["file", "link", "dangling link"])
def test_a_result_that_others_put_there_is_left_as_it_is(kind, tmp_path, monkeypatch, capsys):
    precious = tmp_path / "precious"

    def put(out):
        if kind == "file":
            (out / "result.json").write_text("precious")
        else:
            (out / "result.json").symlink_to(precious)
            if kind == "link":
                precious.write_text("precious")

    assert started(Mishap(put, step=3), tmp_path / "run", monkeypatch) == 1
    out, err = capsys.readouterr()
    assert re.search(STATE, out) and "VERIFICATION" not in out
    assert "result.json cannot be written: File exists; start the run again" in err
    assert names(tmp_path / "run") == ["rank-00000.h5", "result.json"]
    assert (tmp_path / "run" / "result.json").is_symlink() == (kind != "file")
    assert precious.exists() == (kind == "link")
    assert kind == "dangling link" or (tmp_path / "run" / "result.json").read_text() == "precious"


def test_of_two_runs_that_begin_in_one_directory_the_later_leaves_the_other_its_result(
    tmp_path, monkeypatch, capsys
):
    """Both have found it empty; the later one has not got a trace of its own, and no right to say how the run ended."""
    monkeypatch.setattr(launch, "directory", lambda out: out)
    earlier = Tracer(tmp_path / "rank-00000.h5", {"rank": 0})
    assert started(Mishap(full, step=3), tmp_path, monkeypatch) == 1
    assert (
        "rank-00000.h5, cannot be created: File exists; another run writes there" in capsys.readouterr().err
    )
    assert names(tmp_path) == ["rank-00000.h5"]
    earlier.close()
    assert read(tmp_path / "rank-00000.h5").complete


def test_a_directory_is_new_or_empty_also_behind_a_link(tmp_path):
    (tmp_path / "used").mkdir()
    (tmp_path / "used" / ".hidden").touch()
    (tmp_path / "empty").mkdir()
    for name in ("used", "empty", "nowhere"):
        (tmp_path / f"to-{name}").symlink_to(name)
    (tmp_path / "file").touch()
    assert launch.directory(tmp_path / "to-empty") == tmp_path / "to-empty"
    for name, reason in (
        ("used", "not empty, it has .hidden"),
        ("to-used", "not empty, it has .hidden"),
        ("to-nowhere", "cannot be created: File exists"),
        ("file", "cannot be created: File exists"),
    ):
        with pytest.raises(UsageError, match=f"--out .*{name}: .*{reason}"):
            launch.directory(tmp_path / name)
    assert names(tmp_path) == ["empty", "file", "to-empty", "to-nowhere", "to-used", "used"]


def test_a_disk_that_is_full_at_the_end_leaves_results_and_no_draft(tmp_path, monkeypatch, capsys):
    assert started(Mishap(full, step=6), tmp_path / "run", monkeypatch, "--repeats", "2", often=False) == 1
    out, err = capsys.readouterr()
    assert re.fullmatch(f"FOM steps=6\n{STATE} repeat=0\n{STATE} repeat=1\n", out)
    assert err.count("vanishing:") == 1 and "File too large; make room" in err
    assert names(tmp_path / "run") == ["rank-00000.h5"]
    assert not read(tmp_path / "run" / "rank-00000.h5").complete


def test_a_log_that_cannot_be_written_is_told_once_and_ends_no_run(tmp_path, capsys):
    path = tmp_path / "rank-00000.log"
    log = console.logger("test", 0, "info", path)
    log.info("before")
    with limits_as_before():
        full(tmp_path)
        log.info("x" * 1000)
        log.info("y" * 1000)
        console.close(log)
    lines = [line for line in capsys.readouterr().err.splitlines() if "INFO" not in line]
    assert lines == [f"the log {path} cannot be written: [Errno 27] File too large"]
    assert "before" in path.read_text()
    with pytest.raises(FileExistsError):
        console.logger("test", 0, "info", path)


def test_a_file_is_written_whole_or_not_at_all(tmp_path):
    directory = Place(tmp_path)
    directory.write("note.txt", "text \udcff\n")
    assert (tmp_path / "note.txt").read_text() == "text \\udcff\n"
    with limits_as_before():
        full(tmp_path)
        with pytest.raises(OSError, match="File too large"):
            directory.write("more.txt", "x" * 10_000)
    with pytest.raises(FileExistsError):
        directory.write("note.txt", "other")
    assert names(tmp_path) == ["note.txt"]


def test_a_file_system_without_links_loses_nothing_either(tmp_path, monkeypatch):
    def refuse(*args, **kwargs):
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr(os, "link", refuse)
    directory = Place(tmp_path)
    directory.write("note.txt", "text")
    with pytest.raises(FileExistsError):
        directory.write("note.txt", "other")
    assert names(tmp_path) == ["note.txt"] and (tmp_path / "note.txt").read_text() == "text"


def test_a_directory_that_a_rank_cannot_open_is_named(tmp_path):
    with pytest.raises(PlaceError, match=r"nowhere, cannot be opened: No such file.*that all nodes share"):
        Place(tmp_path / "nowhere")


def test_of_several_that_fail_one_speaks_though_nothing_can_be_written(tmp_path):
    first, second = Place(tmp_path), Place(tmp_path)
    tmp_path.rmdir()
    assert first.claim() and first.claim() and not second.claim()
    first.close()
    assert second.claim()


class Gone(Exception):
    """What the Abort of `ranks` raises."""


def ranks(rank, size):
    """The little of a communicator that a failure needs."""

    def abort(code):
        raise Gone(code)

    return SimpleNamespace(rank=rank, size=size, Abort=abort)


def failed(error, tmp_path, seen):
    """result.json, and the message, of rank 0 of 3 that fails while rank 1 is the process with the id `seen`."""
    pids = [os.getpid(), seen, 2**30]  # rank 2 cannot be seen from here
    node = SimpleNamespace(allgather=lambda own: [(r, pid, peers.alive(pid)) for r, pid in enumerate(pids)])
    processes = peers.peers_of(node, 0)
    assert sorted(processes) == [0, 1]
    context = SimpleNamespace(
        result=lambda status, code: {"status": status, "exit_code": code},
        options=SimpleNamespace(log_level="info"),
    )
    yield
    state = failure.State(context, Place(tmp_path), processes)
    with pytest.raises(Gone):
        failure.fail(error, "test", ranks(0, 3), state)
    yield result(tmp_path)


@pytest.mark.parametrize("error", [Terminated(), MPI.Exception(MPI.ERR_OTHER)], ids=["SIGTERM", "MPI"])
def test_a_rank_that_was_killed_is_blamed_and_not_the_one_that_notices(error, tmp_path, capsys):
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as other:
        run = failed(error, tmp_path, other.pid)
        next(run)
        os.kill(other.pid, signal.SIGKILL)
        os.waitid(os.P_PID, other.pid, os.WEXITED | os.WNOWAIT)  # dead, and listed as long as nobody asks
        outcome = next(run)
    assert (outcome["failed_rank"], outcome["exit_code"]) == (1, 1)
    assert (
        "rank 1 of 3 died without a word: killed, or out of memory; noticed by rank 0 of 3"
        in outcome["error"]
    )
    assert capsys.readouterr().err.startswith(outcome["error"])


@pytest.mark.parametrize(
    ("error", "blamed"), [(Terminated(), None), (KeyboardInterrupt(), None), (ValueError(), 0)]
)
def test_a_rank_that_is_told_to_end_blames_nobody_and_one_that_fails_itself(error, blamed, tmp_path):
    run = failed(error, tmp_path, os.getppid())
    next(run)
    outcome = next(run)
    assert outcome["failed_rank"] == blamed and "rank 0 of 3: " in outcome["error"]


def only(word, text):
    return [line for line in text.splitlines() if line.startswith(word)]


def test_the_ranks_that_the_launcher_ends_say_which_one_was_killed(tmp_path):
    """Open MPI's sends them SIGTERM first, MPICH's SIGKILL."""
    run = run_mpi(3, [PROGRAM, tmp_path, "killed"], "openmpi")
    assert run.returncode not in (0, 2, 3)
    (message,) = only("vanishing:", run.stderr)
    assert re.match(
        r"vanishing: rank 1 of 3 died without a word: .*noticed by rank [02] of 3, .*SIGTERM", message
    )
    outcome = result(tmp_path / "killed")
    assert (outcome["failed_rank"], outcome["exit_code"], outcome["error"]) == (1, 1, message)


@pytest.mark.parametrize(
    ("library", "last"), [("mpich", "mid-all"), pytest.param("openmpi", "mid-one", marks=pytest.mark.slow)]
)
def test_ranks_agree_on_what_one_of_them_notices(library, last, tmp_path):
    run = run_mpi(3, [PROGRAM, tmp_path, "end-one", "end-all", last], library)
    assert run.returncode == 1, run.stderr
    one, every, mid = only("vanishing:", run.stderr)
    assert re.match("vanishing: rank 1 of 3: the trace of rank 1, .*end-one/rank-00001.h5, was removed", one)
    assert re.match("vanishing: rank 0 of 3: the directory of the run, .*end-all, was removed", every)
    assert re.match(r"vanishing: rank \d of 3, repeat 0, step [34]: the .*was removed", mid)
    assert len(only("FINGERPRINT", run.stdout)) == 2 and not only("VERIFICATION", run.stdout)
    assert result(tmp_path / "end-one")["failed_rank"] == 1
    assert not any(read(path).complete for path in (tmp_path / "end-one").glob("*.h5"))
    assert not (tmp_path / "end-all").exists() and not (tmp_path / "mid-all").exists()


def test_a_full_disk_is_told_once_and_leaves_no_drafts(tmp_path):
    run = run_mpi(3, [PROGRAM, tmp_path, "full"])
    assert run.returncode == 1, run.stderr
    (message,) = only("vanishing:", run.stderr)
    assert "File too large; make room" in message
    assert "  result.json: cannot be written: File too large" in run.stderr
    assert names(tmp_path / "full") == [f"rank-0000{rank}.h5" for rank in range(3)]
