"""The design of the model: which factors it separates, and in what order they enter.

Factors of the algorithm enter first, since method 3 requires fixed effects before random ones: random factors then
explain only the variance that the algorithm leaves. The combination of several such factors follows, so that their
interaction does not count as chance. Then the random factors enter. Within each kind, factors with fewer levels come
first: a nested factor, as launches inside allocations, has more levels, and an outer factor after it would add nothing.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import combinations

import numpy as np
import pandas as pd

from analysis.studies.components.henderson import ranks
from analysis.studies.components.observations import RANDOM, REPEAT

COMBINATION = "combination"
MOST_TOGETHER = 3  # most factors of a searched combination that is confounded with another factor


@dataclass(frozen=True)
class Design:
    """`factors` in the order in which they enter, with `codes` int (n, factors); `levels` {factor: number of levels} of
    all factors; `alias` {factor: the factors that it is confounded with}; `constant`: factors with one level; `holds`
    {factor or REPEAT: confounded factors whose variance its own includes}."""

    factors: list[str]
    codes: np.ndarray
    levels: dict[str, int]
    alias: dict[str, str]
    constant: list[str]
    holds: dict[str, list[str]] = field(default_factory=dict)


def design(levels: pd.DataFrame, treatments: tuple[str, ...]) -> Design:
    """The design of observations with `levels` (n, factors), a column per factor; `treatments` are the factors of the
    algorithm."""
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
        elif name != COMBINATION:  # a combination that adds no rank has no effect of its own
            among = _confounded(codes, kept, name)
            alias[name] = ", ".join(among)
            for other in among:
                holds.setdefault(other, []).append(name)
    if kept and 1 + raised.sum() >= len(
        levels
    ):  # no degree of freedom is left for repeats: the last factor takes their place
        last = kept.pop()
        alias[last] = REPEAT
        holds.setdefault(REPEAT, []).append(last)
        for other in holds.pop(last, []):
            holds[REPEAT].append(other)
            alias[other] = f"{last}, {REPEAT}"
    stacked = np.stack([codes[name] for name in kept], axis=1) if kept else np.zeros((len(levels), 0), int)
    return Design(kept, stacked, {n: count[n] for n in (*order, *constant)}, alias, constant, holds)


def _confounded(codes: dict[str, np.ndarray], kept: list[str], name: str) -> list[str]:
    """The smallest set of `kept` factors after which `name` adds no rank."""
    for many in range(1, MOST_TOGETHER + 1):
        for some in combinations(kept, many):
            if not ranks(np.stack([codes[key] for key in (*some, name)], axis=1))[-1]:
                return list(some)
    return list(kept)
