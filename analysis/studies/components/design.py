"""Which factors can be separated, and in what order they enter the model.

Those of the algorithm first, since method 3 asks for fixed effects before random ones: what chance does is then what
is left after any effect of the algorithm. With several of them their combination follows, so that an effect that
depends on two of them together is not taken for chance either. Then the factors of chance. Within each kind those of
fewer levels come first: a factor inside another, as launches inside allocations, has more levels, and entered the
other way round the outer one would add nothing.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import combinations

import numpy as np
import pandas as pd

from analysis.studies.components.henderson import ranks
from analysis.studies.components.observations import RANDOM, REPEAT

COMBINATION = "combination"
MOST_TOGETHER = 3  # factors that are named as confounded together before it is "those before"


@dataclass(frozen=True)
class Design:
    """`factors` in the order in which they enter, with `codes` int (n, factors); `levels` {factor: how many}, of all
    factors that were looked at; `alias` {factor: what it cannot be told from}; `constant` have one level; `holds`
    {factor, or REPEAT: the factors whose variance is in its own}."""

    factors: list[str]
    codes: np.ndarray
    levels: dict[str, int]
    alias: dict[str, str]
    constant: list[str]
    holds: dict[str, list[str]] = field(default_factory=dict)


def design(levels: pd.DataFrame, treatments: tuple[str, ...]) -> Design:
    """The design of observations with `levels` (n, factors), a column per factor."""
    codes = {name: pd.factorize(levels[name])[0] for name in (*treatments, *RANDOM)}
    several = [name for name in treatments if codes[name].max(initial=0) > 0]
    if len(several) > 1:
        codes[COMBINATION] = levels.groupby(several, sort=False).ngroup().to_numpy()
    count = {name: int(column.max(initial=-1)) + 1 for name, column in codes.items()}
    order = sorted(several, key=count.__getitem__)
    order += [COMBINATION] if COMBINATION in codes else []
    order += sorted((name for name in RANDOM if count[name] > 1), key=count.__getitem__)
    constant = [name for name in (*treatments, *RANDOM) if count[name] < 2]
    raised = ranks(np.stack([codes[name] for name in order], axis=1)) if order else np.zeros(0, int)
    kept: list[str] = []
    alias: dict[str, str] = {}
    holds: dict[str, list[str]] = {}
    for name, rank in zip(order, raised, strict=True):
        if rank:
            kept.append(name)
        elif name != COMBINATION:  # without a rank of its own there is no effect of combinations to look for
            among = _confounded(codes, kept, name)
            alias[name] = ", ".join(among)
            for other in among:
                holds.setdefault(other, []).append(name)
    if kept and 1 + raised.sum() >= len(
        levels
    ):  # nothing is left for repeats: the last factor takes their place
        last = kept.pop()
        alias[last] = REPEAT
        holds.setdefault(REPEAT, []).append(last)
        for other in holds.pop(last, []):
            holds[REPEAT].append(other)
            alias[other] = f"{last}, {REPEAT}"
    stacked = np.stack([codes[name] for name in kept], axis=1) if kept else np.zeros((len(levels), 0), int)
    return Design(kept, stacked, {n: count[n] for n in (*order, *constant)}, alias, constant, holds)


def _confounded(codes: dict[str, np.ndarray], kept: list[str], name: str) -> list[str]:
    """The fewest of `kept` that leave nothing to `name`."""
    for many in range(1, MOST_TOGETHER + 1):
        for some in combinations(kept, many):
            if not ranks(np.stack([codes[key] for key in (*some, name)], axis=1))[-1]:
                return list(some)
    return list(kept)
