"""One rank's file: times of nested regions, and rows told apart by the order in which they were recorded."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from analysis.load.rankfile import exclusive, read_piece, summed
from miniapps.trace import TraceError, Tracer
from miniapps.trace.schema import TABLES
from tests.analysis.synthetic import attributes, write_run, write_timed
from tests.tampering import altered

# A region: its own time before, between and after the regions inside it.
leaves = st.tuples(st.integers(0, 3), st.just([]))
regions = st.recursive(
    leaves, lambda inner: st.tuples(st.integers(0, 3), st.lists(inner, max_size=3)), max_leaves=12
)


def lay_out(tree, now, intervals):
    """Append (start, end, own time) of `tree` and of all inside it, beginning at `now`; returns the end."""
    own, inner = tree
    begin = now
    for child in inner:
        now = lay_out(child, now + own, intervals)
    now += own
    intervals.append((begin, now, own * (len(inner) + 1)))
    return now


@given(st.lists(regions, max_size=4), st.randoms())
def test_exclusive_time_is_what_no_inner_region_covers(trees, random):
    intervals, now = [], 0
    for tree in trees:
        now = lay_out(tree, now, intervals)
    random.shuffle(intervals)
    start, end, own = np.array(intervals, np.int64).reshape(-1, 3).T
    assert exclusive(start, end).sum() == sum(own)
    # Regions of equal start and end cannot be told apart from outside: their sum is known, not the parts.
    for pair in set(zip(start.tolist(), end.tolist(), strict=True)):
        same = (start == pair[0]) & (end == pair[1])
        assert exclusive(start, end)[same].sum() == own[same].sum()


def test_overlaps_that_do_not_nest_count_once_for_the_first():
    start, end = np.array([0, 5, 12]), np.array([10, 15, 20])
    assert exclusive(start, end).tolist() == [5, 10, 8]


def test_events_are_summed_over_step_and_name():
    events = {
        "rank": np.zeros(4, np.int32),
        "start": np.array([0, 10, 20, 30]), "end": np.array([8, 15, 21, 39]), "repeat": np.zeros(4, np.int32),
        "step": np.array([0, 0, 0, 1]), "name": np.array([1, 0, 1, 1]), "bytes": np.array([1, 2, 4, 8]),
        "flops": np.array([0, 1, 2, 3]),
    }  # fmt: skip
    sums = summed(events)
    columns = (sums[key] for key in ("step", "name", "count", "total_ns", "bytes", "flops"))
    assert list(zip(*columns, strict=True)) == [(0, 0, 1, 5, 2, 1), (0, 1, 2, 9, 5, 2), (1, 1, 1, 9, 8, 3)]


def test_ranks_that_are_read_together_do_not_mix(tmp_path):
    run = write_timed(
        tmp_path / "r", lambda rank, step: [("step", 1.0, [("halo", 2.0 + rank, [])])], size=3, steps=2
    )
    files = sorted(run.glob("*.h5"))
    together = read_piece(files)
    alone = [read_piece([path]) for path in files]
    for table in ("events", "values", "fingerprints"):
        for column, rows in together.tables[table].items():
            assert np.array_equal(rows, np.concatenate([piece.tables[table][column] for piece in alone])), (
                column
            )
    assert [head.digest for head in together.heads] == [piece.heads[0].digest for piece in alone]


def test_rows_know_their_place_in_the_step_and_repeated_rows_are_counted(tmp_path):
    tracer = Tracer(tmp_path / "rank-00000.h5", attributes(0, 1, "none", "native", run_id="r"), size=1)
    for step in (0, 1):
        tracer.at(0, step)
        for name in ("b", "a", "b") if step else ("a", "b"):
            tracer.values(name, np.array([0, 1]), np.array([1.0, 2.0]))
    tracer.close()
    data = read_piece([tmp_path / "rank-00000.h5"])
    rows = data.tables["values"]
    names = [data.names[code] for code in rows["name"]]
    places = list(
        zip(rows["step"].tolist(), names, rows["occurrence"].tolist(), rows["seq"].tolist(), strict=True)
    )
    assert places == [
        (0, "a", 0, 0), (0, "a", 0, 0), (0, "b", 0, 1), (0, "b", 0, 1),
        (1, "b", 0, 0), (1, "b", 0, 0), (1, "a", 0, 1), (1, "a", 0, 1), (1, "b", 1, 2), (1, "b", 1, 2),
    ]  # fmt: skip


def test_a_file_without_a_needed_attribute_is_an_error_that_names_it(tmp_path):
    run = write_run(tmp_path / "r", size=1)
    altered(run / "rank-00000.h5", lambda file: file.attrs.__delitem__("problem"))
    error = read_piece([run / "rank-00000.h5"]).heads[0]
    assert isinstance(error, TraceError)
    assert "attribute problem is missing" in str(error)
    assert str(run / "rank-00000.h5") in str(error)


@pytest.mark.parametrize("table", [*TABLES])
def test_empty_tables_have_all_columns(tmp_path, table):
    Tracer(tmp_path / "rank-00000.h5", attributes(0, 1, "none", "native", run_id="r"), size=1).close()
    data = read_piece([tmp_path / "rank-00000.h5"])
    assert {len(column) for column in data.tables[table].values()} == {0}
    assert data.heads[0].spans.shape == (0, 3)
