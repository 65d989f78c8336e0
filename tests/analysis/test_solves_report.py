"""The report on runs of `solver`: three sections, a verdict that names changed decisions, and no crash for want of
data."""

import re

import numpy as np
import pytest

from analysis.load.frames import load
from analysis.report.build import build
from analysis.studies.solves import figures as solves_figures
from analysis.studies.solves import study as solves_study
from analysis.studies.solves.figures import (
    COLOURS,
    POINTS,
    drift_figures,
    growth_figures,
    history_figures,
    iteration_figures,
)
from analysis.studies.solves.runs import solves
from analysis.studies.solves.tables import case_tables, known_of
from tests.analysis import test_browser
from tests.analysis.solves_runs import (
    FALLING,
    TOLERANCE,
    iterates,
    laplacian,
    solve,
    studied,
    write_solves,
)
from tests.analysis.synthetic import write_run
from tests.analysis.test_report import SECTIONS, Page
from tests.analysis.test_sums_report import headings, section

SOLVES = [
    "Solves: iterations and accuracy", "Solves: first differences of histories", "Solves: growth of the difference",
]  # fmt: skip
MATRIX = laplacian(contrast=100.0)
B = np.random.default_rng(1).normal(size=len(MATRIX))


def solved(seed=None):
    """Conjugate gradients to the tolerance, as `write_solves` takes it."""
    xs, residuals = iterates(MATRIX, B, 130, seed)
    end = int(np.argmax(residuals <= TOLERANCE)) + 1
    true = np.linalg.norm(B - xs[:end] @ MATRIX, axis=1) / np.linalg.norm(B)
    marked = [value if k % 5 == 0 else None for k, value in enumerate(true)]
    return solve(residuals[:end], true_residual=marked, x=xs[:end].reshape(end, 4, -1))


@pytest.fixture(scope="module")
def frames(tmp_path_factory):
    root = tmp_path_factory.mktemp("solver")
    exact = {"guarantee": "layout", "ordering": "exact"}
    write_solves(root / "none", [solved([2, k]) for k in range(4)], size=2)
    write_solves(root / "layout-1", [solved()] * 2, **exact)
    write_solves(root / "layout-4", [solved()], size=4, **exact)
    write_solves(root / "study", [studied(limit=107, contrast=100.0)], guarantee="exact", ordering="exact")
    return load([root])


@pytest.fixture(scope="module")
def results(frames):
    return known_of(solves(frames))


@pytest.fixture(scope="module")
def report(frames):
    return build(frames)


def report_of(*runs):
    page = build(load(runs)).html
    Page(page)
    assert [title for title in headings(page) if title in SOLVES] == SOLVES
    return page


def points_of(drawing):
    return drawing.count("<use ")


def test_sections_on_solves_stand_in_front_of_the_environment(report):
    at = SECTIONS.index("What limits these results")
    assert headings(report.html) == [*SECTIONS[:at], "What rounding decides", *SOLVES, *SECTIONS[at:]]


@pytest.mark.usefixtures("undrawn")
def test_without_solves_the_report_is_what_it_was(tmp_path):
    page = build(load([write_run(tmp_path / "a")])).html
    assert headings(page) == SECTIONS and "Solves" not in page


def test_cases_are_in_words_in_drawings_too(report):
    assert re.search(r"<text[^>]*>[^<]*sums in order of arrival on 2 ranks", report.html)
    for title in SOLVES:
        shown = re.sub(r'href="[^"]*"', "", section(report.html, title), flags=re.S)
        assert "none/arrival" not in shown and "layout/exact" not in shown
    assert "guaranteed on any number of ranks (layout), sums by exact on 4 ranks" in section(
        report.html, SOLVES[0]
    )


def test_a_changed_decision_is_in_the_verdict(report):
    assert "1 solver changed a decision" in report.verdict or report.verdict.startswith("DIFFERS")
    groups = section(report.html, "Groups")
    assert "poisson27 8 x 8 x 8, cg" in groups and "a decision changed: 106" in groups
    assert Page(report.html).between("title", report.html) == report.verdict


@pytest.mark.usefixtures("undrawn")
def test_decisions_that_agree_are_not_in_the_verdict(tmp_path):
    runs = [write_solves(tmp_path / name, [solve(FALLING)]) for name in "ab"]
    report = build(load(runs))
    assert "iterations" not in report.verdict
    assert "one decision in 2 solves: 9 iterations" in section(report.html, SOLVES[0])


def test_every_solve_is_a_line_of_its_residuals_and_true_ones_are_marks(results):
    (figure,) = history_figures(results)
    assert [name for _, name in figure.legend] == results.cases["case"].tolist()
    assert "true residual" in figure.caption and "tolerance" in figure.caption
    lines = re.findall(r'id="solves-history-0-line2d_\d+"', figure.svg)
    assert len(lines) > 2 * len(results.recorded.solves)  # a line and marks each, and ticks
    assert "relative residual</text>" in figure.svg and "iteration</text>" in figure.svg


def test_iterations_are_points_by_case(results):
    (figure,) = iteration_figures(results)
    assert [name for _, name in figure.legend] == ["solves", "injected orders"]
    for case in results.cases["case"]:
        assert f">{case}</text>" in figure.svg
    assert points_of(figure.svg) >= 8 + 8  # solves and samples


def test_residuals_that_drift_apart_are_drawn_by_what_is_compared(results):
    (figure,) = drift_figures(results)
    assert [name for _, name in figure.legend] == ["repeats of a case", "cases against the reference"]
    assert ">equal</text>" in figure.svg


def test_the_growth_has_samples_median_and_fit(results):
    (figure,) = growth_figures(results)
    (row,) = results.growth.itertuples()
    assert f"exp({row.rate:.3g} k)" in figure.legend[1][1] and "8 solves" in figure.caption
    thin = [width for width in re.findall(r"stroke-width: ([\d.]+)", figure.svg) if width == "0.6"]
    assert len(thin) >= 8


def test_columns_of_what_was_not_recorded_are_left_out(tmp_path, results):
    ((_, table),) = case_tables(results)
    assert table.columns[-2:] == ("attained", "error") and "gap" in table.columns
    write_solves(tmp_path / "r", [solve(FALLING)])
    ((_, bare),) = case_tables(known_of(solves(load([tmp_path]))))
    assert bare.columns == ("case", "solves", "iterations", "histories", "solutions", "residual")


@pytest.mark.usefixtures("undrawn")
def test_one_repeat_says_what_cannot_be_concluded(tmp_path):
    page = report_of(write_solves(tmp_path / "r", [solve(FALLING)]))
    assert "1 solve, 9 iterations: nothing to compare with" in section(page, SOLVES[0])
    assert "There are no two complete solves of one problem by one method" in section(page, SOLVES[1])
    assert "No run has a drift study" in section(page, SOLVES[2])


@pytest.mark.usefixtures("undrawn")
def test_equal_solves_have_a_table_and_no_figure_of_a_drift(tmp_path):
    page = report_of(write_solves(tmp_path / "r", [solve(FALLING)] * 2))
    assert "<table" in section(page, SOLVES[1]) and "<svg" not in section(page, SOLVES[1])


@pytest.mark.parametrize(
    "bad", [np.nan, *(pytest.param(bad, marks=pytest.mark.slow) for bad in (np.inf, 0.0, -1.0))]
)
def test_residuals_and_differences_that_are_no_use_make_a_report(tmp_path, bad):
    residual = FALLING.copy()
    residual[4:] = bad
    partly = solve(residual, False, true_residual=residual, difference=np.full((3, 10), bad),
                   drift_iterations=[bad] * 3)  # fmt: skip
    never = solve(np.full(10, bad), False, true_residual=np.full(10, bad), error=np.full(10, bad))
    report_of(write_solves(tmp_path / "r", [partly, never]))


def test_solves_of_no_iteration_make_a_report(tmp_path):
    one = {"residual": [0.0], "iterations": 0, "converged": True, "difference": [[0.0], [0.0]]}
    page = report_of(write_solves(tmp_path / "r", [one, one]))
    assert "one decision in 2 solves: 0 iterations" in page


@pytest.mark.usefixtures("undrawn")
def test_only_incomplete_runs_make_a_report(tmp_path):
    page = report_of(write_solves(tmp_path / "r", [{"residual": FALLING[:3]}], complete=False, result=False))
    assert "no complete solve recorded its iterations" in section(page, SOLVES[0])
    assert "1 solve ended early" in section(page, SOLVES[0])


def test_hostile_names_are_shown_not_run(tmp_path):
    hostile = "<img src=x onerror=alert(1)>$x^{$&\"'"
    drawn = {"difference": np.exp(np.linspace(-36, -3, 10)) * np.ones((3, 1)), "drift_iterations": [8, 9, 9]}
    for k, kind in enumerate((hostile, "plain")):
        method = {"solve.method": hostile, "solve.preconditioner": hostile, "solve.spmv": hostile}
        runs = [solve(FALLING, **drawn), solve(FALLING[:9] * 1.01, converged=True, **drawn)]
        write_solves(
            tmp_path / f"r{k}",
            runs,
            kind=kind,
            problem=f"p{k}",
            ordering=hostile,
            method=method,
            run_id=f"{k}",
        )
    page = Page(report_of(tmp_path))
    assert "img" not in page.tags
    assert not [key for _, key, _ in page.attributes if key.startswith("on")]
    assert hostile in "".join(page.text)


def test_many_families_and_cases_have_tables_and_the_first_have_figures(tmp_path, monkeypatch):
    for module in (solves_figures, solves_study):
        monkeypatch.setattr(module, "DRAWN", 2)
    for k in range(4):
        pair = [solve(FALLING), solve(FALLING * 1.1)]
        write_solves(tmp_path / f"r{k}", pair, problem=f"p{k}", kind=f"kind{k}")
    results = known_of(solves(load([tmp_path])))
    assert (
        len(history_figures(results)) == 2 == len(drift_figures(results)) and len(case_tables(results)) == 4
    )
    first, second, _ = solves_study.sections(results)
    assert "first 2 families; 2 more have tables only" in first.intro
    assert all(table.folded for _, table in [*first.tables[1:], *second.tables])


def test_cases_beyond_the_colours_and_rows_are_in_the_table(tmp_path, monkeypatch):
    monkeypatch.setattr(solves_figures, "ROWS", COLOURS)
    for k in range(COLOURS + 2):
        write_solves(tmp_path / f"s{k}", [solve(FALLING)], ordering=f"permuted:seed={k}")
    results = known_of(solves(load([tmp_path])))
    assert "2 more cases are in the table" in iteration_figures(results)[0].caption
    (figure,) = history_figures(results)
    assert len(figure.legend) == COLOURS and "2 more cases are in the table" in figure.caption


def test_long_histories_are_thinned_and_solves_are_not(tmp_path):
    rng = np.random.default_rng(1)
    long = [solve(np.exp(-np.linspace(0, 20, 5000)) * rng.uniform(0.9, 1.1, 5000)) for _ in range(4)]
    results = known_of(solves(load([write_solves(tmp_path / "r", long)])))
    (history,) = history_figures(results)
    (drift,) = drift_figures(results)
    assert len(history.svg) < 400_000 and points_of(drift.svg) <= POINTS + 100
    assert len(re.findall(r"stroke-width: 1;|stroke: var\(--s0", history.svg)) >= 4


@pytest.mark.skipif(test_browser.CHROMIUM is None, reason="no chromium on PATH")
@pytest.mark.parametrize("width", [400, pytest.param(1600, marks=pytest.mark.slow)])
def test_the_page_fits_its_window_and_is_quiet(report, tmp_path, width):
    seen, log = test_browser.look(report, tmp_path, width)
    assert seen["content"] <= width == seen["width"]
    assert seen["fetched"] == 0 and "CONSOLE" not in log
    assert seen["smallest"] >= 9  # CSS pixels of the smallest letters in any figure
