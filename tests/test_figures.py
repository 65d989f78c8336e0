"""Figures of pages: each equals its result file, and the tool that fills them refuses what a file does not answer."""

import json
import re

import pytest

from tools import figures
from tools.words import page, pages

ROWS = [
    {
        "part": "a",
        "what": "x / y",
        "n": 1,
        "ends": [0.5, 0.75],
        "figure": {"median": 1.25, "min": 1.0, "max": 1.5, "n": 5},
    },
    {"part": "a", "what": "z", "n": 2, "figure": 2.0},
    {"part": "b", "what": "z", "n": 1024, "figure": 4.0, "ok": True},
]
MACHINE = {"cores": 2, "cpu": "EPYC", "date": "2026-11-23T01:45:16+00:00"}


@pytest.fixture
def kept(tmp_path, monkeypatch):
    """Two result files of this test."""
    monkeypatch.setattr(figures, "RESULTS", tmp_path)
    figures.document.cache_clear()
    (tmp_path / "one.json").write_text(json.dumps({"machine": MACHINE, "rows": ROWS}))
    (tmp_path / "two.json").write_text(json.dumps({"sums": ROWS[1:2], "counts": {"open": [3, 4]}}))
    yield
    figures.document.cache_clear()


def filled(template, head="one.json"):
    text = f"before\n\n<!-- figures {head}\n{template}\n-->\nstale\n<!-- end of figures -->\n\nafter\n"
    new = figures.page(text)
    assert new == figures.page(new) and new.startswith("before\n") and new.endswith("\nafter\n")
    return figures.without_templates(new).split("\n\n")[1]


@pytest.mark.parametrize("name", sorted(pages()))
def test_figures_of_a_page_are_those_of_the_result_files(name):
    text = pages()[name]
    assert figures.page(text) == text, "python -m tools.figures fills it"


MEASURED = re.compile(r"\d ?(us|ns|GB/s|MB/s|GF/s|GFLOP/s)\b|\d\.\d+ times as|\(\d+\.\d+ to \d[\d.]*[,)]")
GIVEN = ("25 GB/s a link", "At 40 GB/s one core has 8.7 ns", "100 GFLOP/s and 100 GB/s of a cache")


@pytest.mark.parametrize("name", sorted(pages()))
def test_no_measurement_stands_outside_of_a_template(name):
    """Rates, times and spreads come from result files; a page may state rates that a model or a reader assumes."""
    text = figures.BLOCK.sub("", pages()[name])
    found = [
        line for _, line in page(text) if MEASURED.search(line) and not any(given in line for given in GIVEN)
    ]
    assert found == []


@pytest.mark.parametrize(
    "template, expected",
    [
        ("{what=x / y -> figure %.2f}", "1.25 (1.00 to 1.50)"),
        ("{what=x / y -> figure %.2f rounds}", "1.25 (1.00 to 1.50, 5 rounds)"),
        ("{what=x / y -> figure %.1f max} {what=x / y -> figure %.1f spread}", "1.5 1.0 to 1.5"),
        ("{what=x / y -> figure %.0f percent median} %", "125 %"),
        ("{part=a; what=z -> figure %.1f *1e3} ms", "2000.0 ms"),
        ("{n>=1000 -> n %,d} of {part=a -> n % count}", "1,024 of 2"),
        ("{what=z -> figure %.1f over}; {figure %.2f mean}; {n<1024 -> n % most}", "2.0 to 4.0; 2.42; 2"),
        ("{part=b -> figure // part=a; what=z -> figure %.1f}", "2.0"),
        ("[part=b; what=z] | {figure} | {n}", "| 4.0 | 1024"),
        ("[each what; n<1000] {what % over}: {n % over}", "x / y: 1\nz: 2"),
        ("[each part, n] {part % over}{n}", "a1\na2\nb1024"),
        ("{what=z -> part % list}; {n>5000 -> part % list}; {n=1 -> figure %.2f list}", "a, b; none; 1.25"),
        ("{n>5000 -> n % count}; {n=1 -> figure.max %.1f}", "0; 1.5"),
        ("{what~/ -> part}{n=1 -> ends.1 %.0f percent}", "a75"),
        ("[a link](x.md) to {n=1 -> what}", "[a link](x.md) to x / y"),
        ("{ok=True -> what}", "z"),
        ("{machine}; {file}; {=machine.date %.4s}", "2 cores, EPYC, 2026-11-23; `one.json`; 2026"),
    ],
)
def test_an_expression_writes(kept, template, expected):
    assert filled(template) == expected


def test_several_files_and_rows_below_another_key(kept):
    assert (
        filled("{n=1 -> part} {two: figure} {two: file}", "one.json two=two.json#sums") == "a 2.0 `two.json`"
    )
    assert filled("{=counts.open.1}", "two.json") == "4"
    assert filled("{what=z -> n}", "one.json [part=b]") == "1024"


@pytest.mark.parametrize(
    "template, head, message",
    [
        ("{figure}", "none.json", "no result file none.json"),
        ("{part=c -> figure}", "one.json", "no row with part=c"),
        ("{part=a -> figures}", "one.json", "no column 'figures'"),
        ("{part=a -> figure}", "one.json", "2 rows"),
        ("{part=b -> figure %.1f aproximately}", "one.json", "unknown word 'aproximately'"),
        ("{=counts.closed}", "two.json", "no 'counts.closed'"),
        ("{=counts.open.7}", "two.json", "no 'counts.open.7'"),
        ("[each kind] {n}", "one.json", "no column 'kind'"),
        ("{part -> figure}", "one.json", "is no condition"),
        ("{parts=a -> figure % count}", "one.json", "no column 'parts'"),
        ("{n=1 -> figure.middle}", "one.json", "no column 'figure.middle'"),
        ("{figure}", "two.json", "no 'rows'"),
    ],
)  # fmt: skip
def test_what_a_file_does_not_answer_is_refused(kept, template, head, message):
    with pytest.raises(figures.Wrong, match=re.escape(message)) as told:
        filled(template, head)
    assert str(told.value).startswith("3: ")


def test_a_template_without_an_end_is_refused(kept):
    with pytest.raises(figures.Wrong, match="templates begin"):
        figures.page("<!-- figures one.json\n{n}\n-->\n1\n")


def test_check_names_a_stale_page_and_writes_nothing(kept, tmp_path, monkeypatch, capsys):
    page = tmp_path / "page.md"
    page.write_text("<!-- figures one.json\n{part=b -> figure}\n-->\n4.5\n<!-- end of figures -->\n")
    monkeypatch.setattr("sys.argv", ["figures", "--check", str(page)])
    assert (
        figures.main() == 1
        and "page.md: figures differ" in capsys.readouterr().err
        and "4.5" in page.read_text()
    )
    monkeypatch.setattr("sys.argv", ["figures", str(page)])
    assert figures.main() == 0 and "\n4.0\n" in page.read_text()
