"""The current directory is never code: modules there that have the names of ours, of Python's and of packages are not
executed, by any command or by what it starts. A program of the user keeps the directories that Python gives it."""

from __future__ import annotations

import ast
import os
import subprocess
import sys
from pathlib import Path

import pytest

from fpna.commands import names
from tests.analysis.synthetic import write_run

ROOT = Path(__file__).resolve().parents[1]
OURS = ("analysis", "fpna", "jobs", "kernels", "miniapps")
TRAPS = (
    "argparse", "cupy", "h5py", "inspect", "json", "matplotlib", "mpi4py", "msgspec", "numpy", "pandas", "pathlib",
    "pyarrow", "random", "re", "scipy", "sitecustomize", "subprocess", "threadpoolctl", "tomllib", "torch", "typing",
    "usercustomize", "xxhash",
)  # fmt: skip
ALL_HELP = f"""\
import contextlib, io, sys
from fpna.command import main
for name in {names()!r}:
    with contextlib.redirect_stdout(io.StringIO()), contextlib.suppress(SystemExit):
        main([name, "--help"])
print(*sys.path, sep="\\n")
"""


@pytest.fixture
def traps(tmp_path):
    """A directory of such modules; each notes that it was executed."""
    here = tmp_path / "here"
    here.mkdir()
    for name in TRAPS:
        (here / f"{name}.py").write_text(f"open({str(tmp_path / 'executed')!r}, 'a').write({name!r} + ' ')\n")
    return here


def executed(traps):
    """The modules that were executed."""
    noted = traps.parent / "executed"
    return noted.read_text().split() if noted.exists() else []


def run(traps, *command, **environment):
    env = {key: value for key, value in os.environ.items() if key not in ("PYTHONSAFEPATH", "PYTHONPATH")}
    # Its mpicxx is of the same MPI as its mpirun.
    env["PATH"] = f"{Path(sys.executable).parent}:{env['PATH']}"
    return subprocess.run(
        [str(word) for word in command], cwd=traps, env=env | {"PYTHONPATH": str(ROOT)} | environment,
        capture_output=True, text=True, timeout=280,
    )  # fmt: skip


def test_traps_are_executed_where_the_current_directory_is_code(traps):
    run(traps, sys.executable, "-c", "import json, numpy")
    assert "json" in executed(traps)


def test_no_command_looks_into_the_current_directory(traps):
    """As the command `fpna`: all that any command imports before it runs."""
    for name in OURS:
        (traps / f"{name}.py").write_text((traps / "json.py").read_text())
    done = run(traps, sys.executable, "-P", "-c", ALL_HELP)
    assert done.returncode == 0, done.stderr
    assert (
        not executed(traps)
        and str(traps) not in done.stdout.split("\n")
        and "" not in done.stdout.split("\n")[:-1]
    )


@pytest.mark.parametrize(
    "words", [["analysis", "--help"], ["jobs", "--help"], ["kernels", "--version"], ["miniapps", "--version"],
              ["fpna", "--version"], ["miniapps.reductions", "--help"]],
)  # fmt: skip
def test_python_m_drops_the_current_directory_at_once(words, traps):
    done = run(traps, sys.executable, "-m", *words)
    assert done.returncode == 0, done.stderr
    assert not executed(traps)


def test_a_program_of_the_user_keeps_its_directories(tmp_path):
    """Our packages drop nothing that is not of their own `python -m`."""
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "__init__.py").write_text("import kernels, miniapps\n")
    (tmp_path / "mine" / "__main__.py").write_text("import beside\n")
    (tmp_path / "beside.py").write_text("print('beside')\n")
    for name in ("-m mine", "-mmine"):
        done = run(tmp_path, sys.executable, *name.split())
        assert done.stdout == "beside\n", done.stderr


def test_the_guard_of_every_package_is_the_same():
    guards = set()
    for name in OURS:
        text = (ROOT / name / "__init__.py").read_text()
        body = [node for node in ast.parse(text).body[1:] if "__future__" not in ast.unparse(node)]
        assert ast.unparse(body[0]) == "import sys", name
        guards.add(ast.unparse(body[1]))
    (guard,) = guards
    assert "del sys.path[0]" in guard


def test_children_are_started_without_the_current_directory():
    """Each place that starts Python does so by `miniapps.system.python`, or for a program of the user."""
    starts = []
    for path in (p for top in OURS for p in (ROOT / top).rglob("*.py")):
        text = path.read_text()
        if "sys.executable" not in text or path.match("miniapps/system/python.py"):
            continue
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.List | ast.Tuple) and "sys.executable" in map(ast.unparse, node.elts):
                starts.append(f"{path.relative_to(ROOT)}: {ast.unparse(node)}")
    assert not starts


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_what_commands_start_does_not_look_into_the_current_directory(traps):
    """`doctor` and the launchers, the process that reads traces, a campaign, a calibration, an audit, a program that is
    observed, compared and replayed; all by `python -m`, which is the weaker way."""
    write_run(traps / "a", run_id="a")
    write_run(traps / "b", size=2, run_id="b")
    (traps / "c.toml").write_text(CAMPAIGN)
    (traps / "user.py").write_text("from mpi4py import MPI\nMPI.COMM_WORLD.allreduce(1)\n")
    user = traps.parent / "elsewhere"
    user.mkdir()
    (traps / "user.py").rename(user / "user.py")
    mpirun, fpna = Path(sys.executable).parent / "mpirun", [sys.executable, "-m", "fpna"]
    commands = [
        [*fpna, "doctor"],
        [*fpna, "divergence", "a", "b"], [*fpna, "report", "a", "-o", "r.html"], [*fpna, "chain", "a"],
        [*fpna, "export", "perfetto", "a", "-o", "p.json"], [*fpna, "ask", "which runs differ?", "a", "b"],
        [*fpna, "jobs", "local", "c.toml"],
        [mpirun, "-n", "2", *fpna, "calibrate", "--deck", "quick", "--out", "cal"],
        [*fpna, "operations", "--deck", "S", "--set", "audit.operations=take", "--out", "audit"],
        [mpirun, "-n", "2", *fpna, "run", "--out", "o1", "--", sys.executable, user / "user.py"],
        [mpirun, "-n", "2", *fpna, "run", "--out", "o2", "--replay", "o1", "--", sys.executable, user / "user.py"],
        [*fpna, "cause", "o1", "o2", "--launcher", f"{mpirun} -n {{ranks}}", "--", sys.executable, user / "user.py"],
        [mpirun, "-n", "2", *fpna, "coupled", *FLOW, "--out", "flow"],
        [*fpna, "verify", "flow", "--ranks", "2"],
        [*fpna, "partition", "explain", "--help"], [*fpna, "kernels", "allreduce", "list"],
        [*fpna, "kernels", "sums", "tree", "numpy", "-n", "4"],
    ]  # fmt: skip
    done = {}
    for command in commands:
        ended = run(traps, *command)
        done[" ".join(map(str, command[-6:]))] = (ended.returncode, ended.stderr[-300:])
        assert not executed(traps), (command, ended.stderr[-2000:])
    made = ("cal/rank-00000.h5", "audit/certificate.json", "o1/rank-00000.h5", "o2/rank-00000.h5", "flow/result.json",
            "r.html", "p.json")  # fmt: skip
    assert not [name for name in made if not (traps / name).exists()], done  # they did run
    assert list((traps / "out").glob("reductions*/result.json")), done


FLOW = ("--set", "grid.nx=16", "--set", "grid.ny=16", "--set", "grid.bx=8", "--set", "grid.by=8", "--set",
        "time.steps=3", "--guarantee", "layout", "--checkpoint-every", "2")  # fmt: skip
CAMPAIGN = """\
name = "small"
out = "out"

[defaults]
time = "00:02:00"

[[runs]]
app = "reductions"
ranks = [1, 2]
options = { "problem.sizes" = 100, "problem.arrays" = 2, "method.samples" = 2, "method.variants" = "sptr" }
"""


DRAWN = "from analysis.page import svg; print(svg.draw('a', lambda axes: axes.plot([1, 2], [3, 4])))"


def test_no_matplotlibrc_there_has_a_say_in_figures(tmp_path):
    """Not one that changes what it may, one that ends the import of matplotlib, nor one that holds it up."""
    drawn = {}
    for name in ("none", "text", "bytes", "fifo"):
        (tmp_path / name).mkdir()
    (tmp_path / "text" / "matplotlibrc").write_text(
        "lines.linewidth: 9\naxes.facecolor: red\nxtick.major.size: 30\n"
    )
    (tmp_path / "bytes" / "matplotlibrc").write_bytes(b"\xff\xfe\n")
    os.mkfifo(tmp_path / "fifo" / "matplotlibrc")
    for folder in tmp_path.iterdir():
        done = run(folder, sys.executable, "-P", "-c", DRAWN)
        assert done.returncode == 0, done.stderr
        assert not done.stderr
        drawn[folder.name] = done.stdout
    assert drawn["none"].startswith("<svg") and len(set(drawn.values())) == 1
