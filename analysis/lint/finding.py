"""One finding of a rule, and what rules look at."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property

import pandas as pd

from analysis.groups import grouped
from analysis.overview import Overview

# How much a finding limits: the numbers are wrong; a claim does not follow from them; worth knowing.
ERROR, WARNING, NOTE = "error", "warning", "note"
SEVERITIES = (ERROR, WARNING, NOTE)

# Sections of the report that findings concern, by their ids.
GROUPS, VARIABILITY, TIMES, COST, SOLVES = "groups", "variability", "times", "costs", "solves-growth"

LISTED = 3  # groups or values named before "and N more"


@dataclass(frozen=True)
class Finding:
    """`fact` says what is so and `remedy` what to do; `where` names the runs, `section` the id of a part of the
    report."""

    severity: str
    section: str
    where: str
    fact: str
    remedy: str


@dataclass(frozen=True)
class Experiment:
    """What rules look at: the Overview of the report, and its runs by what is compared."""

    overview: Overview

    @cached_property
    def runs(self) -> pd.DataFrame:
        """Complete runs, `grouped`."""
        runs = grouped(self.overview.frames.runs)
        return runs[runs["complete"]].reset_index(drop=True)

    @cached_property
    def timed(self) -> pd.DataFrame:
        """Those whose wall time is a measurement: recorded, and without an injected fault."""
        runs = self.runs
        return runs[runs["wall_s"].notna() & (runs["wall_s"] > 0) & ~runs["faulty"]]

    @cached_property
    def launches(self) -> pd.DataFrame:
        """One row per launch with complete runs, with `flat`: its environment by dotted key."""
        launches = self.runs.drop_duplicates("run").reset_index(drop=True)
        return launches.assign(flat=[json.loads(text) for text in launches["environment"]])

    def samples(self) -> Iterable[tuple[str, pd.DataFrame]]:
        """(name, runs) of each group and rank count that was timed: what a median is of."""
        for (group, size), same in self.timed.groupby(["group", "size"], sort=False):
            yield f"{group} on {size} rank{'s' if size != 1 else ''}", same


def listed(items: Iterable[object], most: int = LISTED) -> str:
    """`a; b; c; and 4 more`."""
    texts = list(map(str, items))
    more = [f"and {len(texts) - most} more"] if len(texts) > most else []
    return "; ".join([*texts[:most], *more])
