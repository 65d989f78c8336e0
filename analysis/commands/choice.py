"""Shared by commands: exit codes, common options, reading of the runs and files that options name, warnings."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Iterable
from pathlib import Path

from analysis.errors import Damaged, Usage
from miniapps.trace.records import ARGUMENTS
from miniapps.untrusted.text import tell

EQUAL, FAILED, BAD_USAGE, DIFFERENT = 0, 1, 2, 3


def add_reference(parser: argparse.ArgumentParser) -> None:
    """Adds the option `--reference`."""
    parser.add_argument(
        "--reference", metavar="RUN[:REPEAT]",
        help="what runs are compared with beside each other (the first of the strongest guarantee)",
    )  # fmt: skip


def add_csv(parser: argparse.ArgumentParser) -> None:
    """Adds the option `--csv`."""
    parser.add_argument(
        "--csv", type=Path, metavar="DIR", help="write the tables there as CSV, in full precision"
    )


def add_reading(parser: argparse.ArgumentParser) -> None:
    """Adds the options for reading traces, which every command has."""
    group = parser.add_argument_group("reading")
    group.add_argument(
        "--no-cache", action="store_true",
        help="neither use nor write RUN/.analysis, where what was read of a run is kept",
    )  # fmt: skip
    group.add_argument(
        "--processes", type=_count, metavar="N", help="that read, from 33 files on (one per core)"
    )


def _count(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is no number of processes; give 1 or more")
    return int(text)


def loaded(options: argparse.Namespace, paths: Iterable[str | os.PathLike], copies: bool = False):
    """Reads the runs that `paths` name into frames, by the options of `add_reading`."""
    from analysis.load.frames import load
    from analysis.load.watch import Watch

    watch = Watch(options.quiet, options.verbose)
    try:
        return load(paths, options.processes, copies, keep=not options.no_cache, watch=watch)
    finally:
        watch.clear()


def frames_of(options: argparse.Namespace):
    """The frames of `options.runs` and the (run, repeat) of `options.reference`, or None."""
    reference = split(options.reference) if options.reference else None
    frames = loaded(options, [*options.runs, *([reference[0]] if reference else [])])
    if frames.runs.empty:
        warn(frames)
        raise none_usable(options)
    if reference is None:
        return frames, None
    selected = select(frames, *reference)
    if not complete(frames, selected[:1]):
        raise Usage(f"--reference {options.reference}: ended early; choose a complete run")
    return frames, selected[0]


def split(run: str) -> tuple[Path, int | None]:
    """Splits DIRECTORY or DIRECTORY:REPEAT into (directory, repeat or None)."""
    directory, colon, repeat = run.rpartition(":")
    if colon and repeat.isdecimal() and not Path(run).exists():
        return Path(directory), int(repeat)
    return Path(run), None


def select(frames, directory: Path, repeat: int | None) -> list[tuple[str, int]]:
    """The (run, repeat) of one directory, of all repeats or the given one. Raises Usage if there is none."""
    from analysis.runs import ids

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


def require_usable(frames) -> None:
    """Raises Usage if a rank is missing or cannot be read: its blocks could not be compared."""
    fatal = ("unreadable", "foreign rank", "contradiction", "missing ranks", "no trace", "empty")
    reasons = frames.excluded[frames.excluded["what"].isin(fatal)]["reason"].tolist()
    if reasons:
        raise Usage(*reasons)


def require_same_problem(frames, chosen: list[tuple[str, int]]) -> None:
    """Raises Usage if the runs are of different applications or problems."""
    from analysis.groups import problem_names
    from analysis.runs import label

    runs = frames.runs.set_index(["run", "repeat"]).loc[chosen].reset_index()
    first = runs.iloc[0]
    for _, other in runs.iterrows():
        if (other["app"], other["problem"]) != (first["app"], first["problem"]):
            names = problem_names(runs)
            named = [
                f"{label((row['run'], row['repeat']))} is {row['app']} {names[row['problem']]}".rstrip()
                for row in (first, other)
            ]
            advice = "compare runs of one problem"
            if first["app"] == other["app"] and ARGUMENTS in first["problem_options"]:
                advice += (
                    "; where the arguments that differ name outputs, record with fpna run --same-but ARG"
                )
            raise Usage(f"different experiments: {', '.join(named)}; {advice}")


def read_ledger(path: str):
    """The ledger of predictions in the file `path`. Raises Usage if it cannot be read, Damaged if it was changed."""
    from miniapps.untrusted import Refused, ledger
    from miniapps.untrusted.text import printable

    try:
        return ledger.read_ledger(path)
    except Refused as error:
        raise Damaged(str(error)) from None
    except OSError as error:
        raise Usage(
            f"{printable(path)}: cannot be read: {error.strerror}; give the ledger of the runs"
        ) from error


def complete(frames, chosen: list[tuple[str, int]]) -> bool:
    return bool(frames.runs.set_index(["run", "repeat"]).loc[chosen]["complete"].all())


def frames_for_csv(options: argparse.Namespace):
    """The frames of `options.runs`, for a command with --csv; prints the faults of runs. Raises Usage."""
    require_directory("--csv", options.csv)
    frames = loaded(options, options.runs)
    warn(frames)
    return frames


def none_usable(options: argparse.Namespace) -> Usage:
    """The error if none of `options.runs` can be used; `warn` has printed the reasons."""
    return Usage(f"no usable run in {', '.join(map(str, options.runs))}; the reasons are above")


def without(frames, what: str) -> Usage:
    """The error if no run of `frames` recorded `what`."""
    apps = ", ".join(sorted(set(frames.runs["app"]))) or "none can be used"
    return Usage(f"no run among these ({apps}) recorded {what}; look at them with `show`, or give others")


def read_machines(paths: list[str]) -> list:
    """The machines that the files of --machine describe; raises Usage."""
    from analysis.predict.costs.machines import read_machine
    from miniapps.untrusted import Refused

    machines = []
    for path in paths:
        try:
            machines.append(read_machine(path))
        except (Refused, OSError, ValueError) as error:
            raise Usage(f"--machine {path}: {error}") from None
    names = [each.name for each in machines]
    if twice := [name for name in names if names.count(name) > 1]:
        raise Usage(f"--machine: two are called {twice[0]}; give one another name (key `name`)")
    return machines


def require_directory(option: str, path: Path | None) -> None:
    """Raises Usage if `path`, the value of `option`, exists and is no directory."""
    if path and path.exists() and not path.is_dir():
        raise Usage(f"{option} {path}: is a file; give a directory")


def tell_problems(problems: Iterable[str]) -> None:
    """Prints `problems`, one line each, to stderr."""
    for problem in problems:
        tell(problem, sys.stderr)


def warn(frames) -> None:
    """Prints to stderr one line per part of the runs that was left out or is doubtful."""
    for _, what, _, reason, kept in frames.excluded.itertuples(index=False):
        tell(f"{what}: {reason} [kept: {kept}]", sys.stderr)
