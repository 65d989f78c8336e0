"""One table of commands, one rule for what is an application."""

import contextlib
from importlib import import_module
from pathlib import Path

import pytest

from analysis import studies
from analysis.commands import COMMANDS as ANALYSIS
from fpna.commands import OTHERS, names, runs, summaries
from miniapps import applications

FRONTS = Path(applications.__file__).parent.glob("*/__init__.py")


def test_no_word_means_two_commands():
    assert len(set(names())) == len(names())
    assert set(names()) == {*applications.names(), *ANALYSIS, *OTHERS}
    assert all(map(runs, names())) and runs("reprot") is None


def test_every_command_of_the_analysis_is_listed():
    folder = Path(import_module("analysis.commands").__file__).parent
    modules = [path.stem for path in folder.glob("*.py") if "\nSUMMARY = " in path.read_text()]
    assert sorted([*modules, *studies.names()]) == sorted(ANALYSIS)


def test_applications_are_the_packages_that_define_app():
    imported = [import_module(f"miniapps.{front.parent.name}") for front in FRONTS]
    defined = [module.APP.name for module in imported if hasattr(module, "APP")]
    assert list(applications.names()) == sorted(defined)
    assert all(applications.app(name).name == name for name in applications.names())


def test_the_help_lists_every_command_once_by_what_it_is_for():
    listed = [(name, summary) for group in summaries().values() for name, summary in group.items()]
    assert sorted(name for name, _ in listed) == sorted(names())
    assert all(0 < len(summary) <= 95 and "\n" not in summary for _, summary in listed)


@pytest.mark.parametrize("name", names())
def test_the_help_of_a_command_begins_with_an_example(name, capsys):
    with contextlib.suppress(SystemExit):
        runs(name)(["--help"])
    lines = capsys.readouterr().out.splitlines()
    place = next(i for i, line in enumerate(lines) if line.startswith("example"))
    assert place < 15 and lines[place + 1].strip()
