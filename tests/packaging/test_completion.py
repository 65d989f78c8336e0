"""Shell completion of `fpna`, called as bash calls it: by argcomplete's variables."""

import os
import subprocess
import sys

import pytest

from fpna.commands import ANALYSIS, names, parser_of
from tests.launch import run_python

pytest.importorskip("argcomplete")


def offered(line, tmp_path):
    """The words that could follow, after `line` as typed."""
    answer = tmp_path / "answer"
    asked = {
        "_ARGCOMPLETE": "1",
        "_ARGCOMPLETE_IFS": "\n",
        "_ARGCOMPLETE_STDOUT_FILENAME": str(answer),
        "COMP_LINE": line,
        "COMP_POINT": str(len(line)),
        "COMP_TYPE": "9",
    }
    run = run_python(["-m", "fpna"], asked)
    assert (run.returncode, run.stdout, run.stderr) == (0, "", "")
    return [word.strip() for word in answer.read_text().split("\n")]


def test_all_commands_are_offered(tmp_path):
    assert set(names()) <= set(offered("fpna ", tmp_path))


@pytest.mark.parametrize(
    ("line", "among"),
    [
        ("fpna report --", {"--json", "--results", "--reference", "--no-cache"}),
        ("fpna coupled --", {"--guarantee", "--allreduce", "--steps", "--quiet"}),
        ("fpna jobs plan demo.toml --t", {"--tasks"}),
        ("fpna jobs plan demo.toml --c", {"--calibration"}),
        ("fpna price plan.json --c", {"--calibration", "--clock", "--csv"}),
        ("fpna price plan.json --clock ", {"wall", "cpu"}),
        ("fpna kernels allreduce cost --al", {"--alpha"}),
    ],
)
def test_commands_and_options_are_offered(tmp_path, line, among):
    words = set(offered(line, tmp_path))
    assert among <= words
    assert all(word.startswith(line.rpartition(" ")[2]) for word in words)


@pytest.mark.parametrize("name", names())
def test_every_command_has_a_parser_that_a_shell_can_ask(name):
    parser, before = parser_of([name])
    assert before == (name not in ANALYSIS)  # those have one parser, in which the command is a word
    assert "--version" in parser.format_help()


def test_argcomplete_is_imported_only_where_a_shell_asks():
    code = "import sys; from fpna.command import main; main(['--version']); sys.exit('argcomplete' in sys.modules)"
    env = {key: value for key, value in os.environ.items() if key != "_ARGCOMPLETE"}
    done = subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
