"""The tables of runs as Parquet: every row of every run, names as text."""

import numpy as np
import pandas as pd
import pytest

from analysis.__main__ import main
from analysis.load import cache
from analysis.load.columns import STORED
from analysis.load.frames import load
from miniapps.trace.schema import NAMED
from tests.analysis.synthetic import write_run


@pytest.mark.parametrize(
    "group", [cache.GROUP, 8]
)  # rows that a cache holds together, and are written by turns
def test_every_table_is_there_as_it_was_read(tmp_path, capsys, monkeypatch, group):
    monkeypatch.setattr(cache, "GROUP", group)
    for name, size in (("a", 2), ("b", 3)):
        write_run(
            tmp_path / "runs" / name, size=size, repeats=2, orders=lambda repeat, step, size=size: [range(size)],
            choices=lambda repeat, step: "ring",
        )  # fmt: skip
    out = tmp_path / "tables"
    assert main(["export", "parquet", str(tmp_path / "runs"), "-o", str(out)]) == 0
    assert "8 tables of 2 runs" in capsys.readouterr().out
    frames = load([tmp_path / "runs"])
    assert pd.read_parquet(out / "runs.parquet")["run_id"].tolist() == frames.runs["run_id"].tolist()
    for table in STORED:
        expected = getattr(frames, table).astype(
            {"run": "str"} | {key: "str" for key in NAMED if key in STORED[table]}
        )
        read = pd.read_parquet(out / f"{table}.parquet")
        if table == "order":
            read["ranks"] = [np.asarray(row, "<u2").tobytes() for row in read["ranks"]]
        pd.testing.assert_frame_equal(
            read.reset_index(drop=True), expected.reset_index(drop=True), check_dtype=False
        )


@pytest.mark.parametrize("option", [["--steps", "1"], ["--ranks", "0"], ["--from", "0"]])
def test_a_part_of_a_run_is_a_query_and_no_option(tmp_path, capsys, option):
    run = write_run(tmp_path / "run")
    assert main(["export", "parquet", str(run), "-o", str(tmp_path / "tables"), *option]) == 2
    assert "parquet takes whole runs" in capsys.readouterr().err
    assert not (tmp_path / "tables").exists()
