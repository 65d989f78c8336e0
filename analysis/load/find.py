"""Finds the run directories that paths and glob patterns name."""

from __future__ import annotations

import glob
import os
from collections import Counter
from collections.abc import Iterable
from pathlib import Path

from miniapps.trace import raw_logs, trace_files
from miniapps.untrusted.result import RESULT
from miniapps.untrusted.text import printable

DEPTH = 4  # levels of directories searched below a given one: runs/campaign/configuration/repeat


class NoRuns(Exception):
    """Nothing to analyse; the message names the path and the files expected there."""


def find_runs(paths: Iterable[str | os.PathLike]) -> list[Path]:
    """The run directories that `paths` name, sorted by place, each once.

    A path is a run (a directory with traces or a result.json), a directory to search for runs down to
    DEPTH levels, or a glob pattern that matches either. Links below a directory are not followed: they may lead
    anywhere, also to itself. Raises NoRuns for a path without runs.
    """
    directories: dict[Path, None] = {}
    for path in paths:
        shown = printable(str(path))
        places = [Path(path)] if os.path.lexists(path) else sorted(map(Path, glob.glob(str(path))))
        if not places:
            raise NoRuns(
                f"{shown}: no such directory, and no match as a pattern; give the directory of a run"
            )
        runs = [run for place in places for run in _below(place, DEPTH)]
        if not runs:
            raise NoRuns(
                f"{shown}: no run here, nor in {DEPTH} levels below, where links are not followed; a run is "
                "a directory with rank-00000.h5, as written by `python -m miniapps.NAME --out DIRECTORY`"
            )
        directories |= dict.fromkeys(runs)
    return list(directories)


def is_run(directory: Path) -> bool:
    """True if a run wrote into `directory`: a trace, the log of one that was killed, or a result.json."""
    return bool(trace_files(directory) or raw_logs(directory)) or (directory / RESULT).is_file()


def labels(runs: list[Path]) -> list[str]:
    """Short unique names of `runs`: their paths below the deepest directory that all share, with `#i` where equal."""
    resolved = [run.resolve() for run in runs]
    if len(resolved) == 1:
        return [printable(resolved[0].name)]
    shared = Path(os.path.commonpath([run.parent for run in resolved]))
    names = [printable(run.relative_to(shared).as_posix()) for run in resolved]
    counts = Counter(names)
    return [name if counts[name] == 1 else f"{name} #{i}" for i, name in enumerate(names)]


def _below(place: Path, depth: int) -> list[Path]:
    if place.is_file() and place in trace_files(place.parent):
        return [place.parent]
    if not place.is_dir():
        return []
    if is_run(place):
        return [place]
    if depth == 0:
        return []
    try:
        with os.scandir(place) as entries:
            names = [
                e.name for e in entries if e.is_dir(follow_symlinks=False) and not e.name.startswith(".")
            ]
    except PermissionError:
        return []
    return [run for name in sorted(names) for run in _below(place / name, depth - 1)]
