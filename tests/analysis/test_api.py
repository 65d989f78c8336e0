"""`fpna.load` and its functions: the examples of the documentation run, and agree with the commands."""

import json
import runpy
import subprocess
import sys
from pathlib import Path

import pytest

import fpna
from analysis.__main__ import main
from analysis.errors import Usage
from tests.ranks import on_ranks

EXAMPLES = Path(__file__).resolve().parents[2] / "docs" / "examples" / "analysis"


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """Runs of a few steps on one and two ranks, without and with a guarantee."""
    folder = tmp_path_factory.mktemp("api")
    for ranks in (1, 2):
        for guarantee in ("none", "layout"):
            done = on_ranks(
                ranks, ["-m", "miniapps.coupled", "--closure=physics", "--steps=4", f"--guarantee={guarantee}",
                        f"--out={folder / 'runs' / f'{guarantee}-{ranks}'}"],
            )  # fmt: skip
            assert done.returncode == 0, done.stderr
    return folder


@pytest.fixture(scope="module")
def runs(made):
    found = fpna.load(made / "runs")
    assert found.excluded.empty, found.excluded.to_string()
    return found


def as_json(capsys, *command):
    capsys.readouterr()
    code = main([*map(str, command), "--json", "--quiet"])
    return code, json.loads(capsys.readouterr().out)


def test_the_verdict_is_that_of_the_commands(made, runs, capsys):
    _, document = as_json(capsys, "variability", made / "runs")
    verdict = fpna.verdict(runs)
    assert str(verdict).startswith("DIFFERS") and verdict.text in json.dumps(document, ensure_ascii=False)
    assert sorted(verdict.groups["results"]) == [1, 2]


def test_two_runs_are_compared_as_by_divergence(made, runs, capsys):
    for a, b in (("none-1", "none-2"), ("layout-1", "layout-2")):
        code, document = as_json(capsys, "divergence", made / "runs" / a, made / "runs" / b)
        difference = fpna.compare(runs, a, b)
        assert difference.differs == (code == 3)
        [row] = document["tables"]["comparisons"]
        assert {key: value for key, value in difference.row.items() if value is not None} == {
            key: value for key, value in row.items() if value is not None
        }


def test_a_run_that_is_not_there_is_named_with_those_that_are(runs):
    with pytest.raises(
        KeyError, match="no run 'other'; there are layout-1:0, layout-2:0, none-1:0, none-2:0"
    ):
        fpna.compare(runs, "none-1", "other")


def test_runs_of_two_problems_are_not_compared(made, tmp_path):
    done = on_ranks(1, ["-m", "miniapps.reductions", "--size=100", f"--out={tmp_path / 'sums'}"])
    assert done.returncode == 0, done.stderr
    runs = fpna.load(made / "runs" / "none-1", tmp_path / "sums")
    with pytest.raises(Usage, match="problem"):
        fpna.compare(runs, *(f"{run}:0" for run in runs.runs["run"].unique()))


@pytest.mark.parametrize(
    "words, expected",
    [
        (["which_agree.py", "runs"], "IDENTICAL"),
        (["where_time_goes.py", "runs"], "halo"),
        (["how_it_grows.py", "runs", "none-1", "none-2"], "first at step"),
        (["what_it_costs.py", "runs"], "1.00"),
        (["who_waits.py", "runs/none-2"], "s in collectives"),
        (["campaign.py"], "DIFFERS"),
    ],
)
def test_examples_run(words, expected, made, monkeypatch, capsys):
    monkeypatch.chdir(made)  # relative paths are read after others were, from elsewhere
    monkeypatch.setattr(sys, "argv", words)
    path = EXAMPLES / words[0]
    runpy.run_path(str(path), run_name="__main__")
    printed = capsys.readouterr().out
    assert expected in printed and "Empty DataFrame" not in printed
    assert len(path.read_text().splitlines()) <= 20 or words[0] == "campaign.py"


def test_every_example_is_run():
    marks = test_examples_run.pytestmark[0].args[1]
    assert {words[0] for words, _ in marks} == {path.name for path in EXAMPLES.glob("*.py")}


def test_what_is_missing_is_named_with_how_to_get_it():
    program = (
        "import importlib.util as u, sys; found = u.find_spec\n"
        "u.find_spec = lambda name, *a: None if name == 'pandas' else found(name, *a)\n"
        "import fpna\n"
        "try: fpna.load\n"
        "except ImportError as error: print(error)\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout == "fpna.load needs pandas: pip install 'fpna-miniapps[analysis]'\n"
