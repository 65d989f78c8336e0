"""`python -m analysis`: the command line. Each command loads traces, calls functions of frames and prints."""

from __future__ import annotations

import argparse
import platform
import sys
import time
from collections.abc import Callable
from concurrent.futures import BrokenExecutor
from importlib.util import find_spec

from analysis.commands import COMMANDS, command
from analysis.commands.answer import give
from analysis.commands.choice import BAD_USAGE, FAILED, add_reading
from analysis.errors import Usage
from kernels import VERSION
from kernels.commands.entry import command_line
from kernels.commands.options import add_json, add_loudness, add_version
from miniapps.untrusted.arguments import Parser
from miniapps.untrusted.text import tell

PACKAGES = ("pandas", "pyarrow", "h5py", "jinja2", "matplotlib", "rich")

DESCRIPTION = """\
Reads the traces of runs, never runs an application, and answers: are the bits equal, where do they part and why, how
far do they drift, how sure is that, what does equality cost, and how does it scale.

A RUN is the directory of a run (it holds rank-00000.h5 or node-00000.h5), a directory to search for runs, four
levels deep, or a quoted pattern. What cannot be used is named on standard error, with the remedy; the rest is used.
"""
EXAMPLES = """\
examples:
  python -m analysis report runs/ -o report.html       everything, as one page
  python -m analysis divergence runs/a runs/b          equal, or where and why not
  python -m analysis scaling runs/                     speedup, efficiencies, critical path
  python -m analysis COMMAND --help                    what a command takes, with examples
  mpirun -n 8 python -m mpi4py.futures -m analysis report runs/    8 ranks read a large campaign
"""
EXIT_CODES = """\
exit codes:
  0  done; for divergence: equal
  1  failure
  2  usage, or traces that cannot be used
  3  divergence: not equal; chain: a head is wrong; score: refused, or not within --within
"""
QUIET = "only verdict, tables and what is wrong: no notes, no progress"
VERBOSE = "also, on standard error, every file that is read with its time, and with which libraries"


def parser(prog: str = "python -m analysis") -> argparse.ArgumentParser:
    """The command line of all commands; `prog` is what the user typed before the command."""
    top = Parser(
        prog=prog, description=DESCRIPTION, epilog=f"{EXAMPLES}\n{EXIT_CODES}",
        formatter_class=_layout,
    )  # fmt: skip
    add_version(top)
    commands = top.add_subparsers(dest="command", required=True, metavar="COMMAND", title="commands")
    for name in COMMANDS:
        of = command(name)
        parser = commands.add_parser(
            name, help=of.SUMMARY,
            description=f"{of.SUMMARY[0].upper()}{of.SUMMARY[1:]}.\n\n{of.DETAIL}".strip(),
            example=of.EXAMPLES.splitlines()[0].strip(),
            epilog=f"examples:\n{of.EXAMPLES}\n\n{EXIT_CODES}", formatter_class=_layout,
        )  # fmt: skip
        of.add_options(parser)
        add_reading(parser)
        group = parser.add_argument_group("output")
        add_json(group)
        add_loudness(group, QUIET, VERBOSE)
        add_version(group)
    return top


def _layout(prog: str) -> argparse.HelpFormatter:
    return argparse.RawDescriptionHelpFormatter(prog, max_help_position=20, width=112)


def _libraries() -> str:
    """The versions of this program, Python and the libraries that read and compute."""
    from importlib.metadata import version

    from h5py.version import hdf5_version

    named = (f"{package} {version(package)}" for package in ("numpy", *PACKAGES))
    return ", ".join([VERSION, f"python {platform.python_version()}", *named, f"HDF5 {hdf5_version}"])


def _copies():
    """The launcher, if it started several processes that would all do the same; else None."""
    from miniapps.system.environment import launched

    launcher = launched()
    return launcher if launcher and launcher.size > 1 and "mpi4py.futures" not in sys.modules else None


def _refused(launcher) -> int:
    if launcher.rank == 0:
        tell(
            f"analysis: started {launcher.size} times by {launcher.name}; start it once, or let the ranks read "
            f"together: mpirun -n {launcher.size} python -m mpi4py.futures -m analysis ...",
            sys.stderr,
        )
    return BAD_USAGE


@command_line
def main(argv: list[str] | None = None, prog: str = "python -m analysis") -> int:
    """Runs one command; returns the exit code."""
    options = parser(prog).parse_args(argv)
    if missing := [package for package in PACKAGES if find_spec(package) is None]:
        tell(f"analysis: not installed: {', '.join(missing)}; pip install {' '.join(missing)}", sys.stderr)
        return BAD_USAGE
    if copies := _copies():
        return _refused(copies)
    from analysis.load.watch import at_work

    with at_work(options.command, options.quiet) as answered:
        return _answered(options, answered)


def _answered(options: argparse.Namespace, answered: Callable[[], None]) -> int:
    """Runs the command that `options` name, calls `answered`, and prints; returns the exit code."""
    from analysis.divergence.compare import NothingInCommon
    from analysis.load.find import NoRuns
    from analysis.load.guard import NotStarted
    from miniapps.trace import TraceError

    begin = time.perf_counter()
    try:
        answer = command(options.command).run(options)
        answered()
        code = give(answer, options)
        if options.verbose:
            tell(f"{options.command}: {time.perf_counter() - begin:.3f} s; {_libraries()}", sys.stderr)
        return code
    except (Usage, NoRuns, NothingInCommon, TraceError) as error:
        for line in error.args:
            tell(f"analysis: {line}", sys.stderr)
        return BAD_USAGE
    except NotStarted as error:
        tell(f"analysis: {error}; see what the machine allows this user: ulimit -a", sys.stderr)
        return FAILED
    except BrokenExecutor as error:
        tell(f"analysis: a process that read traces ended ({error}); use fewer: --processes 1", sys.stderr)
        return FAILED


if __name__ == "__main__":
    sys.exit(main())
