"""The analysis for scripts and notebooks: `fpna.load` and functions of the runs that it returns.

    runs = fpna.load("runs/")
    print(fpna.verdict(runs))
    runs.events.groupby("name")["exclusive_ns"].sum()

`fpna divergence` names runs in the same way: "two" is the only or the first repeat, "two:1" the second one.
Frames have the columns of the `--json` documents, or of `Frames`.
"""

from __future__ import annotations

import os
from collections.abc import Collection
from dataclasses import dataclass
from typing import Any

import pandas as pd

from analysis.commands.choice import require_same_problem, require_usable
from analysis.comparison import comparison_row
from analysis.divergence.cause import cause
from analysis.divergence.compare import compare as compared
from analysis.divergence.steps import growth as by_step
from analysis.headline import headline
from analysis.load import frames as loading
from analysis.load.frames import Frames
from analysis.load.timeline import timeline as events_of
from analysis.page.tables import groups_frame
from analysis.runs import Id, label
from analysis.sentences import sentence
from analysis.studies.scaling.known import Known, known_of
from analysis.variability import variability as of_groups
from analysis.verdict import judge


@dataclass(frozen=True)
class Verdict:
    """The verdict over all runs: `badge` (`IDENTICAL`, `DIFFERS (cause)`, ...), the sentence `text`, and `groups`.

    `groups` has a row per group of runs, the worst first."""

    badge: str
    text: str
    groups: pd.DataFrame

    def __str__(self) -> str:
        return f"{self.badge}: {self.text}"


@dataclass(frozen=True)
class Difference:
    """The result of comparing two runs.

    `differs`: True if any bit differs. `text`: a sentence on the first difference, or without any on the data compared.
    `row` has the keys of `comparisons` in the document of `fpna divergence --json`: `step`, `name`, `block`, `cause`,
    `rounding`, `next`, ..."""

    differs: bool
    text: str
    row: dict[str, Any]

    def __str__(self) -> str:
        return self.text


def load(*paths: str | os.PathLike[str], processes: int | None = None, cache: bool = True) -> Frames:
    """The runs below `paths`: directories of runs, directories to search, or patterns.

    Traces that an earlier call read come from RUN/.analysis unless `cache` is false. `processes` processes (one per
    core) read more than 32 files: in a script, call this under `if __name__ == "__main__":`. The frame `excluded` of
    the result lists unusable files. Raises `analysis.load.find.NoRuns` for a path without runs.
    """
    return loading.load(paths, processes, keep=cache)


def verdict(runs: Frames) -> Verdict:
    """The verdict of `fpna report` on `runs`: whether their bits are equal, and as their guarantees promise."""
    groups = judge(runs)
    all_of_them = headline(groups, runs)
    return Verdict(all_of_them.badge, all_of_them.text, groups_frame(groups))


def compare(runs: Frames, a: str, b: str) -> Difference:
    """The first difference of run `b` from run `a`, and its cause.

    Raises KeyError for a run that is not among `runs`, `analysis.errors.Usage` if a rank is missing or the runs solve
    two problems, `analysis.divergence.compare.NothingInCommon` if no step, name and block is in both records."""
    one, other = named(runs, a), named(runs, b)
    require_usable(runs)
    require_same_problem(runs, [one, other])
    both = compared(runs, one, other)
    judged = cause(runs, both)
    return Difference(both.differs, sentence(both), comparison_row(both, judged))


def variability(runs: Frames) -> pd.DataFrame:
    """The number of different results, and the distance between them: a row per group, cell, name and comparison."""
    return of_groups(runs)


def growth(runs: Frames, a: str, b: str) -> pd.DataFrame:
    """The differences of run `b` from run `a`: a row per step and name of a state or result. Raises KeyError."""
    return by_step(runs, named(runs, a), named(runs, b))


def scaling(runs: Frames) -> Known:
    """Times, speedups and efficiencies by number of ranks. `points`, `speedups` and `fits` are frames, `traced` has a
    frame for each kind of waiting, and `notes` lists the limits of these numbers as sentences."""
    return known_of(runs)


def timeline(
    run: str | os.PathLike[str],
    repeat: int | None = None,
    steps: Collection[int] | None = None,
    ranks: Collection[int] | None = None,
) -> pd.DataFrame:
    """Every event of the run in the directory `run`: `rank`, `step`, `name`, `start` and `end` in ns on one clock, ...

    Raises `miniapps.trace.schema.TraceError` if a rank is missing or cannot be read."""
    return events_of(run, repeat, steps, ranks)


def named(runs: Frames, run: str) -> Id:
    """The (run, repeat) of a label. Raises KeyError with the labels of `runs`."""
    known = {label(key): key for key in runs.places}
    for text in (run, f"{run}:0"):
        if text in known:
            return known[text]
    raise KeyError(
        f"no run {run!r}; there are {', '.join(sorted(known)[:10])}" + (", ..." if len(known) > 10 else "")
    )
