"""The growth of the difference between runs: finds a known law, and says so if there is none."""

import numpy as np
import pandas as pd
import pytest

from analysis.__main__ import main
from analysis.load.frames import load
from analysis.report.build import build
from analysis.studies.growth.figures import divergence_figures
from analysis.studies.growth.runs import HALF, alone, cell_growths, equal_cells, laws
from tests.analysis.synthetic import write_run

STEPS = 40


def drifting(rate):
    """The difference of repeat r from repeat 0 is r * 1e-14 exp(rate step) of the first element, until 1e-3."""

    def change(repeat, step, field):
        field[:, 0] *= 1 + repeat * min(1e-14 * np.exp(rate * step), 1e-3)

    return change


@pytest.fixture(scope="module")
def drift(tmp_path_factory):
    path = tmp_path_factory.mktemp("drift")
    write_run(path / "r", size=1, steps=STEPS, repeats=7, change=drifting(0.8))
    write_run(path / "same", size=1, guarantee="run", ordering="ring", steps=4, repeats=3)
    write_run(path / "one", size=2, steps=4)
    return path


def test_a_known_rate_is_found_and_the_crossing_predicted(drift):
    frames = load([drift])
    table = laws(cell_growths(frames), tolerance=1e-8).set_index("name")
    row = table.loc["sample"]
    assert row["samples"] == 6 and row["reference"] == "r:0" and row["nothing"] == ""
    assert row["rate"] == pytest.approx(0.8, rel=0.03) and row["rate_low"] <= row["rate"] <= row["rate_high"]
    assert row["efold"] == pytest.approx(1 / row["rate"]) and row["tenfold"] == pytest.approx(
        np.log(10) / row["rate"]
    )
    crossing = np.median(np.log(1e-8 / (1e-14 * np.arange(1, 7))) / 0.8)
    assert row["predicted"] == pytest.approx(crossing, abs=1) and abs(row["observed"] - crossing) <= 1.5
    assert row["settled"] == pytest.approx(3.5e-3, rel=0.01)
    assert row["last"] == pytest.approx(np.log(1e11) / 0.8, abs=2)


def test_blocks_without_values_are_counted_against_half_of_them(drift):
    table = laws(cell_growths(load([drift]))).set_index("name")
    assert table.loc["vorticity", "kind"] == "fingerprints" and table.loc["vorticity", "tolerance"] == HALF
    assert table.loc["vorticity", "largest"] == 1.0 and np.isnan(table.loc["vorticity", "rate"])


def test_cells_that_are_equal_or_alone_have_no_law(drift):
    frames = load([drift])
    growths = cell_growths(frames)
    assert set(laws(growths)["cell"]) == {"coupled none/arrival on 1 rank"}
    assert equal_cells(growths) == {"coupled run/ring on 1 rank": 3}
    assert alone(frames) == ["coupled none/arrival on 2 ranks"]


def test_the_command_prints_the_laws_and_what_no_difference_means(drift, tmp_path, capsys):
    assert main(["growth", str(drift), "--tolerance", "1e-6", "--csv", str(tmp_path / "csv")]) == 0
    out = capsys.readouterr().out
    assert "largest relative difference, tolerance 1e-06" in out and "rate per step" in out
    assert "coupled run/ring on 1 rank: no difference at any step; 0 of 3 differ: p < 63 %" in out
    assert "coupled none/arrival on 2 ranks: fewer than two complete runs" in out
    assert {path.name for path in (tmp_path / "csv").iterdir()} == {"laws.csv", "growth.csv"}


@pytest.mark.usefixtures("undrawn")
def test_what_no_difference_means_is_told_once_for_all_equal_cells(tmp_path, capsys):
    for name, size, repeats in (("a", 1, 3), ("b", 2, 3), ("c", 3, 2)):
        write_run(tmp_path / name, size=size, guarantee="run", ordering="ring", steps=4, repeats=repeats)
    nothing = "0 of 3 differ: p < 63 % at 95 %; 299 runs would bound 1 %"
    assert main(["growth", str(tmp_path)]) == 0
    out = capsys.readouterr().out
    both = "coupled run/ring on 1 rank; coupled run/ring on 2 ranks: no difference at any step; in each"
    assert f"{both} {nothing}." in out and out.count("0 of 3 differ") == 1
    assert "coupled run/ring on 3 ranks: no difference at any step; 0 of 2 differ" in out
    html = build(load([tmp_path])).html
    section = html[html.rindex(">Growth of the difference<") :].partition("<section")[0]
    assert section.count("0 of 3 differ") == 1 and section.count("0 of 2 differ") == 1


@pytest.mark.parametrize("tolerance", ["0", "-1", "nan", "inf", "much"])
def test_a_tolerance_is_a_number_above_zero(tolerance, capsys):
    with pytest.raises(SystemExit) as ended:
        main(["growth", "runs", f"--tolerance={tolerance}"])
    assert ended.value.code == 2 and "must be a number above 0" in capsys.readouterr().err


def test_the_report_has_the_law_beside_the_figure_and_draws_it(drift):
    html = build(load([drift])).html
    section = html[html.rindex(">Growth of the difference<") :].partition("<section")[0]
    assert "rate per step" in section and "the fitted growth, over the steps of the growth phase" in section


def test_two_runs_are_too_few_for_a_rate_and_it_says_so(tmp_path):
    write_run(tmp_path / "r", size=1, steps=20, repeats=2, change=drifting(0.8))
    row = laws(cell_growths(load([tmp_path]))).set_index("name").loc["sample"]
    assert row["nothing"] == "1 sample, a rate needs 3" and np.isnan(row["rate"])
    assert row["largest"] > 0 and row["crossed"] == 1


def test_a_name_that_never_differs_is_no_figure(drift):
    growths = cell_growths(load([drift]))
    values = growths[growths["kind"] == "values"]
    still = values.assign(name="still", elements=10**6, differing=0, max_relative=0.0)
    every = pd.concat([still, growths], ignore_index=True)
    labels = every["group"].unique().tolist()
    assert all("still" not in each.title for each in divergence_figures(every, labels, laws(every)))
