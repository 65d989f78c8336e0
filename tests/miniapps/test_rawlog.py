"""The raw log of a preloaded program is used only as far as it was checked."""

import fcntl
import shutil

import numpy as np
import pytest

from miniapps.programs import calltrace, coverage, observing, places, rawlog
from miniapps.programs.command import arguments_of, name_of
from miniapps.programs.numbering import steps
from miniapps.trace import read, read_run
from miniapps.untrusted.regular import Refused
from tests.miniapps.raw_logs import mixed, rows, text_lines, write_raw


def test_a_log_is_read_and_becomes_a_trace(tmp_path):
    texts = [
        {"site": 77, "functions": [["/nowhere/app", 66], ["/nowhere/app", 80]], "lines": []}, {"op": 0, "name": "sum"},
        {"type": 0, "name": "MPI_DOUBLE"}, {"library": "MPICH Version: 9, more"},
        {"command": ["./app", "-n", "3"], "guarantee": "none", "replay": "", "run_id": "app-1", "started": "2026"},
    ]  # fmt: skip
    log = rawlog.read(write_raw(tmp_path / "raw-00000.log", rows(), texts=texts))
    assert (log.rank, log.size, len(log.records), log.library) == (0, 1, 20, "MPICH Version: 9, more")
    calltrace.write(log, tmp_path)
    (trace,) = read_run(tmp_path)
    assert trace.complete
    assert trace.attributes["app"] == "app"
    assert set(trace.names) == {
        "MPI_Allreduce at app+0x42 from app+0x50", "added:MPI_Allreduce at app+0x42 from app+0x50 by rank 0 of 1",
        "total:MPI_Allreduce at app+0x42 from app+0x50", "MPI_DOUBLE",
    }  # fmt: skip
    (facts,) = trace.attributes["reductions"].values()
    assert (facts["calls"], facts["operation"], facts["dtype"], facts["guarantee"]) == (
        20,
        "sum",
        "float64",
        "none",
    )
    assert (facts["collective"], facts["wire"]) == ("allreduce", "as is")
    assert trace.tables["events"]["start"].tolist() == log.records["begin"].tolist()


def test_calls_on_files_have_their_form_and_their_place(tmp_path):
    made = mixed(20)[5:17]
    texts = [{"opened": 1, "name": "out.dat"}, {"opened": 2, "name": "x" * 5000}]
    calltrace.write(rawlog.read(write_raw(tmp_path / "raw-00000.log", made, texts=texts)), tmp_path)
    (trace,) = read_run(tmp_path)
    assert trace.attributes["files"] == {"1": "out.dat", "2": "x" * 4096}
    calls = [trace.names[name].partition(" ")[0] for name in trace.tables["events"]["name"]]
    assert calls[:7] == ["MPI_File_write", "MPI_File_iwrite_at", "MPI_File_write_shared_begin", "MPI_File_write_all",
                         "MPI_File_write_at_all", "MPI_File_write_ordered", "MPI_File_iread"]  # fmt: skip
    assert set(trace.attributes["regions"].values()) == {"file"}
    assert trace.tables["events"]["step"].tolist() == [
        0,
        0,
        0,
        0,
        1,
        2,
        3,
        3,
        3,
        3,
        4,
        5,
    ]  # collective ones count
    values = trace.tables["values"]
    said = {}
    for name, after, value in zip(values["name"], values["after"], values["value"], strict=True):
        said.setdefault(int(after), []).append((trace.names[name].partition(":")[0], value))
    assert 5 not in said and 10 not in said  # those that failed
    assert said[1] == [("file", 1)]  # an unknown place
    assert said[4] == [("file", 1), ("view offset", 128)] and said[3] == [("file", 1), ("offset", 64)]


def test_one_sided_calls_have_their_form_and_their_target(tmp_path):
    made = mixed()[17:26]
    calltrace.write(rawlog.read(write_raw(tmp_path / "raw-00000.log", made)), tmp_path)
    (trace,) = read_run(tmp_path)
    calls = [trace.names[name].partition(" ")[0] for name in trace.tables["events"]["name"]]
    assert calls == ["MPI_Put", "MPI_Get", "MPI_Accumulate", "MPI_Get_accumulate", "MPI_Rfetch_and_op",
                     "MPI_Compare_and_swap", "MPI_Win_fence", "MPI_Win_wait", "MPI_Win_test"]  # fmt: skip
    assert trace.tables["events"]["step"].tolist() == [0, 0, 0, 0, 0, 0, 0, 1, 1]  # a fence counts
    prefixes = {trace.names[name].partition(":")[0] for name in trace.tables["fingerprints"]["name"]}
    assert prefixes == {"origin", "fetched", "window"}
    assert {trace.names[name].partition(":")[0] for name in trace.tables["values"]["name"]} == {
        "target",
        "displacement",
    }


def test_a_line_that_the_library_answers_in_part_promises_what_the_library_does(tmp_path):
    records = rows()
    records["flags"][5:] = rawlog.REPLACED
    texts = [{"command": ["./app"], "guarantee": "exact", "replay": "", "run_id": "app-1", "started": "2026"}]
    calltrace.write(rawlog.read(write_raw(tmp_path / "raw-00000.log", records, texts=texts)), tmp_path)
    (trace,) = read_run(tmp_path)
    (facts,) = trace.attributes["reductions"].values()
    assert (facts["guarantee"], facts["accumulation"], facts["calls"]) == ("none", "working", 20)


@pytest.mark.parametrize("seed", range(8))
def test_rows_of_a_long_log_keep_the_names_of_their_calls(seed, monkeypatch, tmp_path):
    """A log is taken piece by piece; places, types and communicators come up in any of them."""
    monkeypatch.setattr(calltrace, "PIECE", 16)
    draw = np.random.default_rng(seed)
    n, places = 150, 40
    made = rows(n)
    made["site"] = 1 + np.minimum(np.arange(n) * places // n, draw.integers(0, places, n))
    made["comm"], made["type"] = (
        draw.integers(0, 1 + np.arange(n) // 30),
        draw.integers(0, 1 + np.arange(n) // 50),
    )
    texts = [
        {"site": site, "functions": [["/nowhere/app", site]], "lines": []} for site in range(1, places + 1)
    ]
    texts += [{"comm": number, "name": f"dup {number}" if number else "", "born": 0} for number in range(5)]
    texts += [{"type": number, "name": f"MPI_T{number}"} for number in range(3)]
    calltrace.write(rawlog.read(write_raw(tmp_path / "raw-00000.log", made, texts=texts)), tmp_path)
    (trace,) = read_run(tmp_path)
    calls = [
        f"MPI_Allreduce at app+{row['site']:#x}" + f" on dup {row['comm']}" * bool(row["comm"])
        for row in made
    ]
    events, prints, sizes = (trace.tables[table] for table in ("events", "fingerprints", "sizes"))
    assert [trace.names[name] for name in events["name"]] == calls
    assert [trace.names[name] for name in prints["name"]] == [
        name for call in calls for name in (f"added:{call} by rank 0 of 1", f"total:{call}")
    ]
    assert [trace.names[name] for name in sizes["dtype"]] == [
        f"MPI_T{of}" for of in made["type"] for _ in "io"
    ]


def test_calls_stand_in_the_order_in_which_they_began(tmp_path):
    """Requests end in any order; what a call is compared with may not depend on it."""
    ended = rows()[order := np.random.default_rng(3).permutation(20)]
    log = rawlog.read(write_raw(tmp_path / "raw-00000.log", ended))
    assert log.records["number"].tolist() == list(range(20))
    assert not np.array_equal(order, np.arange(20))


def test_steps_of_threads_follow_their_communicators(tmp_path):
    """Two threads take turns by chance; the calls of each communicator have the same steps in every run."""
    texts = [{"comm": 0, "name": "", "born": 0}, {"comm": 1, "name": "dup 1", "born": 4}]
    seen = set()
    for seed in range(5):
        made = rows(24)
        made["comm"][4:] = np.random.default_rng(seed).permutation([0] * 10 + [1] * 10)
        made["flags"][made["comm"] == 1] |= rawlog.OTHER_THREAD
        log = rawlog.read(write_raw(tmp_path / "raw-00000.log", made, texts=texts))
        found = steps(log)
        assert found[made["comm"] == 0].tolist() == list(range(14))
        assert found[made["comm"] == 1].tolist() == list(range(4, 14))
        seen.add(tuple(found.tolist()))
    assert len(seen) > 1


@pytest.mark.parametrize(
    ("operation", "dtype", "flags", "why"),
    [
        ("user operation", "MPI_DOUBLE", 0, "user operation"),
        ("sum", "MPI_DOUBLE", rawlog.NONBLOCKING, "nonblocking"),
        ("sum", "MPI_DOUBLE", rawlog.NONBLOCKING | rawlog.PERSISTENT, "persistent"),
        ("sum", "MPI_LONG_DOUBLE", 0, "type MPI_LONG_DOUBLE"),
        ("prod", "MPI_FLOAT", 0, "product"),
        ("sum", "MPI_DOUBLE", rawlog.INTER, "intercommunicator"),
        ("sum", "MPI_DOUBLE", rawlog.REPLACED, ""),
        ("sum", "MPI_INT64_T", 0, ""),
        ("max", "MPI_DOUBLE", 0, ""),
        ("maxloc", "MPI_DOUBLE_INT", 0, ""),
    ],
)
def test_sums_that_a_guarantee_did_not_reach_are_named(operation, dtype, flags, why, tmp_path):
    made = rows(5)
    made["flags"], made["comm_size"] = flags, 4
    texts = [
        {"site": 77, "functions": [["/nowhere/app", 66]], "lines": []}, {"op": 0, "name": operation},
        {"type": 0, "name": dtype}, {"command": ["./app"], "guarantee": "exact"},
    ]  # fmt: skip
    log = rawlog.read(write_raw(tmp_path / "raw-00000.log", made, texts=texts))
    lacking = calltrace.write(log, tmp_path)
    assert [(of["why"], of["calls"]) for of in lacking] == ([(why, 5)] if why else [])
    (trace,) = read_run(tmp_path)
    assert trace.attributes["unreached"] == lacking
    said = coverage.sentences(log, lacking)
    assert said == (
        [f"5 of 5 sums on rank 0 kept the library's order: {why}: 5 {lacking[0]['call']}"] if why else []
    )


def test_sums_at_one_line_have_each_their_own_reason(tmp_path):
    """The first call of a line decides nothing for the others: it may be a maximum."""
    made = rows(9)
    made["comm_size"], made["op"], made["type"] = 4, [0, 1, 2, 0, 1, 2, 3, 3, 3], [0, 0, 0, 0, 0, 0, 0, 1, 1]
    made["flags"] = np.where((made["op"] == 3) & (made["type"] == 0), rawlog.REPLACED, 0)
    texts = [
        {"site": 77, "functions": [["/nowhere/app", 66]], "lines": []},
        *({"op": i, "name": name} for i, name in enumerate(("max", "user operation", "prod", "sum"))),
        {"type": 0, "name": "MPI_DOUBLE"}, {"type": 1, "name": "MPI_LONG_DOUBLE"},
        {"command": ["./app"], "guarantee": "exact"},
    ]  # fmt: skip
    lacking = calltrace.write(rawlog.read(write_raw(tmp_path / "raw-00000.log", made, texts=texts)), tmp_path)
    assert sorted((of["why"], of["calls"]) for of in lacking) == [
        ("product", 2), ("type MPI_LONG_DOUBLE", 2), ("user operation", 2),
    ]  # fmt: skip
    (trace,) = read_run(tmp_path)
    (facts,) = trace.attributes["reductions"].values()
    assert (facts["operation"], facts["dtype"], facts["calls"], facts["guarantee"]) == ("", "", 9, "none")


def test_a_log_without_its_end_is_an_incomplete_trace(tmp_path):
    log = rawlog.read(write_raw(tmp_path / "raw-00000.log", rows(7), ended=0))
    calltrace.write(log, tmp_path)
    (trace,) = read_run(tmp_path)
    assert not trace.complete
    assert len(trace.tables["events"]["start"]) == 7


TEXTS = [
    {"command": ["./app", "4"], "guarantee": "none", "replay": "", "run_id": "app-1", "started": "2026"},
    {"site": 77, "functions": [["/nowhere/app", 66]], "lines": []}, {"op": 0, "name": "sum"},
    {"type": 0, "name": "MPI_DOUBLE"}, {"comm": 0, "name": "", "born": 0}, {"counted": ["MPI_Put", "MPI_Get"]},
]  # fmt: skip
UNSEEN = [3, 4] + [0] * (rawlog.MOST_COUNTED - 2)


@pytest.mark.parametrize("ended", [9, 0])
def test_no_bit_of_a_log_may_change(ended, tmp_path):
    """Of the header, of each record and of the texts: another trace is never made of them."""
    path = write_raw(tmp_path / "raw-00000.log", rows(), ended, texts=TEXTS, unseen=UNSEEN)
    log, whole = rawlog.read(path), path.read_bytes()
    texts = path.with_suffix(".txt").read_bytes()
    generator, known = np.random.default_rng(3), said(log)
    places = [
        *range(0, 80, 2),
        *range(80, rawlog.HEADER.itemsize - 40, 97),
        *range(rawlog.HEADER.itemsize - 40, rawlog.HEADER.itemsize, 3),
        *range(rawlog.PAGE, rawlog.PAGE + 20 * rawlog.RECORD.itemsize, 61),
    ]
    letters = [*range(0, texts.rindex(b"\n"), 9), texts.rindex(b"\n")]
    for file, content, at in ((path, whole, places), (path.with_suffix(".txt"), texts, letters)):
        for place in at:
            changed = bytearray(content)
            changed[place] ^= 1 << int(generator.integers(8))
            file.write_bytes(changed)
            try:
                assert said(rawlog.read(path)) == known  # what nobody believes
            except Refused as refusal:
                assert str(path.with_suffix("")) in str(refusal)
        file.write_bytes(content)
    assert said(rawlog.read(path)) == known


@pytest.mark.parametrize("words", [("unseen", 1, 0), ("unseen", 0, 5), ("unseen_of_all", 1, 0)])
def test_the_word_of_a_counter_is_not_that_of_another(words, tmp_path):
    """Blocks that changed places, and zeros, have no wrong bit of their own."""
    name, one, other = words
    path = write_raw(tmp_path / "raw-00000.log", rows(), ended=0, texts=TEXTS, unseen=UNSEEN)
    head = np.memmap(path, rawlog.HEADER, "r+", shape=(1,))
    head[name][0, [one, other]] = head[name][0, [other, one]]
    with pytest.raises(Refused, match="a count of calls"):
        rawlog.read(path)
    head[name][0, one] = 0
    with pytest.raises(Refused, match="a count of calls"):
        rawlog.read(path)


def said(log):
    """What a trace is made of."""
    return (
        log.rank, log.size, log.began, log.ended, log.offset, log.records.tobytes(), log.places.by_number, log.types,
        log.operations, log.communicators, log.unseen, log.unseen_of_all, log.command, log.guarantee, log.run_id,
    )  # fmt: skip


def test_a_log_that_was_cut_off_may_have_one_record_more_than_it_says(tmp_path):
    path = write_raw(tmp_path / "raw-00000.log", rows(), ended=0, committed=19, texts=TEXTS)
    assert len(rawlog.read(path).records) == 20
    write_raw(path, rows(), ended=0, committed=18, texts=TEXTS)
    with pytest.raises(Refused, match="more records than the 18"):
        rawlog.read(path)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda path: path.rename(path.with_name("raw-00001.log")), "give it its name back, raw-00000.log"),
        (lambda path: path.with_suffix(".txt").unlink(), "is missing"),
        (lambda path: path.with_suffix(".txt").write_bytes(text_lines(TEXTS[:3])[0]), "lines are missing"),
        (
            lambda path: path.with_suffix(".txt").write_bytes(text_lines([b"[" * 10**5])[0]),
            "lines are missing",
        ),
        (lambda path: write_raw(path, rows(), texts=[*TEXTS, b"[" * 10**5]), "deep"),
        (lambda path: write_raw(path, rows(), texts=[*TEXTS, b"{"]), "not JSON"),
        (
            lambda path: write_raw(path, rows(), ended=0, committed=20, change=lambda head: head.fill(0)),
            "version",
        ),
        (
            lambda path: path.write_bytes(
                path.read_bytes()[: rawlog.PAGE - 1] + b"!" + path.read_bytes()[rawlog.PAGE :]
            ),
            "first page is not empty",
        ),
    ],
)
def test_what_a_log_may_not_be(change, words, tmp_path):
    path = write_raw(tmp_path / "raw-00000.log", rows(), texts=TEXTS)
    change(path)
    with pytest.raises(Refused, match=words):
        rawlog.read(next(tmp_path.glob("*.log")))


def test_a_log_is_kept_until_its_trace_was_read_back(tmp_path, monkeypatch, capsys):
    """Nothing is removed before what it holds lies elsewhere, and each log is by itself."""
    for rank in range(6):
        write_raw(tmp_path / f"raw-{rank:05d}.log", rows(), texts=TEXTS, rank=rank, size=6, here=rank != 5)
    damaged, wayward, moved, locked = (tmp_path / f"raw-{rank:05d}.log" for rank in (1, 2, 3, 4))
    flip(damaged, rawlog.PAGE + 300)
    shutil.copy(wayward, tmp_path / "rank-00002.h5")
    moved.rename(tmp_path / "raw-00007.log")
    moved.with_suffix(".txt").rename(tmp_path / "raw-00007.txt")
    kept = {path: path.read_bytes() for path in (damaged, wayward, tmp_path / "raw-00007.log", locked)}
    with open(locked, "r+b") as running:
        fcntl.flock(running, fcntl.LOCK_EX)
        assert observing.recover(tmp_path) == observing.FAILED
    err = capsys.readouterr().err
    for words in ("record 1 of 20 has changed", "is in the way of the trace of rank 2", "its name back, raw-00003.log",
                  "still runs", "2 traces written", "4 logs are kept", "a copy, so the trace"):  # fmt: skip
        assert words in err
    assert {path: path.read_bytes() for path in kept} == kept
    assert sorted(path.name for path in tmp_path.glob("*.h5")) == [f"rank-0000{n}.h5" for n in (0, 2, 5)]
    flip(damaged, rawlog.PAGE + 300)
    (tmp_path / "rank-00002.h5").unlink()
    for suffix in (".log", ".txt"):
        (tmp_path / f"raw-00007{suffix}").rename(tmp_path / f"raw-00003{suffix}")
    assert observing.recover(tmp_path) == 0
    assert [trace.attributes["rank"] for trace in read_run(tmp_path)] == list(range(6))
    assert not list(tmp_path.glob("raw-*"))


def flip(path, place):
    content = bytearray(path.read_bytes())
    content[place] ^= 1
    path.write_bytes(content)


def test_a_log_whose_trace_is_there_is_removed_and_another_is_not(tmp_path):
    """As after a kill between the two; a second conversion of the same log finds its own trace."""
    path = write_raw(tmp_path / "raw-00000.log", given := rows(), texts=TEXTS)
    observing.convert(path)
    trace = (tmp_path / "rank-00000.h5").read_bytes()
    observing.convert(write_raw(path, given, texts=TEXTS))
    assert not path.exists()
    with pytest.raises(Refused, match="is in the way"):
        observing.convert(write_raw(path, rows(), texts=TEXTS))
    assert path.exists() and (tmp_path / "rank-00000.h5").read_bytes() == trace
    assert not list(tmp_path.glob("*.draft"))


@pytest.mark.parametrize("how", ["lost", "changed", "raises"])
def test_a_trace_that_does_not_come_back_as_it_was_written_costs_no_log(how, tmp_path, monkeypatch):
    path = write_raw(tmp_path / "raw-00000.log", rows(), texts=TEXTS)
    fill = calltrace.fill

    def filled(draft, trace):
        given = fill(draft, trace)
        if how == "raises":
            raise OSError(28, "No space left on device")
        if how == "lost":
            draft.write_bytes(draft.read_bytes()[:-100])
        else:
            given[0]["events"] = bytes(16)
        return given

    monkeypatch.setattr(calltrace, "fill", filled)
    with pytest.raises(OSError):
        observing.convert(path)
    assert path.exists() and path.with_suffix(".txt").exists() and not list(tmp_path.glob("*.h5"))


def test_files_that_a_copied_log_names_are_not_opened(tmp_path, monkeypatch):
    """addr2line and others see the files of this user's own program alone."""
    asked = []
    monkeypatch.setattr(places, "lines_of", lambda file, at: asked.append(file) or [[] for _ in at])
    monkeypatch.setattr(calltrace, "digest_of", lambda program: asked.append(program) or "")
    target = tmp_path / "secret"
    target.write_bytes(b"\x7fELF")
    size, modified = target.stat().st_size, target.stat().st_mtime_ns
    texts = [*TEXTS, {"file": str(target), "bytes": size, "modified": modified},
             {"site": 9, "functions": [[str(target), 66]], "lines": []}]  # fmt: skip
    for here in (False, True):
        asked.clear()
        log = rawlog.read(write_raw(tmp_path / "raw-00000.log", rows(), texts=texts, here=here))
        calltrace.LogTrace(log).attributes()
        assert (str(target) in asked) is here and bool(asked) is here


def test_a_link_is_not_followed(tmp_path):
    target = write_raw(tmp_path / "elsewhere", rows(), texts=TEXTS)
    (tmp_path / "raw-00000.log").symlink_to(target)
    with pytest.raises(Refused, match="symbolic link"):
        rawlog.read(tmp_path / "raw-00000.log")


@pytest.mark.parametrize(
    ("command", "name"),
    [(["./app"], "app"), (["python3.11", "-u", "a/sim.py", "x"], "sim.py"), (["bash", "run.sh"], "run.sh"),
     (["python"], "python"), (["python", "-W", "ignore", "b/x.py"], "x.py"),
     (["python", "-m", "pkg.mod", "y"], "pkg.mod"),
     (["python", "-c", "print()"], "python")],
)  # fmt: skip
def test_a_program_is_named_by_its_file(command, name):
    assert name_of(command) == name


@pytest.mark.parametrize(
    ("one", "other", "same_but", "same"),
    [
        (["./app", "4"], ["/tmp/copy/app", "4"], (), True),
        (["python", "a/x.py", "4"], ["python3.12", "/b/x.py", "4"], (), True),
        (["python", "a/x.py", "a/in"], ["python", "b/x.py", "b/in"], (), False),
        (["./app", "-log", "a"], ["./app", "-log", "b"], (), False),
        (["./app", "-log", "a"], ["./app", "-log", "b"], ("a", "b"), True),
        (["./app", "-log", "a", "4"], ["./app", "-log", "b", "5"], ("a", "b"), False),
    ],
)
def test_places_of_programs_and_names_of_outputs_are_no_part_of_a_problem(one, other, same_but, same):
    assert (arguments_of(one, same_but) == arguments_of(other, same_but)) is same


def test_kinds_of_ranks_are_believed_only_if_they_name_every_rank(tmp_path):
    def kinds_of(name, *lines):
        (tmp_path / name).mkdir()
        texts = [{"kind": entries, "ranks": ranks} for entries, ranks in lines]
        log = rawlog.read(write_raw(tmp_path / name / "raw-00000.log", rows(), texts=texts, size=3))
        calltrace.write(log, tmp_path / name)
        trace = read(tmp_path / name / "rank-00000.h5")
        assert trace.attributes["environment"].get("kinds", []) == [kind.json() for kind in log.kinds]
        return [(kind.ranks, kind.entries) for kind in log.kinds]

    older, same = {"variables.MKL_CBWR": "AVX2", "python": "3"}, {"python": "3"}
    told = [((0, 2), {"variables.MKL_CBWR": "not set"}), ((1,), {"variables.MKL_CBWR": "AVX2"})]
    assert kinds_of("all", (same, [0, 2]), (older, [1])) == told
    assert kinds_of("one lacks", (same, [0]), (older, [1])) == []
    assert kinds_of("one too many", (same, [0, 2]), (older, [1, 3])) == []
    assert kinds_of("equal", (same, [0, 2]), (same, [1])) == []
    assert kinds_of("no ranks", (same, ["0", 2.0, None]), (older, [1])) == []
