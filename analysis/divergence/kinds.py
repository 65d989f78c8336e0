"""Compares runs of one kind, which recorded the same rows in the same way.

The hashes of their leaves are compared with those of the first run, all at once; rows are read only at the first
difference."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
import xxhash

from analysis.divergence.recorded import TELLING, recording
from analysis.load.columns import PAYLOAD
from analysis.load.frames import Frames, once
from analysis.load.store import Leaves
from analysis.runs import Id
from miniapps.trace.records import ADDED, SOURCE, TOTAL

TABLES = ("fingerprints", "values")
KEYS = ("step", "name", "occurrence", "leaf", "rows", "keys")
TOGETHER = 2**22  # leaves compared at once: 64 MB of hashes
NEVER = np.iinfo(np.int64).max


@dataclass(frozen=True)
class Ordered:
    """The sorted order of the leaves of one arrangement.

    `order` sorts them by (step, name, occurrence, leaf), `digest` is a hash of their keys in this order."""

    order: np.ndarray
    digest: bytes


@once
def rows(frames: Frames) -> list[dict]:
    """The rows of `Frames.runs`, with the columns that decide which rows a run records."""
    return frames.runs[list(TELLING)].to_dict("records")


@once
def recordings(frames: Frames) -> list[str]:
    """The text `recorded.recording` of each row of `Frames.runs`."""
    known: dict[tuple, str] = {}
    texts = []
    for row in rows(frames):
        key = tuple(row[column] for column in TELLING if column not in ("run", "repeat"))
        if key not in known:
            known[key] = recording(row)
        texts.append(known[key])
    return texts


@once
def arrangement(frames: Frames, table: str, run: Id) -> bytes:
    """A hash of the keys of a run's leaves in stored order: runs with equal hashes have all leaves in equal places."""
    tree = frames.leaves(table, *run)
    digest = xxhash.xxh3_128()
    for key in KEYS:
        digest.update(np.ascontiguousarray(getattr(tree, key)).data)
        digest.update(b"|")
    return digest.digest()


def kinds(frames: Frames, runs: Iterable[Id]) -> list[tuple[Id, ...]]:
    """`runs` grouped by kind; kinds and their runs keep the order of `runs`."""
    found: dict[tuple, list[Id]] = {}
    for run in runs:
        found.setdefault(_kind(frames, run), []).append(run)
    return list(map(tuple, found.values()))


@once
def _kind(frames: Frames, run: Id) -> tuple:
    place = frames.places[run]
    state, last_step = frames.runs["state"].iat[place], frames.runs["last_step"].iat[place]
    return (
        recordings(frames)[place], *(_ordered(frames, table, run).digest for table in TABLES), bool(state),
        int(last_step),
    )  # fmt: skip


def _ordered(frames: Frames, table: str, run: Id) -> Ordered:
    """The Ordered of a run's leaves; runs of one arrangement share it."""
    key = (_ordered, table, arrangement(frames, table, run))
    if key not in frames.memo:
        tree = frames.leaves(table, *run)
        order = np.lexsort((tree.leaf, tree.occurrence, tree.name, tree.step))
        digest = xxhash.xxh3_128()
        for name in KEYS:
            digest.update(getattr(tree, name)[order])
            digest.update(b"|")
        frames.memo[key] = Ordered(order, digest.digest())
    return frames.memo[key]


def telling(frames: Frames, kind: tuple[Id, ...]) -> list[Id]:
    """The runs of a kind that need a comparison with its first run: the one that differs earliest, and one equal run.

    Of several such runs the first is taken; either is left out if there is none."""
    first, others = kind[0], kind[1:]
    fingerprints, values = (_Table(frames, table, first) for table in TABLES)
    messages = values.named((SOURCE,))
    owners, masks = (fingerprints, values, values), (None, messages, ~messages)
    places = [table.first(others, mask) for table, mask in zip(owners, masks, strict=True)]
    steps = np.stack([table.steps(own) for table, own in zip(owners, places, strict=True)])
    step, which = steps.min(axis=0), steps.argmin(axis=0)
    # As in `Comparison.first`, the source of a message precedes contributions and totals.
    passing = fingerprints.named((ADDED, TOTAL))
    for i in np.flatnonzero((which == 0) & (steps[1] == step) & (step != NEVER)).tolist():
        if fingerprints.is_first(others[i], int(places[0][i]), passing):
            which[i] = 1
    ended = (step == NEVER) & _other_states(frames, first, others)
    differs = (step != NEVER) | ended
    equal = [run for run, other in zip(others, differs, strict=True) if not other][:1]
    if not differs.any():
        return equal
    if (step == NEVER).all():
        return [others[int(np.argmax(ended))], *equal]
    place = np.choose(which, places)
    seq = np.choose(which, [table.seqs(own) for table, own in zip(owners, places, strict=True)])
    when = np.stack([step, which == 2, seq])
    earliest = np.lexsort(when[::-1])[0]
    tied = [others[i] for i in np.flatnonzero((when == when[:, [earliest]]).all(axis=0))]
    at = which[earliest]
    return [owners[at].lowest(tied, int(place[earliest]), masks[at]), *equal]


def _other_states(frames: Frames, first: Id, others: tuple[Id, ...]) -> np.ndarray:
    """A mask of the runs of `others` whose final state has another hash than that of `first`."""
    states = frames.runs["state"].to_numpy()
    own = states[[frames.places[run] for run in others]]
    return own != states[frames.places[first]]


class _Table:
    """The leaves of one table of the first run of a kind. A place numbers the distinct (step, seq) from 0, in order."""

    def __init__(self, frames: Frames, table: str, first: Id):
        self.frames, self.table, self.run = frames, table, first
        self.tree: Leaves = frames.leaves(table, *first)
        self.order = _ordered(frames, table, first).order
        step, seq = (column[self.order].astype(np.int64) for column in (self.tree.step, self.tree.seq))
        self.when, self.place = np.unique(np.stack([step, seq]), axis=1, return_inverse=True)
        self.place = self.place.reshape(-1)

    def named(self, prefixes: tuple[str, ...]) -> np.ndarray:
        """A mask of the leaves whose names start with one of `prefixes`."""
        known = np.array([name.startswith(prefixes) for name in self.frames.names], bool)
        return known[self.tree.name[self.order]]

    def first(self, others: tuple[Id, ...], mask: np.ndarray | None = None) -> np.ndarray:
        """The first place, for each of `others`, of a leaf in the `mask` with another hash; NEVER if there is none."""
        place = self.place if mask is None else np.where(mask, self.place, NEVER)
        hashes = self.tree.hi[self.order], self.tree.lo[self.order]
        found = np.full(len(others), NEVER)
        if not len(place):
            return found
        at_once = max(1, TOGETHER // len(place))
        for begin in range(0, len(others), at_once):
            some = others[begin : begin + at_once]
            unequal = np.zeros((len(some), len(place)), bool)
            for k, run in enumerate(some):
                tree, order = (
                    self.frames.leaves(self.table, *run),
                    _ordered(self.frames, self.table, run).order,
                )
                np.not_equal(tree.hi[order], hashes[0], out=unequal[k])
                unequal[k] |= tree.lo[order] != hashes[1]
            found[begin : begin + at_once] = np.where(unequal, place, NEVER).min(axis=1)
        return found

    def steps(self, places: np.ndarray) -> np.ndarray:
        """The step of each of `places`."""
        return self._of(0, places)

    def seqs(self, places: np.ndarray) -> np.ndarray:
        """The seq of each of `places`."""
        return self._of(1, places)

    def _of(self, row: int, places: np.ndarray) -> np.ndarray:
        return np.append(self.when[row], NEVER)[np.minimum(places, self.when.shape[1])]

    def lowest(self, runs: list[Id], place: int, mask: np.ndarray | None) -> Id:
        """The run with the lowest differing block at `place`, and of several the first.

        All `runs` differ from the first run of the kind in a leaf of the `mask` at `place`."""
        if len(runs) == 1:
            return runs[0]
        here = self.place == place if mask is None else (self.place == place) & mask
        block, *bits = self._rows(self.run, here)
        least, found = NEVER, runs[0]
        for run in runs:
            changed = _changed(bits, self._rows(run, here)[1:])
            if (lowest := int(block[changed].min(initial=NEVER))) < least:
                least, found = lowest, run
            if least == block.min():
                break
        return found

    def is_first(self, run: Id, place: int, mask: np.ndarray) -> bool:
        """True if the row at `place` with the lowest differing block of `run` belongs to a leaf in the `mask`.

        Of several such rows the first counts."""
        here = self.place == place
        if len(set(mask[here].tolist())) == 1:
            return bool(mask[here][0])
        block, *bits = self._rows(self.run, here)
        rows = np.flatnonzero(_changed(bits, self._rows(run, here)[1:]))
        of = np.repeat(mask[here], self.tree.rows[self.order[here]])
        return bool(of[rows[np.argmin(block[rows])]])

    def _rows(self, run: Id, here: np.ndarray) -> tuple[np.ndarray, ...]:
        """The blocks and bits of all rows below the leaves in the mask `here`, leaf by leaf in sorted order."""
        tree = self.frames.leaves(self.table, *run)
        chosen = _ordered(self.frames, self.table, run).order[here]
        lying = np.argsort(chosen)
        columns = self.frames.columns(self.table, run[0], tree.places(chosen[lying]))
        begin = np.empty(len(chosen), np.int64)
        begin[lying] = np.cumsum(tree.rows[chosen[lying]]) - tree.rows[chosen[lying]]
        at = np.concatenate([np.arange(i, i + n) for i, n in zip(begin, tree.rows[chosen], strict=True)])
        words = (columns[key].view(np.uint64)[at] for key in PAYLOAD[self.table])
        return (columns["block"].astype(np.int64)[at], *words)


def _changed(bits: list[np.ndarray], others: tuple[np.ndarray, ...]) -> np.ndarray:
    """A mask of the rows that have other bits."""
    return np.any([one != other for one, other in zip(bits, others, strict=True)], axis=0)
