"""Rules on the records of runs: injected faults, early ends, clocks, missing times."""

from __future__ import annotations

from collections.abc import Iterator

from analysis.limits import ERROR, NOTE, WARNING, Limit
from analysis.lint.experiment import GROUPS, TIMES, Experiment, listed
from analysis.runs import ids, label


def faults_counted(experiment: Experiment) -> Iterator[Limit]:
    """Runs with an injected fault are counted with the other runs (rule 9)."""
    faulty = experiment.runs[experiment.runs["faulty"]]
    if len(faulty):
        yield Limit(
            ERROR, GROUPS, listed(map(label, ids(faulty))),
            "a fault was injected into these runs, and they are counted",
            "give them apart from the others, unless the fault is the subject",
        )  # fmt: skip


def incomplete_runs(experiment: Experiment) -> Iterator[Limit]:
    """Runs ended early and are left out: if these are the slow ones, the others are a biased sample (rule 2)."""
    runs = experiment.overview.frames.runs
    cut = runs[~runs["complete"]]
    if len(cut):
        yield Limit(
            WARNING, GROUPS, listed(map(label, ids(cut))),
            f"{len(cut)} of {len(runs)} runs ended early and count for nothing",
            "repeat them; say how many were left out, and why",
        )  # fmt: skip


def clock_problems(experiment: Experiment) -> Iterator[Limit]:
    """The clock of a node jumped: events end before they start (rule 10)."""
    excluded = experiment.overview.frames.excluded
    jumped = excluded.loc[excluded["what"] == "clock", "run"].drop_duplicates()
    if len(jumped):
        yield Limit(
            ERROR, TIMES, listed(jumped), "the clock of a node jumped while these ran",
            "use none of their times; the bits are not concerned",
        )  # fmt: skip


def no_times(experiment: Experiment) -> Iterator[Limit]:
    """Some runs recorded no times (`--trace off`), and others did (rule 10)."""
    runs = experiment.runs
    without = runs[runs["wall_s"].isna()]
    if len(without) and len(without) < len(runs):
        yield Limit(
            NOTE, TIMES, listed(map(label, ids(without))),
            "recorded no times, so that medians are over fewer runs than verdicts",
            "count the runs of each number before comparing",
        )  # fmt: skip
