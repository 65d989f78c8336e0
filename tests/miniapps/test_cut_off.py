"""Runs that were cut off or are copied while they go on: no head of theirs is called wrong."""

import random
import shutil
from collections import Counter

import pytest
from mpi4py import MPI

from analysis.load.frames import load
from miniapps.coupled import APP
from miniapps.runner.main import main
from miniapps.trace import read, storage, writer
from tests.miniapps.cut_off import GRID, copies, kills, verdict

TINY = ["--closure", "none", "--guarantee", "layout", "--quiet", "--no-progress", "--steps", "60",
        "--checkpoint-every", "3", "--record", "messages", *GRID]  # fmt: skip


@pytest.mark.parametrize("options", [[], ["--trace", "off"], ["--repeats", "3", "--steps", "20"]])
def test_a_run_that_is_killed_at_any_write_is_right_as_far_as_it_goes(tmp_path, monkeypatch, options):
    """The directory is copied in the midst of writing, as a kill would leave it; tables fill at different times."""
    rng, out, kept = random.Random(str(options)), tmp_path / "run", []
    before, chunk = storage.Sink.put, storage.chunk_rows
    monkeypatch.setattr(writer, "INTERVAL_NS", writer.INTERVAL_NS // 40)
    monkeypatch.setattr(writer, "BLOCK", writer.BLOCK // 16)
    monkeypatch.setattr(storage, "chunk_rows", lambda table, size: max(4, chunk(table, size) // 16))

    def put(sink, place, data):
        before(sink, place, data)
        if rng.random() < 0.004 and len(kept) < 15:
            kept.append(shutil.copytree(out, tmp_path / f"copy-{len(kept)}"))

    monkeypatch.setattr(storage.Sink, "put", put)
    assert main(APP, [*TINY, "--out", str(out), *options], MPI.COMM_SELF) == 0
    came = [verdict(copy) for copy in kept]
    assert "ACCUSED" not in {what for what, _ in came}, came
    assert sum(what == "right" for what, _ in came) >= 3
    for copy in [copy for copy, (what, _) in zip(kept, came, strict=True) if what == "right"]:
        read(copy / "rank-00000.h5")  # trees that had just grown too
    for copy in [copy for copy, (what, _) in zip(kept, came, strict=True) if what == "right"][::5]:
        agree_as_far_as_they_go(copy, out)


def agree_as_far_as_they_go(copy, out):
    """A copy has all rows of its last whole step, in each table, and the loader says no more."""
    short, whole = (read(run / "rank-00000.h5") for run in (copy, out))
    assert short.at is not None and not short.complete
    repeat, step = short.at
    for table, columns in whole.tables.items():
        names = {name: number for number, name in enumerate(short.names)}
        own = short.tables[table]
        for columns_, trace in ((columns, whole), (own, short)):
            early = (columns_["repeat"] == repeat) & (columns_["step"] < step - 1)
            counts = Counter(trace.names[name] for name in columns_["name"][early].tolist())
            if trace is whole:
                expected = counts
        assert counts == expected, (table, names)
    frames = load([copy], keep=False)
    assert not len(frames.runs) or (frames.runs["last_step"].max() <= max(step, 61))


def test_runs_on_several_ranks_are_right_as_far_as_they_go(tmp_path):
    rng = random.Random(5)
    came = [*copies(tmp_path, 8, rng, 0.25), *kills(tmp_path, 1, rng)]
    assert "ACCUSED" not in {what for _, what, _ in came}, came
    assert sum(what == "right" for _, what, _ in came) >= 2


@pytest.mark.slow
def test_of_five_hundred_drawn_cases_none_is_accused(tmp_path):
    rng = random.Random(17)
    came = Counter(
        what for drawn in (copies(tmp_path, 460, rng), kills(tmp_path, 40, rng)) for _, what, _ in drawn
    )
    assert not came["ACCUSED"] and came["right"] > 200, came
