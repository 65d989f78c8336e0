"""Figures and the files that they come from: no page quotes a file that is not there, no file is kept that no page
quotes."""

import re
from pathlib import Path

ROOT = Path(__file__).parents[1]
KEPT = {path.name for path in (ROOT / "benchmarks/results").iterdir() if not path.name.endswith(".raw.json")}
PAGES = {str(path): path.read_text() for path in (ROOT / "README.md", *(ROOT / "docs").rglob("*.md"))}
DATED = re.compile(r"[\w-]+-20\d\d-\d\d-\d\d\.json")


def test_every_result_file_is_named_by_a_page():
    assert KEPT
    assert not {name for name in KEPT if not any(name in text for text in PAGES.values())}


def test_every_dated_file_that_a_page_names_is_kept():
    named = {(page, name) for page, text in PAGES.items() for name in DATED.findall(text)}
    assert len(named) > 30
    assert not {(page, name) for page, name in named if name not in KEPT}
