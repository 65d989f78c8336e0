"""`python -m miniapps.demo` runs one program several times, first without and then with a guarantee.

It only runs other commands: it shows each one first, and compares the fingerprints that they print.
Exit codes: 0 all runs under the guarantee had the same bits; 1 a command failed; 2 usage, or a missing package; 3 the
guarantee was broken.
"""

from __future__ import annotations

import argparse
import shlex
import shutil
import subprocess
import sys
import time
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

from kernels.commands.entry import command_line
from kernels.commands.options import add_loudness, add_version
from miniapps.system.python import module
from miniapps.untrusted.arguments import Parser

FREE = ("--guarantee", "none", "--allreduce", "arrival")
FREE_RANKS = 4
PROMISED = ("--guarantee", "layout")
PROMISED_RANKS = (1, 2, 3, 4)
EXTRAS = {"torch": "torch", "pandas": "analysis", "jinja2": "analysis", "matplotlib": "analysis"}
LAST_LINES = 25
MOST_LAUNCHES = 1000


class DemoError(Exception):
    """An error that ends the demonstration; `code`: the exit code."""

    def __init__(self, message: str, code: int = 1):
        super().__init__(message)
        self.code = code


def parser(prog: str = "python -m miniapps.demo") -> argparse.ArgumentParser:
    """The command line; `prog` is what the user typed before the options."""
    top = Parser(
        prog=prog,
        example=prog,
        description="Starts runs that may differ and runs that must agree, and writes the report on both.",
    )
    top.add_argument(
        "--launches", type=int, default=3, help=f"runs without a guarantee, 2 to {MOST_LAUNCHES} (3)"
    )
    top.add_argument(
        "--out", type=Path, help="directory for the runs and the report, new or empty (runs/demo-TIME)"
    )
    top.add_argument("--mpirun", help="launcher (the mpirun beside this python, else the one on PATH)")
    top.add_argument(
        "arguments", nargs="*", metavar="-- OPTION", help="more options for every run, such as --steps 10"
    )
    add_loudness(top, "only the two verdicts", "also the output of every command")
    add_version(top)
    return top


@command_line
def main(argv: list[str] | None = None, prog: str = "python -m miniapps.demo") -> int:
    """Run the demonstration; returns the exit code."""
    top = parser(prog)
    options = top.parse_args(argv)
    if not 2 <= options.launches <= MOST_LAUNCHES:
        top.error(
            f"--launches {options.launches}: choose 2 to {MOST_LAUNCHES}; one has nothing to compare with"
        )
    stage = Stage(options.quiet, options.verbose)
    try:
        return demonstrate(
            launcher(options.mpirun),
            out_directory(options.out),
            options.launches,
            tuple(options.arguments),
            stage,
        )
    except DemoError as error:
        print(f"\ndemo: {error}", file=sys.stderr)
        return error.code
    except KeyboardInterrupt:
        print("\ndemo: interrupted", file=sys.stderr)
        return 130


@dataclass(frozen=True)
class Stage:
    """The amount of output: `quiet` shows only the verdicts, `verbose` also all output of the commands."""

    quiet: bool = False
    verbose: bool = False

    def say(self, text: str) -> None:
        """Print `text` unless quiet."""
        if not self.quiet:
            say(text)


def demonstrate(
    mpirun: list[str], out: Path, launches: int, arguments: tuple[str, ...], stage: Stage = Stage()
) -> int:
    """Runs both groups, compares them and writes the report; returns 0, or 3 for a broken guarantee."""
    begin = time.monotonic()
    total = launches + len(PROMISED_RANKS)
    stage.say(f"{total} runs of one program; everything goes to {out}/")

    stage.say(
        f"\nWithout a guarantee: one command, {launches} times. It adds partial sums in the order of arrival,"
    )
    stage.say("which may change from run to run.")
    free: dict[Path, str] = {}
    for launch in range(1, launches + 1):
        path = out / f"none-{launch}"
        count = f"{len(free) + 1}/{total}"
        free[path] = coupled(mpirun, FREE_RANKS, (*FREE, *arguments), path, count, stage)

    stage.say(
        f"\nWith --guarantee layout: the same bits on any number of ranks, here {listing(PROMISED_RANKS)}."
    )
    promised: dict[Path, str] = {}
    for ranks in PROMISED_RANKS:
        path = out / f"layout-{ranks}-ranks"
        count = f"{launches + len(promised) + 1}/{total}"
        promised[path] = coupled(mpirun, ranks, (*PROMISED, *arguments), path, count, stage)

    if pair := first_difference(free) or first_difference(promised):
        stage.say("\nThe first difference between two of these runs:")
        analysis(stage, "divergence", *map(str, pair))
    report = out / "report.html"
    stage.say("\nThe report on all runs:")
    analysis(stage, "report", str(out), "-o", str(report))

    kept = first_difference(promised) is None
    say(f"{'' if stage.quiet else chr(10)}without guarantee   {same_or_not(free)}")
    if first_difference(free) is None:
        stage.say("                    They agree this time by chance; try --launches 10.")
    say(f"--guarantee layout  {same_or_not(promised)}" + ("" if kept else "   THE PROMISE IS BROKEN"))
    stage.say(f"\n{time.monotonic() - begin:.0f} s in all. Open {report} in a browser.")
    return 0 if kept else 3


def coupled(
    mpirun: list[str], ranks: int, arguments: tuple[str, ...], path: Path, count: str, stage: Stage
) -> str:
    """Runs `coupled` on `ranks` ranks; returns the fingerprint of its final state."""
    words = ["miniapps.coupled", *arguments, "--out", str(path)]
    command = [*mpirun, "-n", str(ranks), *module(*words)]
    begin = time.monotonic()
    shown = ["mpirun", "-n", str(ranks), "python", "-m", *words]
    output = run(command, shown, stage, before=f"[{count}] ")
    states = [line.partition("state=")[2] for line in output.splitlines() if line.startswith("FINGERPRINT ")]
    if not (states and states[-1]):
        raise DemoError(
            f"no line 'FINGERPRINT state=...' in the output of {shlex.join(command)}:\n{tail(output)}"
        )
    if stage.verbose:
        say(indented(output))
    stage.say(f"      state {states[-1]}   {time.monotonic() - begin:.0f} s")
    return states[-1]


def analysis(stage: Stage, *arguments: str) -> None:
    """Runs `python -m analysis` and shows its output indented; exit code 3 means that runs differ."""
    loud = ("--verbose",) if stage.verbose else ()
    shown = ["python", "-m", "analysis", *arguments]
    stage.say(indented(run(module("analysis", *arguments, *loud), shown, stage, fine=(0, 3))))


def run(
    command: list[str], shown: list[str], stage: Stage, before: str = "", fine: tuple[int, ...] = (0,)
) -> str:
    """Shows and runs a command; returns its output. Raises DemoError on an exit code not in `fine`."""
    stage.say(f"{before}$ {shlex.join(shown)}")
    try:
        done = subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            encoding="utf-8",
            errors="replace",
        )
    except OSError as error:
        raise DemoError(
            f"{command[0]} cannot be run: {error.strerror}; choose another with --mpirun", 2
        ) from error
    if done.returncode not in fine:
        raise DemoError(
            f"exit code {done.returncode} from {shlex.join(command)}; its last lines:\n{tail(done.stdout)}"
        )
    return done.stdout


def launcher(asked: str | None) -> list[str]:
    """The command of the launcher, as words. Raises DemoError without a launcher or with a missing package."""
    missing = [package for package in EXTRAS if find_spec(package) is None]
    if missing:
        extras = ", ".join(sorted({EXTRAS[package] for package in missing}))
        raise DemoError(
            f"not installed: {', '.join(missing)}; install this package with its extras {extras}", 2
        )
    if asked:
        return shlex.split(asked)
    beside = Path(sys.executable).parent / "mpirun"
    command = str(beside) if beside.exists() else shutil.which("mpirun")
    if command is None:
        raise DemoError(
            "no mpirun beside this python or on PATH: install the extra mpi, or name one with --mpirun",
            2,
        )
    return [command]


def out_directory(asked: Path | None) -> Path:
    """Creates the directory of this demonstration. Raises DemoError if it is not empty or cannot be created."""
    out = asked or Path("runs") / time.strftime("demo-%Y%m%d-%H%M%S")
    try:
        out.mkdir(parents=True, exist_ok=True)
        used = any(out.iterdir())
    except OSError as error:
        raise DemoError(f"--out {out}: {error.strerror}; name a writable directory", 2) from error
    if used:
        raise DemoError(f"--out {out} is not empty; name a new directory, so that nothing is overwritten", 2)
    return out


def first_difference(states: dict[Path, str]) -> tuple[Path, Path] | None:
    """The first run and the first run that differs from it; None if all agree."""
    first = next(iter(states))
    return next(((first, path) for path, state in states.items() if state != states[first]), None)


def same_or_not(states: dict[Path, str]) -> str:
    """One line with the number of runs, their number of final states, and the verdict."""
    distinct = len(set(states.values()))
    verdict = "the same bits" if distinct == 1 else "NOT the same bits"
    return f"{len(states)} runs, {distinct} final state{'s' if distinct > 1 else ''}: {verdict}"


def listing(numbers: tuple[int, ...]) -> str:
    """`1, 2 and 3`."""
    return f"{', '.join(map(str, numbers[:-1]))} and {numbers[-1]}"


def indented(output: str) -> str:
    """An output, two spaces before each line."""
    return "\n".join(f"  {line}".rstrip() for line in output.rstrip().splitlines())


def tail(output: str) -> str:
    """The last lines of an output, indented."""
    return "\n".join(f"  | {line}" for line in output.rstrip().splitlines()[-LAST_LINES:])


def say(text: str) -> None:
    """Print at once, whatever stdout is connected to."""
    print(text, flush=True)


if __name__ == "__main__":
    sys.exit(main())
