"""The report: one HTML file that stands alone, says the verdict first and never crashes for want of data."""

import base64
import hashlib
import io
import itertools
import re
from dataclasses import replace
from html.parser import HTMLParser
from urllib.parse import unquote

import numpy as np
import pandas as pd
import pytest

from analysis.divergence.cause import cause
from analysis.divergence.classes import COLLECTIVE
from analysis.export.tables import LINK_MOST, csv_text, link
from analysis.load.frames import load
from analysis.overview import Overview
from analysis.page.sections import Section, Table, said_once
from analysis.page.svg import Figure
from analysis.report.build import build
from analysis.report.equality import first_sections, variability_sections
from analysis.report.figures import POINTS
from analysis.report.machine import machine_sections
from analysis.verdict import RANKS
from tests.analysis.synthetic import flip_bit, write_result, write_run, write_timed

SECTIONS = [
    "Groups", "First divergence", "Nodes, and traffic between them", "Machine and software",
    "Timelines around the first divergence",
    "Growth of the difference", "Variability", "Wall time per region",
    "Cost of the guarantees", "Scaling", "Scaling: where the time of ranks goes",
    "Scaling: communication and critical path", "Where the variance is", "What limits these results",
    "Differences of environment",
    "Left out, incomplete or failed",
    "How to read this",
]  # fmt: skip
VOID = {"meta", "br", "link", "img", "input", "hr"}


class Page(HTMLParser):
    """Tags, attributes and text of a page; complains about tags that do not match."""

    def __init__(self, html):
        super().__init__()
        self.open, self.tags, self.attributes, self.text = [], [], [], []
        self.feed(html)
        assert not self.open, f"never closed: {self.open}"

    def handle_starttag(self, tag, attributes):
        self.tags.append(tag)
        self.attributes += [(tag, key, value) for key, value in attributes]
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attributes):
        self.tags.append(tag)
        self.attributes += [(tag, key, value) for key, value in attributes]

    def handle_endtag(self, tag):
        assert self.open.pop() == tag, f"</{tag}> does not close what is open"

    def handle_data(self, data):
        if self.open and self.open[-1] not in ("style", "script"):
            self.text.append(data)

    def between(self, tag, html):
        """The text inside the first `tag`."""
        inner = re.search(rf"<{tag}\b.*?</{tag}>", html, flags=re.S)[0]
        return " ".join("".join(Page(inner).text).split())


def differ(at):
    """From step 2 on, one bit of the block `at` is another."""

    def change(repeat, step, field):
        if step >= 2:
            flip_bit(field, at, bit=step % 40)

    return change


@pytest.fixture(scope="module")
def campaign(tmp_path_factory):
    root = tmp_path_factory.mktemp("campaign")
    for i in range(3):
        write_run(
            root / f"none-{i}", size=2, change=differ(i), environment={"node": f"n{i % 2}"},
            orders=lambda repeat, step, i=i: [np.roll([0, 1], i)],
        )  # fmt: skip
    for size in (1, 2, 3):
        write_run(root / f"layout-{size}", size=size, guarantee="layout", ordering="exact")
    write_run(root / "killed", size=2, stop={1: 3}, result=False)
    return load([root])


@pytest.fixture(scope="module")
def report(campaign):
    return build(campaign)


def test_every_section_is_there_in_order(report):
    assert re.findall(r"<h2>(.*?)</h2>", report.html) == SECTIONS


def test_the_verdict_is_the_first_thing_said_and_the_title_of_the_page(report):
    page = Page(report.html)
    assert page.between("title", report.html) == report.verdict
    assert page.between("h1", report.html) == "Floating-point report on coupled"
    shown = r'<p class="headline"><span class="badge differs">(.*?)</span> (.*?)</p>'
    ((badge, words),) = re.findall(shown, report.html)
    assert f"{badge}: {words}" == report.verdict
    assert report.verdict == (
        "DIFFERS (probably message order): The same computation gave 3 different results in 3 runs, probably because "
        "messages were taken or added in the order in which they arrived. With a guarantee 3 runs on 1, 2, 3 ranks "
        "gave the same result, to the last bit (compared: 222 fingerprints and values and the final state)."
    )


def test_groups_are_in_words_worst_first_and_keep_the_colour_of_all_figures(report):
    section = report.html[report.html.index("<h2>Groups") : report.html.index("<h2>First divergence")]
    glyph = r'<span style="color: var\(--s(\d)\)" aria-hidden="true">.</span>'
    groups = re.findall(rf'<td data-label="group"[^>]*><span>{glyph} (.*?)</span></td>', section)
    arrival = ("0", "coupled: no guarantee, sums in order of arrival")
    exact = ("1", "coupled: guaranteed on any number of ranks (layout), sums by exact")
    assert groups == [arrival, exact] * 2  # the verdicts, and the results by rank count
    legends = re.findall(rf"<li>{glyph} (coupled: .*?)</li>", report.html)
    assert set(legends) == {arrival, exact}
    assert "coupled none/arrival" not in re.sub(r'href="[^"]*"', "", report.html)


@pytest.mark.usefixtures("undrawn")
def test_what_failed_its_own_checks_is_red_and_first(tmp_path):
    for name in "abc":
        write_run(tmp_path / name)
    write_run(tmp_path / "alone", guarantee="exact")
    write_result(tmp_path / "c", checks=[{"name": "energy", "passed": False, "detail": "gained 3"}])
    html = build(load([tmp_path])).html
    assert (
        '<p class="headline"><span class="badge failed">FAILED</span> 1 of 4 launches failed; c: check energy'
        in html
    )
    assert html.index('class="badge failed"') < html.index("1 group with nothing to compare")


def test_what_the_runs_ran_on_is_in_one_table(tmp_path):
    known = {"cpu": "EPYC", "cores": "2", "mpi": "MPICH 5", "python": "3.11", "system": "Linux", "variables": {},
             "command": "python -m coupled", "packages": {"numpy": "2.4", "mpi4py": "4.1"}}  # fmt: skip
    for i, node in enumerate(("n1", "n1", "n2")):
        write_run(tmp_path / f"r{i}", environment=known | {"node": node})
    (section,) = machine_sections(Overview(load([tmp_path])))
    ((_, table),) = section.tables
    assert dict(table.rows) == {
        "hosts": "n1 (2 launches); n2 (1 launch)", "processor": "EPYC, 2 cores", "operating system": "Linux",
        "MPI": "MPICH 5, mpi4py 4.1", "Python": "3.11", "libraries": "numpy 2.4", "dates": "2026-01-01 00:00 UTC",
        "command lines": "python -m coupled", "runs": dict(table.rows)["runs"],
    }  # fmt: skip
    assert dict(table.rows)["runs"].startswith("3 runs from 3 launches on 2 ranks, ")


def test_the_report_says_over_which_processors_guarantees_hold(tmp_path):
    for name, there in (("a", {}), ("b", {"holds_over": "any"}), ("c", {"holds_over": "any"})):
        write_run(tmp_path / name, guarantee="layout", environment={"cpu": "EPYC", "variables": {}} | there)
    (section,) = machine_sections(Overview(load([tmp_path])))
    assert dict(section.tables[0][1].rows)["guarantees hold over"] == (
        "this kind of processor, with its libraries and their settings (1 launch); any processor with IEEE 754 "
        "arithmetic (2 launches)"
    )


def test_only_the_first_sections_are_unfolded(report):
    opened = re.findall(r"<details open>\s*<summary><h2>(.*?)</h2>", report.html)
    assert opened == ["Groups", "First divergence", "Machine and software"]


def test_the_only_script_is_the_one_whose_hash_the_policy_names(report):
    (script,) = re.findall(r"<script>(.*?)</script>", report.html, flags=re.S)
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    assert f"script-src 'sha256-{digest}'" in report.html


def test_what_limits_a_section_is_said_once(report):
    text = " ".join(Page(report.html).text)
    assert text.count("no interval of 95 % confidence") <= 1
    assert re.search(r"Limited by \d+ \w+.*?<a href=\"#limits\">What limits these results</a>", report.html)


def test_nothing_is_fetched_from_anywhere(report):
    page = Page(report.html)
    assert not {"link", "img", "iframe", "object", "embed"} & set(page.tags)
    references = [
        value for _, key, value in page.attributes if key.endswith(("href", "src", "srcset", "action"))
    ]
    assert references and all(value.startswith(("#", "data:text/csv")) for value in references)
    assert "default-src 'none'" in report.html
    css = "".join(re.findall(r"<style.*?</style>", report.html, flags=re.S))
    assert "@import" not in css
    assert all(target.startswith("#") for target in re.findall(r"url\(([^)]*)\)", report.html))


def test_ids_are_unique_and_every_reference_has_its_target(report):
    page = Page(report.html)
    ids = [value for _, key, value in page.attributes if key == "id"]
    assert len(ids) == len(set(ids))
    links = [value for _, key, value in page.attributes if key.endswith("href")]
    targets = {value[1:] for value in links if value.startswith("#")}
    targets |= {target[1:] for target in re.findall(r"url\(([^)]*)\)", report.html)}
    assert targets <= set(ids)


def test_figures_are_text_and_follow_the_colours_of_the_page(report):
    drawings = re.findall(r"<svg.*?</svg>", report.html, flags=re.S)
    assert len(drawings) >= 6
    for drawing in drawings:
        assert "<text" in drawing and "aria-label=" in drawing
        assert "var(--ink" in drawing and "var(--s" in drawing
        assert not re.search(r"(fill|stroke): #", drawing), "a colour that does not follow the page"
    assert "step</text>" in report.html


def test_every_figure_has_a_caption(report):
    assert report.html.count("<figure>") == report.html.count("<figcaption>") >= 6


def linked(html):
    """{name of the file: its rows} of all CSV files inside a page."""
    page = Page(html)
    names = [value for tag, key, value in page.attributes if (tag, key) == ("a", "download")]
    links = [value for _, key, value in page.attributes if key == "href" and value.startswith("data:")]
    assert len(set(names)) == len(names) == len(links)
    texts = [unquote(link.partition(",")[2]) for link in links]
    return {name: pd.read_csv(io.StringIO(text)) for name, text in zip(names, texts, strict=True)}


def test_every_figure_has_a_link_to_the_points_that_it_shows(report):
    files = linked(report.html)
    figures = re.findall(r"<figure>.*?</figure>", report.html, flags=re.S)
    assert len(figures) == len(files)
    for figure in figures:
        name = re.search(r'download="([^"]*)"', figure)[1]
        if name.startswith("timeline"):  # bars: see test_timelines
            continue
        points = re.search(r"<svg.*?</svg>", figure, flags=re.S)[0]
        ticks = len(re.findall(r'<g id="[^"]*tick_\d+">', points))  # a mark each
        assert points.count("<use ") - ticks == len(files[name]), name


def test_the_numbers_of_a_link_have_all_their_bits(campaign, report):
    wall = linked(report.html)["wall.csv"].set_index(["run", "repeat"])["wall_s"]
    runs = campaign.runs[campaign.runs["complete"]].set_index(["run", "repeat"])["wall_s"]
    assert dict(wall) == dict(runs)


def test_a_link_that_would_be_too_large_holds_evenly_chosen_rows_and_says_so():
    frame = pd.DataFrame({"x": np.random.default_rng(1).random(20_000)})
    download = link("points", frame)
    assert len(download.uri) <= LINK_MOST
    kept = pd.read_csv(io.StringIO(unquote(download.uri.partition(",")[2])))
    stride = -(-len(frame) // len(kept))
    assert stride > 1 and kept["x"].tolist() == frame["x"][::stride].tolist()
    assert download.size == f"{len(kept):,} rows of 20,000, evenly chosen"


def test_text_in_a_csv_is_no_formula_for_a_spreadsheet():
    frame = pd.DataFrame({"group": ["=1+1", "-x", "@f", "plain"], "=y": [-1.0, 2.0, -3.0, 4.0]})
    assert csv_text(frame) == "group,'=y\n'=1+1,-1.0\n'-x,2.0\n'@f,-3.0\nplain,4.0\n"


def test_the_incomplete_run_is_named_with_reason_and_remedy(report):
    assert "ended early (rank 1 marked incomplete)" in report.html
    assert "repeat 0 to step 2" in report.html


def test_only_what_differs_between_environments_is_listed(report):
    section = report.html[report.html.index("<h2>Differences of environment") :]
    section = section[: section.index("</section>")]
    assert '<td data-label="entry">node</td>' in section
    assert ">n1</td>" in section and "MPICH" in section


@pytest.mark.usefixtures("undrawn")
def test_entries_that_differ_everywhere_explain_nothing_and_are_only_named(tmp_path):
    for i in range(3):
        write_run(tmp_path / f"r{i}", environment={"job": str(i), "node": "a" if i else "b"})
    html = build(load([tmp_path])).html
    assert "<p>Another value in every launch: job.</p>" in html
    assert '<td data-label="entry">node</td>' in html and '<td data-label="entry">job</td>' not in html


def test_hostile_text_is_shown_not_run(tmp_path):
    hostile = "<script>alert('$x^{$')</script>\"&"
    for name, change in (("a", None), ("b", differ(1))):
        write_run(
            tmp_path / name, change=change, ordering=hostile, names=(hostile, "b"),
            environment={hostile: f"<img src=x onerror=alert({name})>"}, run_id=name,
        )  # fmt: skip
    html = build(load([tmp_path])).html
    page = Page(html)
    assert page.tags.count("script") == 1 and "img" not in page.tags
    assert not [key for _, key, _ in page.attributes if key.startswith("on")]
    assert hostile in "".join(page.text)


def absent(report, sentence):
    assert sentence in report.html, sentence
    assert re.findall(r"<h2>(.*?)</h2>", report.html) == SECTIONS


def test_one_run_alone_says_what_cannot_be_concluded(tmp_path):
    report = build(load([write_run(tmp_path / "r")]))
    absent(report, "No group has runs that differ.")
    absent(report, "There are no two complete runs to compare")
    absent(report, "No guarantee was measured beside another way")
    absent(report, "All launches report the same machine")
    absent(report, "Nothing: every trace was read and every run ended.")
    assert (
        "there is nothing to compare" in report.verdict and "1 group with nothing to compare" in report.html
    )


def test_only_incomplete_runs_make_a_report(tmp_path):
    report = build(load([write_run(tmp_path / "r", stop={0: 2}, result=False)]))
    absent(report, "No times were recorded (--trace off), or no run is complete.")
    assert "no complete run" in report.html


def test_runs_without_fingerprints_make_a_report(tmp_path):
    for name in "ab":
        write_timed(tmp_path / name, lambda rank, step: [("step", 1, [])])
    absent(build(load([tmp_path])), "There are no two complete runs to compare")


@pytest.mark.slow
def test_steps_are_thinned_where_there_are_too_many_points_and_runs_are_not(tmp_path):
    steps, runs = 700, 11
    for i in range(runs):
        write_run(tmp_path / f"r{i}", size=1, blocks=1, steps=steps, change=differ(0) if i else None)
    html = build(load([tmp_path])).html
    title = "How far the difference in [^ ]* has spread"
    drawing = re.search(rf'<svg[^>]*aria-label="{title}.*?</svg>', html, flags=re.S)[0]
    assert POINTS / 2 < drawing.count("<use ") <= POINTS + 50 * runs
    assert len(re.findall(r'id="blocks-line2d_\d+"', drawing)) >= 2 * (runs - 1)
    assert len(html) < 5_000_000


def test_the_page_explains_the_badges_that_it_shows_and_no_others(report):
    legend = report.html[report.html.index('<section id="method">') :]
    explained = re.findall(r'<dt><span class="badge [^"]*">(.*?)</span></dt>', legend)
    assert explained == ["✓ IDENTICAL", "≠ DIFFERS", "– NOTHING TO COMPARE"]
    page = report.html[: report.html.index('<section id="method">')]
    assert all(badge.split()[1] in page for badge in explained)
    assert "holds:" not in page and "no difference seen" not in page


def test_a_first_divergence_has_the_cause_that_the_verdict_names(report):
    badge = re.search(r'<span class="badge differs">DIFFERS \((?:probably )?(.*?)\)</span>', report.html)[1]
    card = re.search(r'<div class="card">.*?<dt>cause</dt><dd>(.*?)</dd>', report.html, flags=re.S)[1]
    assert card.split(":")[0] == badge


def test_runs_are_counted_alike_in_the_verdict_and_below_it(tmp_path):
    for name in "ab":
        write_run(tmp_path / name, repeats=3)
    report = build(load([tmp_path]))
    assert "6 runs on 2 ranks gave the same result" in report.verdict
    assert "Read: 6 runs (each repeat is one) from 2 launches, in 1 group." in report.html


def test_a_label_of_a_first_divergence_is_said_once_and_a_table_of_many_ranks_shortens_headings(report):
    for card in re.findall(r'<div class="card">.*?</dl>', report.html, flags=re.S):
        labels = re.findall(r"<dt>(.*?)</dt>", card)
        assert all(one != other for one, other in itertools.pairwise(labels))
    assert re.search(r'aria-label="s exclusive on 3">on 3</th>', report.html)


def test_command_lines_that_differ_in_where_they_write_alone_are_one(tmp_path):
    for i in range(3):
        command = f"python -m coupled --steps 4 --out runs/{i}"
        write_run(tmp_path / f"r{i}", environment={"node": "n1", "command": command})
    (section,) = machine_sections(Overview(load([tmp_path])))
    assert dict(section.tables[0][1].rows)["command lines"] == "python -m coupled --steps 4"


def test_rows_without_a_difference_are_counted_and_not_drawn(tmp_path):
    for i in range(3):
        apart = lambda repeat, step, field, i=i: flip_bit(field, i, bit=50)  # noqa: E731
        write_run(tmp_path / f"none-{i}", change=apart)
        write_run(tmp_path / f"exact-{i}", guarantee="exact", ordering="exact")
    overview = Overview(load([tmp_path]))
    figures = {figure.name: figure for figure in variability_sections(overview)[0].figures}
    drawn = figures["variability-v_s"]
    assert (drawn.data.groupby(["group", "cell", "against"])["v_s"].max() > 0).all()
    assert "Not drawn: 1 row in which all runs are equal." in drawn.caption


def test_what_all_rows_of_a_table_have_is_said_once():
    table = Table(
        ("group", "ranks", "runs", "base"), [("a", 2, 4, "b"), ("a", 4, 4, "b")], ("ranks",), by="group"
    )
    short, words = said_once(table)
    assert short.columns == ("group", "ranks") and short.rows == [("a", 2), ("a", 4)]
    assert words == "; in all rows: runs 4, base b"
    assert said_once(replace(table, rows=table.rows[:1])) == (replace(table, rows=table.rows[:1]), "")
    assert said_once(table, but="base")[0].columns == ("group", "ranks", "base")


def test_the_legend_that_the_figures_of_a_section_share_is_shown_once(report):
    sections = re.findall(r'<section id="(.*?)">(.*?)</section>', report.html, flags=re.S)
    costs = dict(sections)["costs"]
    assert costs.count("<figure>") >= 2 and costs.count('<ul class="legend">') == 1
    assert costs.index('<ul class="legend">') < costs.index("<figure>")


def test_high_figures_come_last_and_two_meanings_of_a_colour_share_no_legend():
    def figure(name, height, legend):
        return Figure(name, "", "", legend, name, None, lambda axes: None, height, (1, 1))

    high, low, other = (
        figure("high", 9.0, ((0, "a"),)),
        figure("low", 3.0, ((0, "a"), (1, "b"))),
        figure("other", 4.0, ((1, "b"),)),
    )
    section = Section("s", "S", "", figures=[high, low, other])
    assert [each.name for each in section.drawn] == ["low", "other", "high"]
    assert section.legend == ((0, "a"), (1, "b"))
    clash = Section("s", "S", "", figures=[low, figure("clash", 3.0, ((0, "z"),))])
    assert clash.legend == () and [each.name for each in clash.drawn] == ["low", "clash"]


def test_no_line_ends_inside_a_number_with_an_exponent(report):
    shown = re.sub(r'href="[^"]*"', "", report.html)
    texts = re.findall(r"<(?:dd|figcaption|p)\b[^>]*>(.*?)</(?:dd|figcaption|p)>", shown, flags=re.S)
    numbers = [text for text in texts if re.search(r"\d\.\d+e-\d+", text)]
    assert numbers
    bare = [re.sub(r'<span class="whole">-?[\d.]+e[-+]\d+</span>', "", text) for text in numbers]
    assert not any(re.search(r"\d\.\d+e-\d+", text) for text in bare)
    assert re.search(r"\.whole \{ white-space: nowrap; \}", report.html)


def test_the_cause_of_every_card_is_in_the_words_of_the_verdict(tmp_path):
    """Runs that differ on one rank count and, by their sums, across rank counts: both cards say what a badge would."""
    for size, i in ((2, 0), (2, 1), (4, 0)):
        write_run(tmp_path / f"r{size}-{i}", size=size, change=differ(2 * i + size))
    overview = Overview(load([tmp_path]))
    (group,) = overview.groups
    assert group.across and group.first and group.shown is group.first
    summed = replace(group.cause, kind=COLLECTIVE)
    assert group.cause_of(group.across, summed) == RANKS == replace(group, cells=(), cause=summed).why
    assert group.cause_of(group.first, summed) == COLLECTIVE == replace(group, cause=summed).why
    cards = dict(first_sections(overview)[0].items[k][:2] for k in range(2))
    assert [dict(lines)["cause"].split(":")[0] for lines in cards.values()] == [
        group.cause_of(pair, cause(overview.frames, pair)) for pair in (group.first, group.across)
    ]
