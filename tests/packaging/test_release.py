"""What a release states of itself: one version, the same dependencies in every recipe, targets that exist."""

import re
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
RECIPE = (ROOT / "jobs/harnesses/conda/recipe.yaml").read_text()
CONDA_NAMES = {"python-xxhash": "xxhash"}


def test_the_version_is_the_same_everywhere():
    version = PROJECT["version"]
    assert re.search(r"^version: (\S+)$", (ROOT / "CITATION.cff").read_text(), re.MULTILINE)[1] == version
    assert re.search(r'version: "(\S+)"', RECIPE)[1] == version
    assert re.search(r"^## (\S+?),", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)[1] == version


def test_the_conda_recipe_asks_for_what_the_project_asks_for():
    given = re.findall(r"^    - ([\w-]+) >=([\d.]+)$", RECIPE, re.MULTILINE)
    assert {f"{CONDA_NAMES.get(name, name)}>={version}" for name, version in given} == {
        *PROJECT["dependencies"],
        f"python{PROJECT['requires-python']}",
    }


def test_the_checklist_is_short_and_names_targets_and_files_that_are_there():
    text = (ROOT / "RELEASING.md").read_text()
    assert len(text.splitlines()) <= 20
    targets = set(re.findall(r"`make ([\w-]+)`", text))
    assert targets and targets <= set(
        re.findall(r"^([\w-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE)
    )
    files = set(re.findall(r"`((?:\.github|jobs|tests)/[\w./-]+|\w+\.(?:toml|cff|md))`", text))
    assert len(files) >= 5 and all((ROOT / file).exists() for file in files)


def test_workflows_call_the_targets_of_the_makefile():
    text = (ROOT / ".github/workflows/ci.yml").read_text()
    called = set(re.findall(r"run: make ([\w-]+)", text))
    assert {"test", "docs"} <= called
    assert called <= set(re.findall(r"^([\w-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    assert "test-all" in (ROOT / ".ci/run").read_text() and ".ci/run" in text
