"""One table of commands, one rule for what is an application."""

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


@pytest.mark.parametrize("heading", summaries())
def test_all_are_told_what_they_are_for(heading):
    assert all(summary and "\n" not in summary for summary in summaries()[heading].values())
