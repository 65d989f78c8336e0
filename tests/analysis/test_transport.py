"""Transport between distributions of runs: distance, shift function, and what too few runs are told."""

import json

import numpy as np
import pytest
from scipy.stats import wasserstein_distance

from analysis.__main__ import main
from analysis.load.frames import load
from analysis.transport import FEWEST, QUANTILES, shift, transport, w1
from tests.analysis.synthetic import field_at, write_run


def energy(spread, offset=0.0):
    """A field whose energy depends on the repeat."""

    def change(repeat, step, field):
        field[0, 0] += offset + spread * np.sin(repeat + 1)

    return change


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """By arrival around one energy; by ring shifted by much; on a tree with few runs."""
    path = tmp_path_factory.mktemp("runs")
    write_run(path / "arrival", repeats=FEWEST, change=energy(0.01))
    write_run(path / "ring", repeats=FEWEST + 5, ordering="ring", guarantee="run", change=energy(0.01, 1.0))
    write_run(path / "few", repeats=3, ordering="linear", guarantee="run")
    return path


@pytest.mark.parametrize("n, m", [(1, 1), (3, 5), (20, 20), (21, 34), (1, 7)])
def test_the_distance_is_that_of_scipy(n, m):
    rng = np.random.default_rng(n)
    x, y = rng.normal(size=n), rng.normal(size=(4, m))
    assert w1(x, y) == pytest.approx([wasserstein_distance(x, each) for each in y], rel=1e-12)


def test_a_shift_is_found_in_its_size_and_no_shift_where_there_is_none():
    rng = np.random.default_rng(1)
    x = rng.normal(size=60)
    moved = shift(x, x + 3)
    assert moved["shift"].to_numpy() == pytest.approx(np.full(9, 3.0)) and (moved["low"] > 0).all()
    clear = sum(
        ((own["low"] <= 0) & (own["high"] >= 0)).all()
        for own in (shift(rng.normal(size=25), rng.normal(size=25)) for _ in range(40))
    )
    assert (
        clear >= 34
    )  # 95 % of bands hold all nine zeros; fewer than 34 of 40 happen once in 2,000 such tests


def test_equal_samples_have_a_band_without_width():
    same = shift(np.full(20, 2.5), np.full(30, 2.5))
    assert (same[["shift", "low", "high"]] == 0).all(axis=None)


def test_cells_are_compared_by_every_value_of_one_element(runs):
    distances, shifts, notes = transport(load([runs], processes=1))
    (row,) = distances.to_dict("records")
    values = {
        name: [(field_of(repeat, offset) ** 2).sum() for repeat in range(n)]
        for name, n, offset in (("arrival", FEWEST, 0.0), ("ring", FEWEST + 5, 1.0))
    }
    assert (row["name"], row["runs_a"] + row["runs_b"]) == ("energy", 2 * FEWEST + 5)
    assert row["w1"] == pytest.approx(wasserstein_distance(values["arrival"], values["ring"]))
    assert row["p"] < 0.001 and len((row["above"] or row["below"]).split(", ")) == 9
    assert shifts["quantile"].tolist() == QUANTILES.tolist()
    assert len(notes) == 2 and all("3 runs" in note and f"needs {FEWEST}" in note for note in notes)


def field_of(repeat, offset):
    field = field_at(5)
    energy(0.01, offset)(repeat, 5, field)
    return field


def test_the_command_prints_tables_and_says_what_it_cannot(runs, capsys):
    assert main(["variability", str(runs), "--transport"]) == 0
    text = capsys.readouterr().out
    assert "Transport from cell to cell" in text and "Shift of energy" in text and "no transport" in text
    assert main(["variability", str(runs), "--transport", "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert set(document["tables"]) == {"transport", "shifts"} and len(document["notes"]) == 2
    assert main(["variability", str(runs), "--transport", "--by", "ordering"]) == 2
    assert "choose one" in capsys.readouterr().err
