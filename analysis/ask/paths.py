"""Directories of runs, as commands take them."""

from __future__ import annotations

from pathlib import Path

from analysis.ask.probes import Evidence
from analysis.runs import Id, ids

SHOWN = 6  # runs named in a command; of more, their directories are
CHECKPOINTS = "checkpoints"  # the directory of a run that has some


def path_of(known: Evidence, run: str) -> str:
    """The directory of `run`, never one that reads as an option."""
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
    """`runs` as `divergence` takes them: with the repeat where a launch has several."""
    repeats = known.frames.runs["run"].value_counts()
    return [path_of(known, run) + (f":{repeat}" if repeats[run] > 1 else "") for run, repeat in runs]


def with_checkpoints(known: Evidence, *guarantees: str) -> str | None:
    """The first complete run with checkpoints, of one of `guarantees` where some are given."""
    runs = known.frames.runs
    for run, guarantee, complete in runs[["run", "guarantee", "complete"]].itertuples(index=False):
        path = path_of(known, run)
        if complete and (not guarantees or guarantee in guarantees) and Path(path, CHECKPOINTS).is_dir():
            return path
    return None


def shortened(paths: list[str], known: Evidence) -> list[str]:
    """`paths`; of many the directory that holds all runs, where it holds no others."""
    if len(paths) <= SHOWN:
        return paths
    above = {path.rpartition("/")[0] for path in paths}
    return sorted(above) if len(above) == 1 and all(above) and set(paths) == set(all_paths(known)) else paths
