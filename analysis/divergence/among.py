"""Several runs compared with each other, in as few pairs as it takes."""

from __future__ import annotations

import hashlib
import itertools
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from analysis.divergence.compare import NothingInCommon, compare
from analysis.divergence.points import Comparison
from analysis.divergence.recorded import TELLING, common, recording, row_of
from analysis.load.frames import Frames
from analysis.runs import Id, ids

KINDS = 8  # kinds of recordings up to which every pair of kinds is compared


@dataclass(frozen=True)
class Among:
    """Several runs compared with each other.

    comparisons   of as few pairs as suffice
    compared      the runs that could be compared, directly or through a third run; the others have no record in
                  common with them
    kinds         runs with the same rows, recorded in the same way
    every_pair    whether `comparisons` answer for every pair, and not only for pairs with the first run
    """

    comparisons: tuple[Comparison, ...]
    compared: tuple[Id, ...]
    kinds: tuple[tuple[Id, ...], ...]
    every_pair: bool


def among(frames: Frames, runs: Iterable[Id]) -> Among:
    """Compare `runs` with each other.

    Runs of one kind are compared with the first of them, since equality is transitive there. Every pair of kinds is
    compared, since one kind may lack rows that two others share.
    """
    runs = list(runs)
    rows = {
        run: row
        for run, row in zip(ids(frames.runs), frames.runs[list(TELLING)].to_dict("records"), strict=True)
    }
    kinds: dict[tuple, list[Id]] = {}
    for run in runs:
        kinds.setdefault((recording(rows[run]), _recorded_rows(frames, run)), []).append(run)
    own = list(kinds.values())
    pairs = [(same[0], other) for same in own for other in same[1:]]
    firsts = [same[0] for same in own]
    every = len(firsts) <= KINDS
    pairs += itertools.combinations(firsts, 2) if every else [(firsts[0], other) for other in firsts[1:]]
    comparisons, linked = [], {run: {run} for run in runs}
    for a, b in pairs:
        try:
            comparisons.append(compare(frames, a, b, common(rows[a], rows[b])))
        except NothingInCommon:
            continue
        if linked[a] is not linked[b]:
            linked[a] |= linked[b]
            for run in linked[b]:
                linked[run] = linked[a]
    most = max(linked.values(), key=len, default=set())
    compared = tuple(run for run in runs if run in most) if len(most) > 1 else ()
    return Among(tuple(comparisons), compared, tuple(map(tuple, own)), every)


def _recorded_rows(frames: Frames, run: Id) -> bytes:
    """A hash of the keys of all rows of a run, without their bits."""
    digest = hashlib.blake2b(digest_size=16)
    for table in ("fingerprints", "values"):
        tree = frames.leaves(table, *run)
        order = np.lexsort((tree.leaf, tree.occurrence, tree.name, tree.step))
        for column in (tree.step, tree.name, tree.occurrence, tree.leaf, tree.rows, tree.keys):
            digest.update(column[order].tobytes())
        digest.update(b"|")
    row = row_of(frames, run)
    digest.update(f"{bool(row['state'])} {row['last_step']}".encode())
    return digest.digest()
