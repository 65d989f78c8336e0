"""The traces of a node in one file are those of its ranks."""

import numpy as np
import pytest

from miniapps.trace import (
    TraceError,
    Tracer,
    fingerprint,
    node,
    rank_files,
    read,
    read_all,
    read_run,
    trace_files,
)
from miniapps.trace.schema import NAMED, TABLES, rank_file
from tests.launch import run_python
from tests.ranks import on_ranks


def write(run, ranks, size):
    """Traces of `ranks`, whose names and numbers of rows differ; rank 2 recorded nothing."""
    for rank in ranks:
        with Tracer(run / rank_file(rank), {"rank": rank, "app": "test", "run_id": "r"}, size=size) as tracer:
            for step in range(3 * rank if rank != 2 else 0):
                tracer.at(0, step)
                tracer.event(tracer.name(f"region {step % (rank + 1)}"), tracer.clock())
                tracer.value("energy", step + rank)
                tracer.fingerprint("state", rank, fingerprint(np.array([step])))
                tracer.order("total", [np.arange(size)])
                tracer.choice("wire", rank, f"wire {rank}", 0.25)
                tracer.usage("cpu_time", step, 0.5 * rank)


def same(a, b):
    assert a.attributes == b.attributes
    for table, columns in TABLES.items():
        for column, dtype in columns.items():
            left, right = a.tables[table][column], b.tables[table][column]
            assert left.dtype == right.dtype == dtype
            if column in NAMED:
                left, right = ([trace.names[i] for i in rows] for trace, rows in ((a, left), (b, right)))
            assert np.array_equal(left, right)


def test_a_packed_file_gives_back_every_rank_bit_for_bit(tmp_path):
    write(tmp_path, range(5), 5)
    before = [read(path) for path in rank_files(tmp_path)]
    node.pack([tmp_path / rank_file(rank) for rank in (1, 3, 0)], tmp_path / "node-00000.h5")
    node.pack([tmp_path / rank_file(rank) for rank in (2, 4)], tmp_path / "node-00002.h5")
    assert [path.name for path in trace_files(tmp_path)] == ["node-00000.h5", "node-00002.h5"]
    assert [trace.attributes["rank"] for trace in read_all(tmp_path / "node-00000.h5")] == [0, 1, 3]
    for a, b in zip(before, read_run(tmp_path), strict=True):
        same(a, b)
    (one,) = read_run(tmp_path, tables=["values"], ranks=[3])
    assert (one.attributes["rank"], list(one.tables)) == (3, ["values"])


def test_nothing_is_removed_where_packing_fails(tmp_path):
    write(tmp_path, range(2), 2)
    (tmp_path / rank_file(1)).write_bytes(b"damaged")
    with pytest.raises(TraceError, match=r"rank-00001\.h5: damaged"):
        node.pack([tmp_path / rank_file(0), tmp_path / rank_file(1)], tmp_path / "node-00000.h5")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["rank-00000.h5", "rank-00001.h5"]


def test_a_missing_rank_is_named_where_files_are_of_nodes(tmp_path):
    write(tmp_path, range(3), 4)
    node.pack([tmp_path / rank_file(rank) for rank in range(3)], tmp_path / "node-00000.h5")
    with pytest.raises(TraceError, match=r"a run of 4 ranks without rank-00003\.h5"):
        rank_files(tmp_path)


def test_a_run_packs_its_traces_when_it_ends(tmp_path):
    done = on_ranks(3, ["-m", "tests.miniapps.tiny", "--out", str(tmp_path / "run"), "--trace-files", "node"])
    assert done.returncode == 0, done.stderr
    assert [path.name for path in trace_files(tmp_path / "run")] == ["node-00000.h5"]
    assert all(trace.complete for trace in read_run(tmp_path / "run"))
    assert run_python(["-m", "analysis", "show", str(tmp_path / "run")]).returncode == 0
