"""The site: every page has a place in the menu, every link a page, and no generated page is empty."""

import json
import os
import re
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import msgspec
import pytest

from miniapps.trace import head, schema
from tools.reference import pages

ROOT = Path(__file__).resolve().parents[1]
DOCS = ROOT / "docs"
AT_ROOT = ("CONTRIBUTING.md", "CHANGELOG.md", "SECURITY.md", "RELEASING.md")
KINDS = {"tutorials", "how-to", "reference", "explanation"}
WRITTEN = {str(path.relative_to(DOCS)): path.read_text() for path in sorted(DOCS.rglob("*.md"))}
LINK = re.compile(r"\]\(([^)\s]+)\)")


@pytest.fixture(scope="module")
def made():
    return pages()


def test_pages_lie_in_the_four_folders_alone():
    assert {path.partition("/")[0] for path in WRITTEN} == KINDS | {"README.md"}


def test_every_page_is_in_the_menu():
    menu = re.findall(r"- (?:\w+: )?(\S+\.md)$", (ROOT / "mkdocs.yml").read_text(), flags=re.MULTILINE)
    assert len(menu) == len(set(menu))
    assert set(menu) - set(AT_ROOT) == set(WRITTEN)


def test_every_generated_page_says_something(made):
    assert len(made) > 50 and not set(made) & set(WRITTEN)
    for path, text in made.items():
        title, *lines = text.splitlines()
        assert title.startswith("# ") and sum(map(bool, lines)) >= 3, path
        assert "None" not in re.findall(r"\| (\w+) \|", text), path


def test_every_attribute_and_table_of_a_trace_is_explained():
    assert set(head.MEANINGS) == {field.name for field in msgspec.structs.fields(head.Head)}
    assert set(schema.MEANINGS) == set(schema.TABLES)


def test_no_link_is_broken(made):
    texts = {name: (ROOT / name).read_text() for name in ("README.md", *AT_ROOT)}
    texts |= {f"docs/{path}": text for path, text in (WRITTEN | made).items()}
    broken = []
    for page, text in texts.items():
        for target in LINK.findall(re.sub(r"```.*?```|`[^`]*`", "", text, flags=re.DOTALL)):
            path = os.path.normpath(os.path.join(os.path.dirname(page), target.partition("#")[0]))
            if "://" not in target and target[0] != "#" and path not in texts and not (ROOT / path).exists():
                broken.append((page, target))
    assert not broken


def test_messages_name_pages_that_are_there():
    named = {
        (str(path.relative_to(ROOT)), name)
        for room in ("fpna", "kernels", "miniapps", "analysis", "jobs", "benchmarks", "tests")
        for path in (ROOT / room).rglob("*.py")
        for name in re.findall(
            r"(?<![\w/.-])docs/([\w/-]+\.md)", path.read_text().replace("Extra-P, docs/", "")
        )
    }
    assert len(named) > 40
    assert not {(file, name) for file, name in named if not (DOCS / name).exists()}


@pytest.mark.slow
@pytest.mark.skipif(find_spec("mkdocs") is None, reason="no mkdocs: make docs installs it")
def test_the_site_is_built_fetches_nothing_and_finds(tmp_path):
    build = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", tmp_path], cwd=ROOT, capture_output=True,
        env=os.environ | {"NO_MKDOCS_2_WARNING": "1"}, text=True,
    )  # fmt: skip
    assert build.returncode == 0, build.stderr
    for html in tmp_path.rglob("*.html"):
        fetched = re.findall(
            r"<(?:script|img|iframe|link)\b[^>]*?(?:src|href)=\"?(https?://[^\" >]*)", html.read_text()
        )
        assert not fetched, html
    for css in tmp_path.rglob("*.css"):
        assert not re.findall(r"url\(\"?https?:", css.read_text()), css
    found = json.loads((tmp_path / "search/search_index.json").read_text())["docs"]
    for word in ("allreduce", "verdict", "bfloat16"):
        assert sum(word in (entry["title"] + entry["text"]).lower() for entry in found) > 3
