"""The input of the rules, and the sections of the report that a rule can name."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property

import pandas as pd

from analysis.groups import grouped
from analysis.overview import Overview

# Ids of the sections of the report that a limit can concern.
GROUPS, VARIABILITY, TIMES, COST = "groups", "variability", "times", "costs"

LISTED = 3  # groups or values named before "and N more"


@dataclass(frozen=True)
class Experiment:
    """The input of the rules: the Overview of the report, its runs and its launches."""

    overview: Overview

    @cached_property
    def runs(self) -> pd.DataFrame:
        """Complete runs, `grouped`."""
        runs = grouped(self.overview.frames.runs)
        return runs[runs["complete"]].reset_index(drop=True)

    @cached_property
    def timed(self) -> pd.DataFrame:
        """The runs whose wall time is a measurement: recorded, and without an injected fault."""
        runs = self.runs
        return runs[runs["wall_s"].notna() & (runs["wall_s"] > 0) & ~runs["faulty"]]

    @cached_property
    def launches(self) -> pd.DataFrame:
        """One row per launch with complete runs, with `flat`: its environment by dotted key."""
        launches = self.runs.drop_duplicates("run").reset_index(drop=True)
        return launches.assign(flat=[json.loads(text) for text in launches["environment"]])

    def samples(self) -> Iterable[tuple[str, pd.DataFrame]]:
        """(name, runs) of each group and rank count with times: the samples of which medians are taken."""
        for (group, size), same in self.timed.groupby(["group", "size"], sort=False):
            yield f"{group} on {size} rank{'s' if size != 1 else ''}", same


def listed(items: Iterable[object], most: int = LISTED) -> str:
    """`a; b; c; and 4 more`."""
    texts = list(map(str, items))
    more = [f"and {len(texts) - most} more"] if len(texts) > most else []
    return "; ".join([*texts[:most], *more])
