"""docs/extending.md, followed: on a copy of the tree, in no other places than it names."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.analysis.synthetic import write_run

ROOT = Path(__file__).resolve().parents[1]
PAGE = (ROOT / "docs" / "extending.md").read_text()


def blocks(heading):
    """The Python of a section of the page."""
    section = re.split(rf"^## {heading}$", PAGE, flags=re.MULTILINE)[1].split("\n## ")[0]
    return re.findall(r"```python\n(.*?)```", section, flags=re.DOTALL)


@pytest.fixture(scope="module")
def tree(tmp_path_factory):
    """A copy of what is installed, and of the page of documents."""
    copy = tmp_path_factory.mktemp("tree")
    for name in ("fpna", "kernels", "miniapps", "analysis", "jobs"):
        shutil.copytree(ROOT / name, copy / name, ignore=shutil.ignore_patterns("__pycache__"))
    (copy / "docs").mkdir()
    shutil.copy(ROOT / "docs" / "json.md", copy / "docs")
    return copy


def python(tree, *words):
    """What a command of the copy printed."""
    done = subprocess.run(
        [sys.executable, "-P", *map(str, words)], cwd=tree, env=os.environ | {"PYTHONPATH": str(tree)},
        capture_output=True, text=True, timeout=250,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_a_study(tree, tmp_path):
    front, study = blocks("A study")
    new = tree / "analysis" / "studies" / "lengths"
    new.mkdir()
    (new / "__init__.py").write_text(front)
    (new / "study.py").write_text(study)
    page = tree / "docs" / "json.md"
    page.write_text(page.read_text() + "\n### lengths\n\n<!-- lengths -->\n<!-- /lengths -->\n")
    python(tree, "-m", "analysis.studies.documentation", page)
    assert "| `wall_s` | number, s | first event to last, longest rank |" in page.read_text()
    run = write_run(tmp_path / "run")
    assert "lengths      how long launches ran" in python(tree, "-m", "fpna", "--help")
    shown = python(tree, "-m", "fpna", "lengths", run, "--csv", tmp_path / "csv")
    assert "The longest of 1 is run, of " in shown
    assert (tmp_path / "csv" / "lengths.csv").read_text().startswith("run,repeat,wall_s\nrun,0,")
    python(tree, "-m", "fpna", "report", run, "-o", tmp_path / "report.html")
    html = (tmp_path / "report.html").read_text()
    assert '<section id="lengths">' in html and "Seconds of each launch" in html
