"""`python -m analysis`: the command line. Each command loads traces, calls functions of frames and prints."""

from __future__ import annotations

import argparse
import os
import sys
from importlib.util import find_spec
from pathlib import Path

EQUAL, FAILED, BAD_USAGE, DIFFERENT = 0, 1, 2, 3
PACKAGES = ("pandas", "h5py", "jinja2", "matplotlib", "rich")

DESCRIPTION = """\
Reads the traces of runs and says whether their bits are equal, where they part, how far they drift and what
equality costs. A RUN is the directory of a run, a directory to search for runs, or a quoted pattern.
"""
EXIT_CODES = """\
exit codes:
  0  done; for divergence: equal
  1  failure
  2  usage, or traces that cannot be used
  3  divergence only: not equal
"""


class Usage(Exception):
    """The command line asks for what cannot be; the message says why and what can."""


def parser() -> argparse.ArgumentParser:
    """The command line of all commands."""

    def command(name: str, summary: str, detail: str = "") -> argparse.ArgumentParser:
        return commands.add_parser(
            name, help=summary, description=f"{summary[0].upper()}{summary[1:]}.\n\n{detail}".strip(),
            epilog=EXIT_CODES, formatter_class=_layout,
        )  # fmt: skip

    top = argparse.ArgumentParser(
        prog="python -m analysis", description=DESCRIPTION, epilog=EXIT_CODES,
        formatter_class=_layout,
    )  # fmt: skip
    commands = top.add_subparsers(dest="command", required=True, metavar="COMMAND")
    report = command("report", "the verdict on all runs as one HTML file that needs no network")
    report.add_argument("runs", nargs="+", metavar="RUN")
    report.add_argument("-o", "--output", type=Path, default=Path("report.html"), help="(report.html)")
    vary = command("variability", "how many results there are, and how far they lie apart")
    vary.add_argument("runs", nargs="+", metavar="RUN")
    part = command(
        "divergence", "where runs part: the first step, name and block whose bits differ",
        "The first run is compared with every other, by block, so that rank counts may differ. RUN may be\n"
        "DIRECTORY:REPEAT; without REPEAT all repeats of the run take part. Exit code 3 if any bit differs.",
    )  # fmt: skip
    part.add_argument("runs", nargs="+", metavar="RUN")
    for one in (report, vary):
        one.add_argument(
            "--reference", metavar="RUN[:REPEAT]",
            help="what runs are compared with beside each other (the first of the strongest guarantee)",
        )  # fmt: skip
    add = command(
        "sums", "the sums of `reductions`: how far they vary, and what each way of adding up costs",
        "Only runs of `reductions` are used.",
    )  # fmt: skip
    add.add_argument("runs", nargs="+", metavar="RUN")
    add.add_argument(
        "--reference", metavar="VARIANT[@BACKEND]",
        help="what V_s is against: a variant, or truth (sptr, else the variant of the strongest guarantee)",
    )  # fmt: skip
    solve = command(
        "solves", "the solves of `solver`: iterations, accuracy, and how a difference grows with the iteration",
        "Only runs of `solver` are used.",
    )  # fmt: skip
    solve.add_argument("runs", nargs="+", metavar="RUN")
    for one in (add, solve):
        one.add_argument(
            "--csv", type=Path, metavar="DIR", help="write the tables there as CSV, in full precision"
        )
    show = command("show", "what is recorded in runs")
    show.add_argument("runs", nargs="+", metavar="RUN")
    return top


def _layout(prog: str) -> argparse.HelpFormatter:
    return argparse.RawDescriptionHelpFormatter(prog, max_help_position=24, width=100)


def main(argv: list[str] | None = None) -> int:
    """Run one command; returns the exit code."""
    options = parser().parse_args(argv)
    if missing := [package for package in PACKAGES if find_spec(package) is None]:
        print(
            f"analysis: not installed: {', '.join(missing)}; pip install {' '.join(missing)}",
            file=sys.stderr,
        )
        return BAD_USAGE
    from analysis.divergence import NothingInCommon
    from analysis.load.find import NoRuns

    try:
        return COMMANDS[options.command](options)
    except (Usage, NoRuns, NothingInCommon) as error:
        print(f"analysis: {error}", file=sys.stderr)
        return BAD_USAGE
    except BrokenPipeError:  # the reader of the output, such as `head`, has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return EQUAL


def report(options: argparse.Namespace) -> int:
    """Write the HTML file; print the verdict and the groups."""
    from analysis import terminal
    from analysis.report.build import build

    if options.output.is_dir() or not options.output.absolute().parent.is_dir():
        raise Usage(f"-o {options.output}: must be a file in a directory that exists")
    frames, against = _frames(options)
    made = build(frames, against)
    try:
        options.output.write_text(made.html, encoding="utf-8")
    except OSError as error:
        raise Usage(
            f"-o {options.output}: cannot be written: {error.strerror}; choose another file"
        ) from error
    say = terminal.printer()
    say(made.verdict, bold=True)
    say()
    say(terminal.groups_table(made.groups))
    _warn(frames)
    say(f"Report: {options.output} ({len(made.html.encode()) / 1e6:.2f} MB)")
    return EQUAL


def variability(options: argparse.Namespace) -> int:
    """Print the table of variability."""
    from analysis import terminal
    from analysis.variability import variability
    from analysis.verdict import judge, sentence

    frames, against = _frames(options)
    say = terminal.printer()
    say(sentence(judge(frames), frames), bold=True)
    say()
    for renderable in terminal.variability_tables(variability(frames, against)):
        say(renderable)
    _warn(frames)
    return EQUAL


def divergence(options: argparse.Namespace) -> int:
    """Compare the first run with the others; 0 if every bit is equal."""
    from analysis import terminal
    from analysis.divergence import compare, growth
    from analysis.load.frames import load

    places = [_split(run) for run in options.runs]
    frames = load([directory for directory, _ in places], copies=True)
    _usable(frames)
    _warn(frames)
    chosen = [run for directory, repeat in places for run in _select(frames, directory, repeat)]
    reference, *others = dict.fromkeys(chosen)
    if not others:
        lone = f"{options.runs[0]}: one repeat only, nothing to compare with"
        raise Usage(f"{lone}; give a second run, or run with --repeats 2")
    _same_problem(frames, [reference, *others])
    say = terminal.printer()
    found = [compare(frames, reference, other) for other in others]
    for comparison in found:
        head, *rest = terminal.comparison_lines(comparison, frames)
        say(head, bold=True)
        for line in rest:
            say(line)
        if not comparison.equal:
            say()
            say(terminal.growth_table(growth(frames, comparison.a, comparison.b)))
    if not all(comparison.equal for comparison in found) or "ranks disagree" in set(frames.excluded["what"]):
        return DIFFERENT
    if not _complete(frames, [reference, *others]):
        raise Usage(
            "equal as far as recorded, but a run ended early: no verdict. Repeat it, and compare again"
        )
    return EQUAL


def show(options: argparse.Namespace) -> int:
    """Print what is in the runs."""
    from analysis import terminal
    from analysis.load.frames import load

    frames = load(options.runs, copies=True)
    say = terminal.printer()
    for renderable in terminal.show(frames):
        say(renderable)
    _warn(frames)
    return EQUAL if len(frames.runs) else BAD_USAGE


def sums(options: argparse.Namespace) -> int:
    """Print what is known of the sums of `reductions`."""
    from analysis import terminal
    from analysis.sums.frames import APP, NoReference
    from analysis.sums.frames import sums as frames_of
    from analysis.sums.tables import all_tables, exported, study

    found = frames_of(_of_app(options, APP))
    if found.samples.empty:
        raise Usage(f"the runs of {APP} recorded no sums; look at them with `show`, or repeat them")
    try:
        made = study(found, options.reference)
    except NoReference as error:
        raise Usage(str(error)) from error
    say = terminal.printer()
    for title, table in all_tables(made):
        say(terminal.table(title, table.columns, table.rows, table.numbers))
    for note in made.notes:
        say(f"Note: {note}.")
    _export(options, exported(made), say)
    return EQUAL


def solves(options: argparse.Namespace) -> int:
    """Print what is known of the solves of `solver`."""
    from analysis import terminal
    from analysis.solves.frames import APP
    from analysis.solves.frames import solves as frames_of
    from analysis.solves.tables import all_tables, exported, said, study

    found = frames_of(_of_app(options, APP))
    if found.solves.empty:
        raise Usage(f"the runs of {APP} recorded no residual; look at them with `show`, or repeat them")
    made = study(found)
    say = terminal.printer()
    for line in said(made):
        say(line, bold=True)
    for title, table in all_tables(made):
        say(terminal.table(title, table.columns, table.rows, table.numbers))
    for note in made.notes:
        say(f"Note: {note}.")
    _export(options, exported(made), say)
    return EQUAL


COMMANDS = {
    "report": report, "variability": variability, "divergence": divergence, "sums": sums, "solves": solves,
    "show": show,
}  # fmt: skip


def _of_app(options: argparse.Namespace, app: str):
    """The frames of `options.runs`, of which one must be of `app`, for a command with --csv."""
    from analysis.load.frames import load

    if options.csv and options.csv.exists() and not options.csv.is_dir():
        raise Usage(f"--csv {options.csv}: is a file; give a directory")
    frames = load(options.runs)
    _warn(frames)
    apps = sorted(set(frames.runs["app"]))
    if app not in apps:
        raise Usage(f"no run of {app} among these ({', '.join(apps) or 'none can be used'}); give one")
    return frames


def _export(options: argparse.Namespace, frames: dict, say) -> None:
    """Write `frames` as CSV where --csv asks for it."""
    from analysis.export import write_csv

    if not options.csv:
        return
    try:
        written = write_csv(frames, options.csv)
    except OSError as error:
        raise Usage(f"--csv {options.csv}: cannot be written: {error.strerror}; choose another") from error
    say(f"Written to {options.csv}: {', '.join(written)}")


def _frames(options: argparse.Namespace):
    """The frames of `options.runs` and the (run, repeat) of `options.reference`, or None."""
    from analysis.load.frames import load

    reference = _split(options.reference) if options.reference else None
    frames = load([*options.runs, *([reference[0]] if reference else [])])
    if frames.runs.empty:
        _warn(frames)
        raise Usage(f"no usable run in {', '.join(map(str, options.runs))}; the reasons are above")
    if reference is None:
        return frames, None
    found = _select(frames, *reference)
    if not _complete(frames, found[:1]):
        raise Usage(f"--reference {options.reference}: ended early; choose a complete run")
    return frames, found[0]


def _split(run: str) -> tuple[Path, int | None]:
    """DIRECTORY or DIRECTORY:REPEAT."""
    directory, colon, repeat = run.rpartition(":")
    if colon and repeat.isdecimal() and not Path(run).exists():
        return Path(directory), int(repeat)
    return Path(run), None


def _select(frames, directory: Path, repeat: int | None) -> list[tuple[str, int]]:
    """The (run, repeat) of one directory."""
    from analysis.variability import ids

    runs = frames.runs
    here = runs[[Path(path).resolve() == directory.resolve() for path in runs["path"]]]
    if here.empty:
        raise Usage(f"{directory}: not a run itself; give the directory that holds rank-00000.h5")
    if repeat is not None:
        known = ", ".join(map(str, here["repeat"]))
        here = here[here["repeat"] == repeat]
        if here.empty:
            raise Usage(f"{directory}:{repeat}: no such repeat; there are: {known}")
    return ids(here)


def _usable(frames) -> None:
    """Raises Usage where a rank is missing or cannot be read: blocks would be compared with nothing."""
    fatal = ("unreadable", "foreign rank", "missing ranks", "no trace", "empty")
    reasons = frames.excluded[frames.excluded["what"].isin(fatal)]["reason"].tolist()
    if reasons:
        raise Usage("\nanalysis: ".join(reasons))


def _same_problem(frames, chosen: list[tuple[str, int]]) -> None:
    """Raises Usage where the runs are different experiments."""
    from analysis.groups import problem_names
    from analysis.variability import label

    runs = frames.runs.set_index(["run", "repeat"]).loc[chosen].reset_index()
    first = runs.iloc[0]
    for _, other in runs.iterrows():
        if (other["app"], other["problem"]) != (first["app"], first["problem"]):
            names = problem_names(runs)
            told = [
                f"{label((row['run'], row['repeat']))} is {row['app']} {names[row['problem']]}".rstrip()
                for row in (first, other)
            ]
            raise Usage(f"different experiments: {', '.join(told)}; compare runs of one problem")


def _complete(frames, chosen: list[tuple[str, int]]) -> bool:
    return bool(frames.runs.set_index(["run", "repeat"]).loc[chosen]["complete"].all())


def _warn(frames) -> None:
    from analysis.terminal import excluded_lines

    for line in excluded_lines(frames.excluded):
        print(line, file=sys.stderr)


if __name__ == "__main__":
    sys.exit(main())
