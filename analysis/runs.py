"""How runs are named: by run and repeat."""

from __future__ import annotations

import pandas as pd

Id = tuple[str, int]  # (run, repeat)


def label(run: Id) -> str:
    """`run:repeat`, as the command line takes it."""
    return f"{run[0]}:{run[1]}"


def ids(runs: pd.DataFrame) -> list[Id]:
    """The (run, repeat) of the rows of `runs`."""
    return list(zip(runs["run"], runs["repeat"].tolist(), strict=True))
