"""The report on runs of `reductions`: five sections on sums, and nothing about samples taken for steps."""

import html
import re

import numpy as np
import pytest

from analysis.groups import problem_names
from analysis.load.frames import load
from analysis.report.build import build
from analysis.studies.sums import figures as sums_figures
from analysis.studies.sums import study as sums_study
from analysis.studies.sums.figures import (
    BARS,
    PANELS,
    bits_figures,
    growth_figures,
    left_out,
    shape_figures,
)
from analysis.studies.sums.price_figures import price_figures
from analysis.studies.sums.runs import sums
from analysis.studies.sums.tables import known_of
from analysis.verdict import judge
from tests.analysis import test_browser
from tests.analysis.sums_runs import CONFIG, write_sums
from tests.analysis.synthetic import write_run
from tests.analysis.test_report import SECTIONS, Page

SUMS = [
    "Sums: price list", "Sums: run-to-run variability", "Sums: distribution of V_s", "Sums: growth with N",
    "Sums: worst orders",
]  # fmt: skip
SIZES = (10, 100, 1000)
EPS = 2.0**-52


def spread(n, samples=40, arrays=3, seed=1):
    """Sums near 1 whose distance from 1 grows as sqrt(n)."""
    steps = np.random.default_rng([seed, n]).normal(0, 20 * n**0.5, (arrays, samples))
    return 1 + EPS * np.round(steps)


def campaign_run(out, samples=40, **more):
    values, times, truth, worst = {}, {}, {}, {}
    for n in SIZES:
        values[f"sum:ao:emulated:{n}"] = spread(n, samples)
        values[f"sum:spa:native:{n}"] = spread(n, samples, seed=2)
        values[f"sum:sptr:native:{n}"] = np.ones((3, samples))
        values[f"sum:exact:native:{n}"] = np.ones((3, samples))
        times[f"sum:spa:native:{n}"] = np.full(samples, 1.0 * n)
        times[f"sum:sptr:native:{n}"] = np.full(samples, 2.0 * n)
        times[f"sum:exact:native:{n}"] = np.full(samples, 4.0 * n)
        truth[n] = np.ones(3)
        worst[f"worst-low:ao:emulated:{n}"] = np.full(3, 1 - 1000 * EPS * n)
        worst[f"worst-high:ao:emulated:{n}"] = np.full(3, 1 + 1000 * EPS * n)
    return write_sums(out, values, times, truth=truth, worst=worst, **more)


@pytest.fixture(scope="module")
def frames(tmp_path_factory):
    return load([campaign_run(tmp_path_factory.mktemp("sums") / "r")])


@pytest.fixture(scope="module")
def results(frames):
    return known_of(sums(frames))


@pytest.fixture(scope="module")
def report(frames):
    return build(frames)


def headings(page):
    return re.findall(r"<h2>(.*?)</h2>", page)


def section(page, title):
    """The HTML of one section."""
    begin = page.index(f"<h2>{title}</h2>")
    return page[begin : page.index("</section>", begin)]


def cells(page, title):
    """The rows of the first table of a section, {column: text} each."""
    body = re.search(r"<tbody>.*?</tbody>", section(page, title), flags=re.S)[0]
    rows = re.findall(r"<tr>(.*?)</tr>", body, flags=re.S)
    return [
        {
            html.unescape(column): html.unescape(text)
            for column, text in re.findall(r'<td data-label="([^"]*)"[^>]*>(.*?)</td>', row, flags=re.S)
        }
        for row in rows
    ]


def test_sections_on_sums_follow_the_existing_ones_in_front_of_the_environment(report):
    at = SECTIONS.index("What limits these results")
    assert headings(report.html) == [*SECTIONS[:at], *SUMS, *SECTIONS[at:]]


@pytest.mark.usefixtures("undrawn")
def test_without_reductions_the_report_is_what_it_was(tmp_path):
    page = build(load([write_run(tmp_path / "a"), write_run(tmp_path / "b")])).html
    assert headings(page) == SECTIONS
    assert "reductions" not in page


@pytest.mark.usefixtures("undrawn")
def test_reductions_that_recorded_no_sum_have_no_section_on_sums(tmp_path):
    run = write_sums(tmp_path / "r", {"data:10": np.ones((1, 2))})
    assert headings(build(load([run])).html) == SECTIONS


def test_the_price_list_has_the_times_that_were_recorded(report):
    rows = {(row["n"], row["variant"]): row for row in cells(report.html, SUMS[0])}
    assert rows["100", "spa (native)"]["median time"] == "100 ms"
    assert rows["100", "sptr (native)"]["median time"] == "200 ms"
    assert rows["100", "exact (native)"]["ratio to spa (native)"] == "4.000"
    assert rows["100", "ao (emulated)"]["median time"] == "emulated"


def test_cases_are_in_words(report):
    for title in SUMS[:-1]:
        shown = re.sub(r'<svg.*?</svg>|href="[^"]*"', "", section(report.html, title), flags=re.S)
        assert (
            "uniform float64, no guarantee, sums by native on 1 rank" in shown and "none/native" not in shown
        )


@pytest.mark.usefixtures("undrawn")
def test_samples_are_not_taken_for_steps(tmp_path):
    runs = [campaign_run(tmp_path / name) for name in "ab"]
    page = build(load(runs)).html
    for title in ("Growth of the difference", "Variability", "Cost of the guarantees"):
        assert "<svg" not in section(page, title) and "<table" not in section(page, title)
    assert page.count("leave out the runs that compare variants") == 1
    assert "leave out the runs that compare variants" in section(page, "Groups")


@pytest.mark.usefixtures("undrawn")
def test_reductions_that_differ_and_another_app_make_one_report(tmp_path):
    for i in range(2):
        values = {f"sum:spa:native:{n}": spread(n, seed=i) for n in SIZES}
        write_sums(tmp_path / f"sums-{i}", values)
        write_run(tmp_path / f"coupled-{i}")
    page = build(load([tmp_path])).html
    assert "a step is a sample and a block an array" in section(page, "First divergence")
    assert page.count("leave out the runs that compare variants") == 1
    variability = section(page, "Variability")
    assert "coupled" in variability
    assert "sum:spa" not in variability


def test_price_is_drawn_against_error_by_guarantee(results):
    price, time = price_figures(results)
    assert {name for _, name in price.legend} == {"none", "run", "exact"}
    assert "N = 1,000" in price.caption
    for name in ("spa", "sptr", "exact"):
        assert f">{name}</text>" in price.svg
    assert "median time per element, ns" in price.svg and "largest error, ULP" in price.svg
    assert "µs" in time.svg and {name for _, name in time.legend} == {
        "spa (native): none", "sptr (native): run", "exact (native): exact",
    }  # fmt: skip


def test_where_names_have_no_room_the_best_trades_are_named(tmp_path):
    crowd = {f"crowded-variant-{i}": (2.0 + 0.01 * i, 1 + 8 * EPS) for i in range(20)}
    points = crowd | {"cheapest": (1.9, 1 + 9 * EPS), "closest": (2.3, 1 + EPS), "both": (1.95, 1 + 7 * EPS)}
    values = {f"sum:{name}:native:100": np.full((1, 8), value) for name, (_, value) in points.items()}
    times = {f"sum:{name}:native:100": np.full(8, ms) for name, (ms, _) in points.items()}
    (figure,) = price_figures(
        known_of(sums(load([write_sums(tmp_path / "r", values, times, truth={100: np.ones(1)})])))
    )
    named = {name for name in points if f">{name}</text>" in figure.svg}
    assert {"cheapest", "closest", "both"} <= named < set(points)


def test_every_array_is_a_point_of_run_to_run_and_of_algorithm(results):
    (figure,) = bits_figures(results)
    assert "every array a point" in figure.caption
    # 4 variants, 3 arrays, pair and shift; what else is marked are ticks.
    points = [
        group.count("<use ")
        for group in re.findall(r'<g id="sums-bits-0-line2d_\d+">.*?</g>\s*</g>', figure.svg, flags=re.S)
        if group.count("<use ") == 3
    ]
    assert len(points) == 8
    # The variant that differs is above those that do not.
    assert figure.svg.index(">ao (emulated)<") < figure.svg.index(">exact (native)<")


def test_histograms_are_few_and_of_variants_that_differ(results):
    (figure,) = shape_figures(results)
    titles = re.findall(r">(\w+ \(\w+\))</text>", figure.svg)
    assert set(titles) == {"ao (emulated)", "spa (native)"}
    assert len(titles) == 2 * len(SIZES) <= PANELS


def test_a_histogram_shows_the_samples_of_its_own_variant_and_size(tmp_path):
    values = {"sum:ao:emulated:10": np.ones((2, 40))}
    for k, (variant, n) in enumerate([("spa", 10), ("spa", 100), ("tprc", 10), ("tprc", 100)]):
        values[f"sum:{variant}:native:{n}"] = 1 + np.linspace(-2, 2, 40) * 10.0 ** -(4 + 2 * k)
    (figure,) = shape_figures(known_of(sums(load([write_sums(tmp_path / "r", values)]))))
    seen = re.findall(r">(\w+) \(native\)<.*?>N = (\d+)<", figure.svg, flags=re.S)
    units = re.findall(r">V_s / (.*?)<", figure.svg)
    assert dict(zip(units, sorted(seen), strict=True)) == {
        "10⁻⁴": ("spa", "10"), "10⁻⁶": ("spa", "100"), "10⁻⁸": ("tprc", "10"), "10⁻¹⁰": ("tprc", "100"),
    }  # fmt: skip


def test_no_histogram_has_more_panels_and_bars_than_can_be_read(tmp_path):
    sizes = [2**k for k in range(3, 23)]
    values = {f"sum:{v}:native:{n}": spread(n, 30, 1) for v in ("spa", "ao") for n in sizes}
    values["sum:spa:native:8388608"] = spread(10**8, 3000, 1)
    (figure,) = shape_figures(known_of(sums(load([write_sums(tmp_path / "r", values)]))))
    assert len(re.findall(r">N = [\d,]+</text>", figure.svg)) == PANELS
    assert ">N = 8,388,608</text>" in figure.svg
    bars = [path.count("L ") for path in re.findall(r' d="(.*?)"', figure.svg, flags=re.S)]
    assert max(bars) <= 2 * BARS + 10


def test_the_growth_has_alpha_in_its_legend_and_marks_of_the_search(results):
    (figure,) = growth_figures(results)
    (ao, spa) = (text for _, text in figure.legend)
    assert re.fullmatch(r"ao \(emulated\): alpha = 0\.\d+ \(0\.\d+ to 0\.\d+\)", ao)
    assert 0.3 < float(re.search(r"alpha = ([\d.]+)", spa)[1]) < 0.7
    assert "search for worst orders" in figure.caption


def test_worst_orders_are_listed(report):
    rows = cells(report.html, SUMS[4])
    assert [list(row.values())[:3] for row in rows] == [[f"{n:,}", "ao (emulated)", "3"] for n in SIZES]


def test_one_sample_says_what_cannot_be_concluded(tmp_path):
    page = build(load([campaign_run(tmp_path / "r", samples=1)])).html
    assert "No array has 20 samples" in section(page, SUMS[2])
    assert "The samples of no variant differ" in section(page, SUMS[3])
    assert "<table" in section(page, SUMS[0])


@pytest.mark.usefixtures("undrawn")
def test_emulated_variants_alone_have_no_price_figure(tmp_path):
    values = {f"sum:ao:emulated:{n}": spread(n) for n in SIZES}
    page = build(load([write_sums(tmp_path / "r", values)])).html
    assert "<svg" not in section(page, SUMS[0])
    assert {row["median time"] for row in cells(page, SUMS[0])} == {"emulated"}
    assert "only differences within a variant are known" in section(page, SUMS[0])
    assert "No search for the worst orders was made" in section(page, SUMS[4])


@pytest.mark.parametrize(
    "bad", [np.nan, *(pytest.param(bad, marks=pytest.mark.slow) for bad in (np.inf, 0.0))]
)
def test_sums_that_are_no_use_for_a_ratio_make_a_report(tmp_path, bad):
    values = {}
    for n in SIZES:
        values[f"sum:spa:native:{n}"] = spread(n)
        values[f"sum:spa:native:{n}"][0, ::2] = bad
        values[f"sum:spa:native:{n}"][1] = bad
        values[f"sum:sptr:native:{n}"] = np.full((3, 40), bad)
        values[f"sum:ao:emulated:{n}"] = np.full((3, 40), np.nan)
    times = {name: np.ones(40) for name in values}
    for truth in ({n: np.full(3, bad) for n in SIZES}, {}):
        page = build(load([write_sums(tmp_path / f"r{len(truth)}", values, times, truth=truth)])).html
        Page(page)
        assert [title for title in headings(page) if title in SUMS] == SUMS


def test_hostile_names_are_shown_not_run(tmp_path):
    hostile = '<img src=x onerror=alert(1)>$x^{$&"'
    values = {f"sum:{hostile}:native:{n}": spread(n) for n in SIZES}
    times = {name: np.ones(40) for name in values}
    values |= {f"sum:sptr:native:{n}": np.ones((3, 40)) for n in SIZES}
    page = Page(build(load([write_sums(tmp_path / "r", values, times)])).html)
    assert "img" not in page.tags
    assert not [key for _, key, _ in page.attributes if key.startswith("on")]
    assert hostile in "".join(page.text)


def with_data(**problem):
    return CONFIG | {"problem": CONFIG["problem"] | problem}


def test_many_cases_have_tables_and_the_first_have_figures(tmp_path, monkeypatch):
    for module in (sums_figures, sums_study):
        monkeypatch.setattr(module, "DRAWN", 2)
    for k in range(4):
        values = {f"sum:spa:native:{n}": spread(n, 20, 2) for n in SIZES}
        config = with_data(distribution=f"kind{k}")
        write_sums(tmp_path / f"r{k}", values, config=config, problem=f"p{k}")
    frames = load([tmp_path])
    assert left_out(known_of(sums(frames))) == 2
    prices, bits = sums_study.sections(known_of(sums(frames)))[:2]
    assert len(bits.figures) == 2 and len(bits.tables) == 4
    assert "2 more have tables only" in prices.intro
    page = build(frames).html
    assert len(page) < 5_000_000
    ids = [value for _, key, value in Page(page).attributes if key == "id"]
    assert len(ids) == len(set(ids))


def test_other_data_never_make_one_group(tmp_path):
    """Runs differ in options that are none of the problem, and in the data: the data must be in the name."""
    for k, (distribution, block) in enumerate([("uniform", 64), ("normal", 64), ("uniform", 32)]):
        config = {"a": {"u": block, "v": block, "w": block}} | with_data(distribution=distribution)
        write_sums(
            tmp_path / f"r{k}", {"sum:spa:native:10": spread(10)}, config=config, problem=f"p{k}",
            run_id=f"r{k}",
        )  # fmt: skip
    frames = load([tmp_path])
    assert len(set(problem_names(frames.runs).values())) == 3
    assert all(group.verdict == "not tested" for group in judge(frames))


@pytest.mark.skipif(test_browser.CHROMIUM is None, reason="no chromium on PATH")
@pytest.mark.parametrize("width", [400, pytest.param(1600, marks=pytest.mark.slow)])
def test_the_page_fits_its_window_and_is_quiet(report, tmp_path, width):
    seen, log = test_browser.look(report, tmp_path, width)
    assert seen["content"] <= width == seen["width"]
    assert seen["fetched"] == 0 and "CONSOLE" not in log
    assert seen["smallest"] >= 9  # CSS pixels of the smallest letters in any figure
