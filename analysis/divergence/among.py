"""Compares several runs with each other, in as few pairs as needed."""

from __future__ import annotations

import itertools
from collections.abc import Iterable
from dataclasses import dataclass

from analysis.divergence.compare import NothingInCommon, compare
from analysis.divergence.kinds import kinds, rows, telling
from analysis.divergence.points import Comparison
from analysis.divergence.recorded import common
from analysis.load.frames import Frames, once
from analysis.runs import Id

KINDS = 8  # kinds of recordings up to which every pair of kinds is compared


@dataclass(frozen=True)
class Among:
    """Several runs compared with each other.

    comparisons   for each kind the earliest difference and one equal pair, then the comparisons of kinds
    compared      the largest set of runs that are compared, directly or through a third run; the others have no
                  record in common with them
    kinds         runs with the same rows, recorded in the same way
    every_pair    True if `comparisons` cover every pair of kinds, not only pairs with the first kind
    """

    comparisons: tuple[Comparison, ...]
    compared: tuple[Id, ...]
    kinds: tuple[tuple[Id, ...], ...]
    every_pair: bool


def among(frames: Frames, runs: Iterable[Id]) -> Among:
    """Compare `runs` with each other.

    Within a kind equality is transitive, so each run is compared with the first one. Between kinds it is not, since one
    kind may lack rows that two others share: every pair is compared, or above KINDS kinds every pair with the first.
    """
    return _among(frames, tuple(runs))


@once
def _among(frames: Frames, runs: tuple[Id, ...]) -> Among:
    own = kinds(frames, runs)
    pairs = [(same[0], other) for same in own if len(same) > 1 for other in telling(frames, same)]
    alike = {same[0]: same for same in own}
    firsts = list(alike)
    every = len(firsts) <= KINDS
    pairs += itertools.combinations(firsts, 2) if every else [(firsts[0], other) for other in firsts[1:]]
    of = rows(frames)
    comparisons, linked = [], {run: {run} for run in runs}
    for a, b in pairs:
        try:
            comparisons.append(compare(frames, a, b, common(of[frames.places[a]], of[frames.places[b]])))
        except NothingInCommon:
            continue
        for run in (b,) if b in alike else alike[a]:
            if linked[a] is not linked[run]:
                linked[a] |= linked[run]
                for other in linked[run]:
                    linked[other] = linked[a]
    most = max(linked.values(), key=len, default=set())
    compared = tuple(run for run in runs if run in most) if len(most) > 1 else ()
    return Among(tuple(comparisons), compared, tuple(own), every)
