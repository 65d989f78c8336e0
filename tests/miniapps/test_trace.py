"""The trace gives back what was recorded, bit for bit, whatever ended the run."""

import io
import random
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import h5py
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kernels.sizes import sizes
from miniapps.system import interrupts
from miniapps.trace import TraceError, Tracer, fingerprint, rank_files, read, storage, writer
from miniapps.trace.schema import NAMED, TABLES
from miniapps.untrusted.sealed import HEADER
from tests.launch import environment, run_python
from tests.ranks import on_ranks
from tests.tampering import altered, leave_open

PROGRAMS = Path(__file__).parent / "programs"


def tracer(path, **options):
    """A tracer of a run of three ranks."""
    return Tracer(path, {"rank": 0, "app": "test", "config": {"run": {"seed": 1}}}, size=3, **options)


def rows(trace, table, *columns):
    """The rows of a table as tuples, names spelt out."""
    arrays = trace.tables[table]
    spelt = arrays | {key: [trace.names[i] for i in arrays[key]] for key in NAMED if key in arrays}
    return list(zip(*(np.asarray(spelt[column]).tolist() for column in columns), strict=True))


def bits(value):
    return np.float64(value).view(np.uint64)


def test_everything_recorded_is_read_back_with_repeat_and_step(tmp_path):
    path = tmp_path / "rank-00000.h5"
    nan = np.array([0x7FF8_0000_DEAD_BEEF], np.uint64).view(np.float64)[0]
    digest = fingerprint(np.arange(4))
    with tracer(path) as t:
        region = t.name("region")
        t.at(0, 1)
        begin = t.clock()
        t.event(region, begin, 64)
        t.value("energy", -0.0)
        t.at(1, 2)
        t.values("sample", np.array([5, 7]), np.array([nan, 2.5]))
        t.fingerprint("state", 7, digest)
        t.order("total", [np.array([0, 2, 1], np.uint16), [0, 1, 2]])
        t.order("total", [])
    trace = read(path)
    assert trace.complete
    assert trace.attributes["config"] == {"run": {"seed": 1}}
    assert trace.attributes["size"] == 3
    assert rows(trace, "events", "start", "name", "repeat", "step", "bytes") == [(begin, "region", 0, 1, 64)]
    assert trace.tables["events"]["end"][0] >= begin
    assert rows(trace, "values", "name", "repeat", "step", "block") == [
        ("energy", 0, 1, -1),
        ("sample", 1, 2, 5),
        ("sample", 1, 2, 7),
    ]
    assert trace.tables["values"]["value"].view(np.uint64).tolist() == [bits(-0.0), bits(nan), bits(2.5)]
    (hi,), (lo,) = (trace.tables["fingerprints"][column] for column in ("hi", "lo"))
    assert f"{hi:016x}{lo:016x}" == digest.hex()
    assert rows(trace, "fingerprints", "name", "repeat", "step", "block") == [("state", 1, 2, 7)]
    assert trace.tables["order"]["ranks"].tolist() == [[0, 2, 1], [0, 1, 2]]
    assert all(
        trace.tables[table][column].dtype == dtype
        for table, types in TABLES.items()
        for column, dtype in types.items()
    )


actions = st.one_of(
    st.tuples(st.just("at"), st.integers(0, 2), st.integers(0, 9)),
    st.tuples(st.just("event"), st.sampled_from("abc"), st.integers(0, 2**40)),
    st.tuples(st.just("value"), st.sampled_from("xy"), st.floats(width=64)),
    st.tuples(st.just("fingerprint"), st.integers(0, 99), st.binary(min_size=16, max_size=16)),
    st.tuples(st.just("array"), st.integers(0, 99), st.sampled_from([1.5, -2.0, 0.25])),
    st.tuples(st.just("order"), st.integers(0, 3), st.permutations([0, 1, 2])),
    st.tuples(st.just("usage"), st.integers(0, 9), st.floats(width=64, allow_nan=False)),
    st.tuples(st.just("choice"), st.sampled_from("xyz"), st.integers(-1, 3)),
    st.tuples(st.just("flush")),
)


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(script=st.lists(actions, max_size=60), cut=st.integers(0, 60))
def test_any_sequence_is_read_back_and_a_copy_at_any_flush_holds_all_before_it(
    tmp_path_factory, monkeypatch, script, cut
):
    """Chunks of four rows and blocks of eight, so that short sequences cross all boundaries."""
    monkeypatch.setattr(storage, "chunk_rows", lambda table, size: 4)
    monkeypatch.setattr(writer, "BLOCK", 8)
    folder = tmp_path_factory.mktemp("any")
    expected, copied = {table: [] for table in TABLES}, None
    repeat = step = 0
    t = tracer(folder / "rank-00000.h5")
    for number, (action, *given_) in enumerate(script):
        if action == "at":
            repeat, step = given_
            t.at(repeat, step)
        elif action == "event":
            t.event(t.name(given_[0]), 1, given_[1])
            expected["events"].append((given_[0], repeat, step, given_[1]))
        elif action == "value":
            t.value(*given_)
            expected["values"].append((given_[0], repeat, step, bits(given_[1])))
        elif action == "fingerprint":
            t.fingerprint("state", *given_)
            hi, lo = int.from_bytes(given_[1][:8]), int.from_bytes(given_[1][8:])
            expected["fingerprints"].append(("state", repeat, step, given_[0], hi, lo))
        elif action == "array":
            block, number_ = given_
            t.array("state", block, np.array([number_]))
            digest = fingerprint(np.array([number_]))
            words = int.from_bytes(digest[:8]), int.from_bytes(digest[8:])
            expected["fingerprints"].append(("state", repeat, step, block, *words))
            expected["sizes"].append(("state", repeat, step, block, "float64", 1, abs(number_), number_))
        elif action == "order":
            t.order("total", [given_[1]] * given_[0])
            expected["order"] += [("total", repeat, step, given_[1])] * given_[0]
        elif action == "choice":
            t.choice("wire", given_[1], given_[0], 0.5)
            expected["choices"].append(("wire", repeat, step, given_[1], given_[0], 0.5))
        elif action == "usage":
            t.usage("cpu_time", *given_)
            expected["usage"].append(("cpu_time", repeat, *given_))
        else:
            t.flush()
            if copied is None and number >= cut:
                shutil.copy(t.path, folder / "copy.h5")  # as a kill would leave it
                copied = {table: list(rows_) for table, rows_ in expected.items()}
    t.close()
    assert _recorded(read(t.path)) == expected
    if copied is not None:
        assert not read(folder / "copy.h5").complete
        assert _recorded(read(folder / "copy.h5")) == copied


def _recorded(trace):
    trace.tables["values"]["value"] = trace.tables["values"]["value"].view(np.uint64)
    where = ("name", "repeat", "step")
    return {
        "events": rows(trace, "events", *where, "bytes"),
        "values": rows(trace, "values", *where, "value"),
        "fingerprints": rows(trace, "fingerprints", *where, "block", "hi", "lo"),
        "sizes": rows(trace, "sizes", *where, "block", "dtype", "count", "largest", "p0"),
        "order": rows(trace, "order", *where, "ranks"),
        "choices": rows(trace, "choices", *where, "block", "choice", "score"),
        "usage": rows(trace, "usage", *where, "value"),
    }


def test_every_array_has_a_row_of_sizes_in_the_order_of_fingerprints(tmp_path):
    with tracer(tmp_path / "rank-00000.h5") as t:
        t.array("few", 3, np.array([3, -4], np.int32))
        t.array("text", 0, np.array([b"ab"]))
        t.fingerprint("of hashes", 0, bytes(16))
        t.fingerprints("many", [4, 5], np.array([[1 + 2j, 3, -1j], [0, 0, 0]], np.complex64))
    trace = read(t.path)
    assert rows(trace, "sizes", "name", "block", "dtype", "count", "l1", "largest", "p0", "p1") == [
        ("few", 3, "int32", 2, 7.0, 4.0, 3.0, -4.0),
        ("text", 0, "bytes16", 0, 0.0, 0.0, 0.0, 0.0),
        ("many", 4, "complex64", 6, 7.0, 3.0, *sizes(np.array([[1 + 2j, 3, -1j]]))[1][0, 2:4]),
        ("many", 5, "complex64", 6, 0.0, 0.0, 0.0, 0.0),
    ]
    assert rows(trace, "fingerprints", "name", "block") == [
        ("few", 3), ("text", 0), ("of hashes", 0), ("many", 4), ("many", 5)]  # fmt: skip


def test_many_events_keep_their_order_across_blocks(tmp_path):
    path, count = tmp_path / "rank-00000.h5", 3 * writer.BLOCK + 5
    with tracer(path) as t:
        for number in range(count):
            if number % 1000 == 0:
                t.at(0, number // 1000)
            t.event(0, number, number)
        t.name("only")
    events = read(path).tables["events"]
    assert np.array_equal(events["bytes"], np.arange(count))
    assert np.array_equal(events["start"], np.arange(count))
    assert np.array_equal(events["step"], np.arange(count) // 1000)
    assert path.stat().st_size < 20 * count  # 36 bytes per event would be uncompressed


def test_a_series_is_one_value_per_step_and_is_not_kept_in_memory(tmp_path):
    path, count = tmp_path / "rank-00000.h5", 3 * writer.BLOCK + 5
    numbers = np.random.default_rng(1).normal(size=count)
    with tracer(path) as t:
        t.at(2, 9)
        t.value("other", 1.0)
        t.series("sums", 4, numbers, block=7)
        assert len(t._pending["values"]["value"]) <= 6
        t.series("sums", 0, [])
        t.value("other", 2.0)
    records = rows(read(path), "values", "repeat", "step", "name", "block", "value")
    expected = [(2, 4 + i, "sums", 7, number) for i, number in enumerate(numbers.tolist())]
    assert records == [(2, 9, "other", -1, 1.0), *expected, (2, 9, "other", -1, 2.0)]


def test_the_tracer_states_its_own_cost(tmp_path):
    with tracer(tmp_path / "rank-00000.h5") as t:
        t.event(t.name("region"), t.clock())
    own = read(t.path).attributes["tracer"]
    assert own["events"] == 1
    assert own["dropped"] == 0
    assert own["ns_per_event"] > 0
    assert own["flush_ns"] > 0
    assert 0 < own["bytes"] <= t.path.stat().st_size


def test_level_off_records_the_bits_but_no_times(tmp_path):
    with tracer(tmp_path / "rank-00000.h5", level="off") as t:
        t.event(t.name("region"), t.clock(), 8)
        t.value("energy", 1.0)
        t.array("state", 0, np.zeros(2))
        t.order("total", [[0, 1, 2]])
        t.choice("wire", -1, "fp8", 0.5)
        t.usage("cpu_time", 0, 1.0)
    trace = read(t.path)
    assert [len(trace.tables[table]["name"]) for table in TABLES] == [0, 1, 1, 1, 1, 1, 0]
    with pytest.raises(ValueError, match="regions, off"):
        tracer(tmp_path / "other.h5", level="all")


def test_old_rows_are_written_at_the_next_step_boundary(tmp_path, monkeypatch):
    t = tracer(tmp_path / "rank-00000.h5")
    t.value("energy", 1.0)
    t.at(0, 1)
    assert len(read(t.path).tables["values"]["value"]) == 0
    monkeypatch.setattr(writer, "INTERVAL_NS", -1)
    t.at(0, 2)
    assert read(t.path).tables["values"]["value"].tolist() == [1.0]
    t.close()


def test_a_file_killed_while_it_is_flushed_is_readable_up_to_a_commit(tmp_path):
    """Whatever moment SIGKILL hits: here random ones of a program that does nothing but flush."""
    moments = random.Random(1)
    for attempt in range(8):
        path = tmp_path / f"rank-{attempt:05d}.h5"
        process = subprocess.Popen(
            [sys.executable, PROGRAMS / "endless_trace.py", path], stdout=subprocess.PIPE, env=environment({})
        )
        try:
            assert process.stdout.readline() == b"ready\n"
            time.sleep(moments.uniform(0.0, 0.3))
        finally:
            process.kill()
            process.wait()
            process.stdout.close()
        trace = read(path)
        events, values = trace.tables["events"], trace.tables["values"]
        row = np.arange(len(events["bytes"]))
        assert not trace.complete
        assert np.array_equal(events["bytes"], row % 300)
        assert np.array_equal(events["step"], row // 300)
        row = np.arange(len(values["value"]))
        assert np.array_equal(values["value"], row // 20 + row % 20)
        assert set(rows(trace, "fingerprints", "name", "block")) <= {("state", 3)}


def test_what_a_kill_left_behind_the_committed_rows_is_not_read(tmp_path):
    """HDF5 may have written where a chunk is, and not yet that the file reaches so far."""
    path = tmp_path / "rank-00000.h5"
    t, images = tracer(path), []
    region = t.name("region")
    for _ in range(2):
        for _ in range(4096):  # a chunk
            t.event(region, 0)
        t.flush()
        images.append(path.read_bytes())
    with h5py.File(io.BytesIO(images[1])) as file:
        record = slice(at := file["committed"].id.get_offset(), at + file["committed"].nbytes)
        end = file["events/start"].id.get_chunk_info(1).byte_offset
    t.close()
    image = bytearray(images[1])
    image[record] = images[0][record]
    image[HEADER + 40 : HEADER + 48] = end.to_bytes(8, "little")  # the end of the file in its superblock
    path.write_bytes(image)
    assert len(read(path).tables["events"]["start"]) == 4096


def test_a_full_disk_is_one_clear_error_after_which_the_program_ends(tmp_path):
    path = tmp_path / "rank-00000.h5"
    run = run_python([PROGRAMS / "full_disk.py", path], timeout=60)
    assert run.returncode == 7, run.stderr
    assert run.stderr == ""
    (message,) = run.stdout.splitlines()
    assert all(part in message for part in (str(path), "rank 0", "File too large", "--out", "--trace off"))
    events = read(path).tables["events"]
    assert len(events["step"]) > 0
    assert len(events["step"]) % 1000 == 0 or len(events["step"]) % 4096 == 0


@pytest.mark.parametrize(
    ("number", "error"), [(signal.SIGTERM, interrupts.Terminated), (signal.SIGINT, KeyboardInterrupt)]
)
def test_a_signal_that_comes_during_a_flush_is_raised_after_it(tmp_path, monkeypatch, number, error):
    commit = storage.Storage.commit

    def interrupted(self):
        signal.raise_signal(number)
        commit(self)

    t = tracer(tmp_path / "rank-00000.h5")
    handlers = [signal.getsignal(n) for n in (signal.SIGTERM, signal.SIGINT)]
    with monkeypatch.context() as patch:
        patch.setattr(storage.Storage, "commit", interrupted)
        t.value("energy", 1.0)
        with pytest.raises(error), interrupts.raising():
            t.flush()
    assert [signal.getsignal(n) for n in (signal.SIGTERM, signal.SIGINT)] == handlers
    t.value("energy", 2.0)
    t.close(complete=False)
    assert read(t.path).tables["values"]["value"].tolist() == [1.0, 2.0]


def test_an_existing_file_is_left_as_it_is(tmp_path):
    path = tmp_path / "rank-00000.h5"
    path.write_bytes(b"precious")
    with pytest.raises(TraceError, match=r"rank-00000\.h5, cannot be created: File exists"):
        tracer(path)
    assert path.read_bytes() == b"precious"


@pytest.fixture
def written(tmp_path):
    """The path of a complete trace with some rows."""
    with tracer(tmp_path / "rank-00000.h5") as t:
        t.name("region")
        for number in range(5000):
            t.event(0, number, number)
    return t.path


def test_a_missing_or_foreign_file_is_refused_by_name(tmp_path):
    with pytest.raises(TraceError, match=r"none\.h5: no such file"):
        read(tmp_path / "none.h5")
    text = tmp_path / "text.h5"
    text.write_text("no HDF5 at all")
    with pytest.raises(TraceError, match=r"text\.h5: damaged.*leave this run out"):
        read(text)
    with h5py.File(tmp_path / "other.h5", "w") as file:
        file["data"] = [1]
    with pytest.raises(TraceError, match=r"other\.h5: .*not a trace.*leave it out"):
        read(tmp_path / "other.h5")


def test_a_region_states_one_kind(tmp_path):
    with tracer(tmp_path / "rank-00000.h5") as t:
        assert t.name("halo", "exchange") == t.name("halo", "exchange")
        t.value("energy", 1.0)
        t.name("work")
        with pytest.raises(ValueError, match=r"'halo' has two kinds, exchange and wait"):
            t.name("halo", "wait")
        with pytest.raises(ValueError, match=r"unknown kind 'speed'; the kinds are compute, collective"):
            t.name("fast", "speed")
    assert read(t.path).attributes["regions"] == {"halo": "exchange", "work": "compute"}


def test_what_is_stated_of_a_reduction_is_written_with_the_rows(tmp_path):
    facts = {"ordering": "ring", "calls": 1}
    with tracer(tmp_path / "rank-00000.h5") as t:
        t.reduction("total", facts)
        t.flush()
        assert read(t.path).attributes["reductions"]["total"]["calls"] == 1
        facts["calls"] = 7
    assert read(t.path).attributes["reductions"] == {"total": facts}


def test_messages_are_written_by_plan_and_a_plan_that_is_made_again_goes_on_counting(tmp_path):
    with tracer(tmp_path / "rank-00000.h5") as t:
        for _ in range(2):
            fine, coarse = t.messages("halo", {1: 4096, 2: 512}), t.messages("halo", {1: 64})
            fine["calls"] += 3
            coarse["calls"] += 1
        t.flush()
        fine["calls"] += 1
    assert read(t.path).attributes["messages"] == {
        "halo": [
            {"ranks": [1, 2], "bytes": [4096, 512], "calls": 7},
            {"ranks": [1], "bytes": [64], "calls": 2},
        ]
    }


def test_messages_whose_ranks_and_bytes_do_not_match_are_refused(tmp_path):
    with tracer(tmp_path / "rank-00000.h5") as t:
        t.messages("halo", {1: 8})["bytes"].append(9)
    with pytest.raises(TraceError, match="messages to 1 ranks with 2 numbers of bytes"):
        read(t.path)


def test_a_newer_schema_is_refused(written):
    altered(written, lambda file: file.attrs.modify("schema", 99))
    with pytest.raises(TraceError, match=r"rank-00000\.h5: .*schema 99.*install"):
        read(written)


@pytest.mark.parametrize("kept", [0, 100, 0.3, 0.7, 0.999])
def test_a_truncated_file_is_refused(written, kept):
    whole = written.read_bytes()
    written.write_bytes(whole[: kept if isinstance(kept, int) else int(kept * len(whole))])
    with pytest.raises(TraceError, match=r"rank-00000\.h5: damaged"):
        read(written)


def test_every_overwritten_byte_of_a_closed_file_is_noticed(written):
    whole = written.read_bytes()
    places = {
        *range(0, 80),
        *np.random.default_rng(1).integers(512, len(whole), 300).tolist(),
        len(whole) - 1,
    }
    for place in sorted(places):
        written.write_bytes(whole[:place] + bytes([whole[place] ^ 0x10]) + whole[place + 1 :])
        with pytest.raises(TraceError, match=r"rank-00000\.h5: damaged"):
            read(written)


@pytest.mark.parametrize(
    "change",
    [
        lambda file: file["values/value"].write_direct(np.array([1.5])),
        lambda file: file["events/start"].resize((10,)),
        lambda file: file["names/text"].write_direct(np.frombuffer(b'"energi"\n', np.uint8)),
        lambda file: file["committed"].__setitem__((0, 0), 100),
        lambda file: file["committed"].__setitem__((1, 2), 0),
        lambda file: file.attrs.modify("guarantee", "layout"),
    ],
    ids=["a value", "fewer rows", "a name", "fewer committed", "a hash", "an attribute"],
)
def test_rows_and_attributes_are_held_against_the_record_of_the_commit(tmp_path, change):
    """Also in a file that was never sealed, because its run was killed."""
    path = tmp_path / "rank-00000.h5"
    t = Tracer(path, {"rank": 0, "guarantee": "none"})
    t.name("energy")
    for number in range(5000):
        t.event(0, number, number)
    t.value("energy", 0.5)
    t.close()
    leave_open(path)
    assert len(read(path).tables["events"]["start"]) == 5000
    with h5py.File(path, "r+") as file:
        change(file)
    with pytest.raises(TraceError, match=r"rank-00000\.h5: damaged"):
        read(path)


def test_a_file_that_is_not_sealed_is_not_complete_whatever_it_says(written):
    leave_open(written)
    assert not read(written).complete


def test_the_files_of_a_run_are_found_and_a_missing_rank_is_named(tmp_path):
    for rank in range(3):
        Tracer(tmp_path / f"rank-{rank:05d}.h5", {"rank": rank}, size=3).close()
    (tmp_path / "rank-00000.log").write_text("no trace")
    assert [path.name for path in rank_files(tmp_path)] == [f"rank-{rank:05d}.h5" for rank in range(3)]
    (tmp_path / "rank-00001.h5").unlink()
    with pytest.raises(TraceError, match=r"a run of 3 ranks without rank-00001\.h5; copy"):
        rank_files(tmp_path)
    with pytest.raises(TraceError, match=r"no rank-\*\.h5 in it"):
        rank_files(tmp_path / "elsewhere")


def test_a_table_can_be_left_unread(written):
    assert read(written, tables=()).tables == {}
    assert set(read(written, tables=["order"]).tables) == {"order"}
    with pytest.raises(ValueError, match="events, values, fingerprints, sizes, order"):
        read(written, tables=["event"])


def test_fingerprints_in_bulk_are_those_one_by_one(tmp_path):
    arrays = np.arange(6.0).reshape(2, 3)
    with tracer(tmp_path / "rank-00000.h5") as t:
        t.fingerprints("state", [4, 9], arrays)
        for block, array in zip((4, 9), arrays, strict=True):
            t.fingerprint("state", block, fingerprint(array))
        with pytest.raises(ValueError, match="got 2 for 3 blocks"):
            t.fingerprints("state", [1, 2, 3], arrays)
    records = rows(read(t.path), "fingerprints", "name", "block", "hi", "lo")
    assert records[:2] == records[2:]
    assert records[0][2:] != records[1][2:]


def test_a_fingerprint_is_of_the_bits_not_of_the_memory_layout():
    array = np.arange(24.0).reshape(4, 6)
    same = [
        np.asfortranarray(array),
        array.astype(">f8"),
        np.repeat(array, 2, axis=1)[:, ::2],
        array[::-1][::-1],
    ]
    assert {fingerprint(other) for other in same} == {fingerprint(array)}
    nans = np.array([0x7FF8_0000_0000_0001, 0x7FF8_0000_0000_0002], np.uint64).view(np.float64)
    different = [
        array,
        array.reshape(6, 4),
        array.astype(np.float32),
        array.view(np.int64),
        array.copy(order="F").T,
        np.zeros(1),
        -np.zeros(1),
        np.zeros(()),
        np.zeros(0),
        np.zeros((0, 2)),
        nans[:1],
        nans[1:],
    ]
    assert len({fingerprint(other) for other in different}) == len(different)
    assert all(len(fingerprint(other)) == 16 for other in different)
    with pytest.raises(TypeError, match="object"):
        fingerprint(np.array([None]))


def test_ranks_find_how_far_their_clocks_are_ahead():
    run = on_ranks(3, [PROGRAMS / "clocks.py"])
    assert run.returncode == 0, run.stdout + run.stderr


def test_a_file_is_readable_after_every_write_of_a_tree_that_grows(tmp_path, monkeypatch):
    """A node has 64 children at most: of chunks of two rows, the root splits in step 128 and its last leaf in 244."""
    before, failures, levels = storage.Sink.put, [], set()

    def put(sink, place, data):
        before(sink, place, data)
        if data.startswith(storage.CHUNK_NODE) and (126 < t.step < 131 or t.step > 240):
            levels.add(data[5])
            try:
                read(path)
            except TraceError as error:
                failures.append((t.step, place, str(error)))

    path = tmp_path / "rank-00000.h5"
    monkeypatch.setattr(storage, "chunk_rows", lambda table, size: 2)
    t = tracer(path)
    monkeypatch.setattr(storage.Sink, "put", put)
    for t.step in range(250):
        t.value("a", 1.5)
        t.flush()
    t.close()
    assert levels == {0, 1}
    assert not failures


def test_what_is_held_is_read_back_and_new_places_are_written_from_the_end_of_the_file(tmp_path, monkeypatch):
    """Drawn writes that overlap, beside a file in memory; a flush now and then."""
    rng, before, places, end = np.random.default_rng(4), storage.Sink.put, [], 0

    def put(sink, place, data):
        places.append((place, len(data)))
        before(sink, place, data)

    monkeypatch.setattr(storage.Sink, "put", put)
    with storage.Sink(tmp_path / "file", "x+") as sink, io.BytesIO() as like:
        for _ in range(2000):
            place, size = int(rng.integers(400)), int(rng.integers(1, 60))
            data = rng.bytes(size)
            kind = rng.integers(12)
            for file in (sink, like):
                file.seek(place)
                if kind < 8:
                    file.write(data)
            if kind in (8, 9, 10):
                own, other = bytearray(size), bytearray(size)
                assert sink.readinto(own) == like.readinto(other)
                assert own == other
            elif kind == 11:
                sink.flush()
                new = [place for place, _ in places if place >= end]
                old = [place for place, _ in places if place < end]
                assert [place for place, _ in places] == sorted(new, reverse=True) + sorted(old, reverse=True)
                end = max([end, *(place + size for place, size in places)])
                places.clear()
        sink.flush()
        assert (tmp_path / "file").read_bytes() == like.getvalue()
