"""Exit codes of commands whose reader leaves early, or whose output cannot be written."""

from __future__ import annotations

import ast
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.analysis.synthetic import write_run

ROOT = Path(__file__).resolve().parents[1]
# It prints more than a pipe holds.
COMMAND = f"""\
import os, sys
sys.path.insert(0, {str(ROOT)!r})
from kernels.commands.entry import command_line
@command_line
def inner(code):
    for number in range(20_000):
        print(number)
    print("an error", file=sys.stderr, flush=True)
    return code
@command_line
def main(code):
    code = inner(code)
    open("done", "w").close()
    return code
sys.exit(main(int(sys.argv[1])))
"""
LEAVES = (
    "| head -1",
    "| true",
    "| head -c 1",
    "2>&1 | head -1",
    ">&-",
    "2>&-",
    "<&- >&- 2>&-",
    "2> /dev/full",
    "| :",
)
REFUSES = ("> /dev/full", "1< /dev/null")


def ended(tmp_path: Path, code: int, redirection: str, *options: str) -> subprocess.CompletedProcess[str]:
    program = tmp_path / "command.py"
    program.write_text(COMMAND)
    line = f"set -o pipefail; {sys.executable} {' '.join(options)} {program} {code} {redirection}"
    return subprocess.run(["bash", "-c", line], capture_output=True, text=True, cwd=tmp_path)


@pytest.mark.parametrize("code", [0, 3])
@pytest.mark.parametrize("redirection", LEAVES)
def test_a_reader_that_leaves_changes_neither_the_code_nor_what_is_done(tmp_path, redirection, code):
    done = ended(tmp_path, code, redirection)
    assert done.returncode == code
    assert "Traceback" not in done.stderr and "Exception" not in done.stderr
    assert (tmp_path / "done").exists()


@pytest.mark.parametrize("code, expected", [(0, 1), (3, 3)])
@pytest.mark.parametrize("redirection", REFUSES)
@pytest.mark.parametrize("options", [(), ("-u",)])
def test_output_that_is_lost_is_no_success(tmp_path, redirection, code, expected, options):
    done = ended(tmp_path, code, redirection, *options)
    assert done.returncode == expected
    assert "standard output cannot be written" in done.stderr
    assert "Traceback" not in done.stderr


def test_all_is_written_to_a_slow_reader_that_does_not_wait(tmp_path):
    (tmp_path / "command.py").write_text(COMMAND)
    line = (
        f"set -o pipefail; {sys.executable} -c 'import os; os.set_blocking(1, False); "
        f'os.execv("{sys.executable}", ["python", "command.py", "0"])\' | (sleep 0.3; tail -1)'
    )
    done = subprocess.run(["bash", "-c", line], capture_output=True, text=True, cwd=tmp_path)
    assert (done.returncode, done.stdout) == (0, "19999\n")


def unignored():
    signal.signal(signal.SIGINT, signal.default_int_handler)


def test_an_interrupt_ends_in_one_line(tmp_path):
    program = tmp_path / "command.py"
    program.write_text(
        COMMAND.replace(
            'print("an error"', 'print("ready", flush=True); __import__("time").sleep(60); print("late"'
        )
    )
    # A shell that started the tests in the background has them ignore interrupts.
    with subprocess.Popen([sys.executable, program, "0"], cwd=tmp_path, stderr=subprocess.PIPE, text=True,
                          stdout=subprocess.PIPE, preexec_fn=unignored) as process:  # fmt: skip
        assert process.stdout is not None
        while process.stdout.readline() != "ready\n":
            pass
        time.sleep(0.1)
        process.send_signal(signal.SIGINT)
        _, errors = process.communicate(timeout=30)
    assert (process.returncode, errors) == (130, "interrupted\n")


@pytest.mark.parametrize(
    ("package", "words"),
    [("torch", ["operations"]), ("torch", ["operations", "--help"]), ("scipy", ["report", "runs"])],
)
def test_a_package_that_is_not_installed_is_named(tmp_path, package, words):
    program = tmp_path / "command.py"
    program.write_text(
        f"import sys; sys.path.insert(0, {str(ROOT)!r}); sys.modules[{package!r}] = None\n"
        "from fpna.command import main\n"
        "sys.exit(main())\n"
    )
    write_run(tmp_path / "runs")
    done = subprocess.run([sys.executable, program, *words], capture_output=True, text=True, cwd=tmp_path)
    assert done.returncode == 2
    assert f"{package} is not installed" in done.stderr and "Traceback" not in done.stderr


def test_every_command_line_is_such_a_command():
    """Each `main` that the command `fpna` or `python -m` reaches."""
    plain = []
    for path in [*ROOT.glob("fpna/*.py"), *(p for top in ("analysis", "jobs", "kernels", "miniapps")
                                            for p in (ROOT / top).rglob("*.py"))]:  # fmt: skip
        text = path.read_text()
        for node in ast.parse(text).body if "\ndef main(" in text else ():
            if not (isinstance(node, ast.FunctionDef) and node.name == "main" and node.args.args):
                continue
            if [ast.unparse(each) for each in node.decorator_list] != ["command_line"]:
                plain.append(str(path.relative_to(ROOT)))
    assert not plain
