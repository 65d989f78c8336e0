"""Names of runs: run and repeat."""

from __future__ import annotations

import json

import pandas as pd

from miniapps.trace.layouts import Layout

Id = tuple[str, int]  # (run, repeat)


def label(run: Id) -> str:
    """`run:repeat`, as the command line takes it."""
    return f"{run[0]}:{run[1]}"


def ids(runs: pd.DataFrame) -> list[Id]:
    """The (run, repeat) of the rows of `runs`."""
    return list(zip(runs["run"], runs["repeat"].tolist(), strict=True))


def apart(reductions: str, size: int) -> bool:
    """True if ranks of a run added up arrays of their own: its `reductions` (JSON) were over fewer than `size`."""
    return Layout(size, {}, json.loads(reductions)).own_arrays


def samples(runs: pd.DataFrame) -> pd.Series:
    """The mask of `runs` that compare variants: their steps are samples and do not follow from each other."""
    return runs["promises"] != "{}"
