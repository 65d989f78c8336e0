"""The raw log of a preloaded program, believed only as far as it was checked."""

import json

import numpy as np
import pytest

from miniapps.programs import calltrace, coverage, rawlog
from miniapps.programs.command import arguments_of, name_of
from miniapps.programs.numbering import steps
from miniapps.received.regular import Refused
from miniapps.trace import read_run

MARKS = np.random.default_rng(5)


def write(path, rows, ended=9, committed=None, texts=()):
    head = np.zeros(1, rawlog.HEADER)
    head["magic"], head["version"], head["record_bytes"] = (
        rawlog.MAGIC,
        rawlog.VERSION,
        rawlog.RECORD.itemsize,
    )
    head["committed"], head["size"], head["ended"] = len(rows) if committed is None else committed, 1, ended
    path.write_bytes(head.tobytes().ljust(rawlog.PAGE, b"\0") + rows.tobytes() + bytes(1000))
    path.with_suffix(".txt").write_text("\n".join(json.dumps(text) for text in texts) + '\n{"site": 4, "fi')
    return path


def rows(n=20):
    made = np.zeros(n, rawlog.RECORD)
    made["begin"] = np.arange(n) * 10 + 5
    made["end"] = made["begin"] + 3
    made["number"], made["comm_size"], made["site"] = np.arange(n), 1, 77
    made["in"] = np.frombuffer(MARKS.bytes(16 * n), "V16")
    made["out"] = made["in"]
    return made


def test_a_log_is_read_and_becomes_a_trace(tmp_path):
    texts = [
        {"site": 77, "functions": [["/nowhere/app", 66], ["/nowhere/app", 80]], "lines": []}, {"op": 0, "name": "sum"},
        {"type": 0, "name": "MPI_DOUBLE"}, {"library": "MPICH Version: 9, more"},
        {"command": ["./app", "-n", "3"], "guarantee": "none", "replay": "", "run_id": "app-1", "started": "2026"},
    ]  # fmt: skip
    log = rawlog.read(write(tmp_path / "raw-00000.log", rows(), texts=texts))
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


def test_a_line_that_the_library_answers_in_part_promises_what_the_library_does(tmp_path):
    records = rows()
    records["flags"][5:] = rawlog.REPLACED
    texts = [{"command": ["./app"], "guarantee": "exact", "replay": "", "run_id": "app-1", "started": "2026"}]
    calltrace.write(rawlog.read(write(tmp_path / "raw-00000.log", records, texts=texts)), tmp_path)
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
    calltrace.write(rawlog.read(write(tmp_path / "raw-00000.log", made, texts=texts)), tmp_path)
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
    log = rawlog.read(write(tmp_path / "raw-00000.log", ended))
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
        log = rawlog.read(write(tmp_path / "raw-00000.log", made, texts=texts))
        found = steps(log)
        assert found[made["comm"] == 0].tolist() == list(range(14))
        assert found[made["comm"] == 1].tolist() == list(range(4, 14))
        seen.add(tuple(found.tolist()))
    assert len(seen) > 1


@pytest.mark.parametrize(
    ("operation", "dtype", "flags", "why"),
    [
        ("of the program", "MPI_DOUBLE", 0, "user operation"),
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
    log = rawlog.read(write(tmp_path / "raw-00000.log", made, texts=texts))
    lacking = calltrace.write(log, tmp_path)
    assert [(of["why"], of["calls"]) for of in lacking] == ([(why, 5)] if why else [])
    (trace,) = read_run(tmp_path)
    assert trace.attributes["unreached"] == lacking
    said = coverage.sentences(log, lacking)
    assert said == (
        [f"5 of 5 sums on rank 0 kept the library's order: {why}: 5 {lacking[0]['call']}"] if why else []
    )


def test_a_log_without_its_end_is_an_incomplete_trace(tmp_path):
    log = rawlog.read(write(tmp_path / "raw-00000.log", rows(), ended=0, committed=7))
    calltrace.write(log, tmp_path)
    (trace,) = read_run(tmp_path)
    assert not trace.complete
    assert len(trace.tables["events"]["start"]) == 7


@pytest.mark.parametrize("seed", range(300))
def test_damage_is_refused_or_read_and_nothing_else(seed, tmp_path):
    path = write(tmp_path / "raw-00000.log", rows())
    data, generator = bytearray(path.read_bytes()), np.random.default_rng(seed)
    for _ in range(generator.integers(1, 4)):
        place = generator.integers(0, rawlog.HEADER.itemsize if seed % 2 else len(data))
        data[place] = generator.integers(0, 256)
    path.write_bytes(data[: generator.integers(0, len(data))] if seed % 5 == 0 else data)
    text = bytearray(path.with_suffix(".txt").read_bytes())
    text[generator.integers(0, len(text))] = generator.integers(0, 256)
    path.with_suffix(".txt").write_bytes(text)
    try:
        log = rawlog.read(path)
    except Refused as refusal:
        assert str(path) in str(refusal)
        return
    calltrace.write(log, tmp_path)
    assert list(tmp_path.glob("rank-*.h5"))


def test_a_link_is_not_followed(tmp_path):
    target = write(tmp_path / "elsewhere", rows())
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
