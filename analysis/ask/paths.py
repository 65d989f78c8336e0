"""The directories of runs, as arguments of commands."""

from __future__ import annotations

from pathlib import Path

from analysis.ask.probes import Evidence
from analysis.runs import Id, ids

SHOWN = 6  # most runs that a command names; for more it names a directory above them
CHECKPOINTS = "checkpoints"  # the directory of a run that has some


def path_of(known: Evidence, run: str) -> str:
    """The directory of `run`; `./` is put before a leading dash, so that it is not taken for an option."""
    runs = known.frames.runs
    path = str(runs.loc[runs["run"] == run, "path"].iloc[0])
    return f"./{path}" if path.startswith("-") else path


def paths_of(known: Evidence, runs: list[Id]) -> list[str]:
    """The directories of `runs`, each once."""
    return list(dict.fromkeys(path_of(known, run) for run, _ in runs))


def all_paths(known: Evidence) -> list[str]:
    """The directories of all runs."""
    return paths_of(known, ids(known.frames.runs))


def with_repeats(known: Evidence, runs: list[Id]) -> list[str]:
    """`runs` as arguments of `divergence`: with `:REPEAT` if a launch has several repeats."""
    repeats = known.frames.runs["run"].value_counts()
    return [path_of(known, run) + (f":{repeat}" if repeats[run] > 1 else "") for run, repeat in runs]


def with_checkpoints(known: Evidence, *guarantees: str) -> str | None:
    """The first complete run with checkpoints, if given of one of `guarantees`; None if there is none."""
    runs = known.frames.runs
    for run, guarantee, complete in runs[["run", "guarantee", "complete"]].itertuples(index=False):
        path = path_of(known, run)
        if complete and (not guarantees or guarantee in guarantees) and Path(path, CHECKPOINTS).is_dir():
            return path
    return None


def shortened(paths: list[str], known: Evidence) -> list[str]:
    """`paths`; if more than SHOWN are all known runs and share a parent directory, this directory instead."""
    if len(paths) <= SHOWN:
        return paths
    above = {path.rpartition("/")[0] for path in paths}
    return sorted(above) if len(above) == 1 and all(above) and set(paths) == set(all_paths(known)) else paths
