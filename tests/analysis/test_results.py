"""The results of a campaign as files."""

import json
import xml.etree.ElementTree as ElementTree

import numpy as np
import pandas as pd
import pytest

from analysis.__main__ import main
from analysis.load.frames import load
from analysis.overview import Overview
from analysis.page.svg import figure_of
from analysis.results import COLUMNS, MANIFEST, NotOurs, results, write_results
from tests.analysis.synthetic import field_at, flip_bit, write_run, write_timed


def at_the_end(repeat, step, field):
    if step == 5:
        flip_bit(field, 0, bit=40)


@pytest.fixture(scope="module")
def campaign(tmp_path_factory):
    root = tmp_path_factory.mktemp("campaign")
    write_run(root / "none", repeats=2, change=at_the_end)
    write_run(root / "layout-1", size=1, guarantee="layout")
    write_run(root / "layout-2", size=2, guarantee="layout")
    write_run(root / "killed", size=2, stop={1: 3}, result=False)
    return root


def energy(change=None):
    field = field_at(5)
    if change:
        change(0, 5, field)
    return float((field**2).sum())


def test_there_is_one_row_per_run_with_verdict_state_values_and_distances(campaign):
    table = results(Overview(load([campaign]))).set_index(["run", "repeat"])
    assert len(table) == 5
    changed, exact = energy(at_the_end), energy()
    assert table.loc[("none", 0), "verdict"] == "no difference seen"
    assert table.loc[("layout-1", 0), "verdict"] == "holds"
    assert table.loc[("killed", 0), "verdict"] == "incomplete"
    assert table.loc[("none", 1), "state"] and not table.loc[("killed", 0), "state"]
    assert table.loc[("none", 1), "reference"] == "layout-1:0"
    assert table.loc[("none", 1), "value:energy"] == changed != exact
    assert table.loc[("none", 1), "distance:energy"] == abs(exact - changed) / exact
    assert table.loc[("layout-2", 0), "distance:energy"] == 0
    assert np.isnan(table.loc[("killed", 0), "distance:energy"])  # it ended elsewhere
    assert (table.loc[["none", "layout-1"], "wall_s"] > 0).all()


def test_runs_without_values_have_rows_too(tmp_path):
    write_timed(tmp_path / "r", lambda rank, step: [("step", 1, [])])
    table = results(Overview(load([tmp_path / "r"])))
    assert list(table.columns) == COLUMNS and table["wall_s"].tolist() == [0.001]


@pytest.fixture(scope="module")
def written(campaign, tmp_path_factory):
    out = tmp_path_factory.mktemp("out")
    assert (
        main(["report", str(campaign), "-o", str(out / "report.html"), "--results", str(out / "results")])
        == 0
    )
    return out / "results"


def test_tables_are_read_back_bit_by_bit(campaign, written):
    table = results(Overview(load([campaign])))
    for read in (pd.read_csv(written / "results.csv"), pd.read_parquet(written / "results.parquet")):
        assert list(read.columns) == list(table.columns)
        assert read["run"].tolist() == table["run"].tolist()
        for column in ("wall_s", "value:energy", "distance:energy"):
            assert np.array_equal(read[column], table[column], equal_nan=True)


def test_every_figure_is_a_table_a_drawing_and_a_picture(written):
    figures = sorted(path.stem for path in written.glob("*.svg"))
    assert set(figures) >= {
        "cost",
        "exclusive_s",
        "imbalance",
        "scaling-strong-efficiency",
        "scaling-strong-speedup",
        "variability-v_ermv",
        "variability-v_s",
        "wall",
    }
    for name in figures:
        assert len(pd.read_csv(written / f"{name}.csv"))
        assert (written / f"{name}.png").read_bytes().startswith(b"\x89PNG")
        drawing = (written / f"{name}.svg").read_text()
        assert ElementTree.fromstring(drawing).tag.endswith("svg")
        assert "var(--" not in drawing  # colours of its own
    assert "coupled none/arrival" in (written / "wall.svg").read_text()  # the legend is in it


def points(name):
    """A figure of two points."""
    data = pd.DataFrame({"x": [0, 1], "y": [0.0, 0.1]})
    return figure_of(
        name, name, lambda axes: axes.plot(data["x"], data["y"]), "", 2.0, ((0, "one"),), data=data
    )


TABLE = pd.DataFrame({"run": ["r"]})


def test_only_what_was_written_before_is_written_over(tmp_path):
    write_results(tmp_path, TABLE, [points("a")])
    (tmp_path / "notes.txt").write_text("mine")
    write_results(tmp_path, TABLE, [points("a")])
    (tmp_path / "b.png").write_text("mine")
    with pytest.raises(NotOurs, match=r"b\.png was not written by this command"):
        write_results(tmp_path, TABLE, [points("b")])
    assert (tmp_path / "notes.txt").read_text() == (tmp_path / "b.png").read_text() == "mine"
    assert (tmp_path / "a.png").exists() and not (tmp_path / "b.csv").exists()


def test_pictures_of_an_earlier_campaign_do_not_stay_and_nothing_outside_is_touched(tmp_path):
    out = tmp_path / "out"
    write_results(out, TABLE, [points("a"), points("b")])
    (tmp_path / "c.png").write_text("mine")
    names = json.loads((out / MANIFEST).read_text())
    (out / MANIFEST).write_text(json.dumps([*names, "../c.png", str(tmp_path / "c.png")]))
    write_results(out, TABLE, [points("a")])
    assert not list(out.glob("b.*")) and len(list(out.glob("a.*"))) == 3
    assert (tmp_path / "c.png").read_text() == "mine"


def test_a_file_is_no_directory(campaign, tmp_path, capsys):
    taken = tmp_path / "taken"
    taken.write_text("mine")
    assert main(["report", str(campaign), "-o", str(tmp_path / "r.html"), "--results", str(taken)]) == 2
    assert "is a file; give a directory" in capsys.readouterr().err and taken.read_text() == "mine"
    with pytest.raises(NotOurs, match="is a file"):
        write_results(taken, TABLE, [])
