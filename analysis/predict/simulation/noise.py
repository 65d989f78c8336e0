"""Noise: how much of a processor each rank gets, window by window, as the calibration saw it; how late waits end.

Bursts are shared by ranks and last longer than a window. So windows are drawn for all ranks together, and in runs of
consecutive ones (moving-block bootstrap: Künsch 1989). Ranks beyond those of the calibration get windows of a rank that
it had, from other draws; that they share bursts is then lost.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

WINDOW_S = 0.001  # as `miniapps.calibrate` records them
RUN = 200  # consecutive windows that are drawn together
TOGETHER, PARTS = 20, 8  # consecutive delays that are: so many, or such a part of all
MOST = 2_000_000  # windows of all ranks and replays; time goes round in those that there are
LEAST = 0.01  # of a processor: a rank that got nothing would never end


class Noise:
    """The processors of `size` ranks in `replays` replays: `after` says when work is done.

    `shares` (windows, ranks): CPU over wall time. `turns`: the share of a rank over that of a rank of the calibration,
    of those that take turns on too few cores (`turns_of`)."""

    def __init__(self, shares: np.ndarray, size: int, replays: int, seconds: float, rng, turns: float = 1.0):
        count = int(np.clip(seconds / WINDOW_S, RUN, max(RUN, MOST // (size * replays))))
        runs = -(-count // RUN)
        windows, ranks = shares.shape
        known = np.arange(size) % ranks
        # Run after run, so that shorter and longer targets meet the same windows in the same replay.
        draws = rng.integers(0, max(1, windows - RUN + 1), (runs, replays, -(-size // ranks)))
        places = draws[:, :, np.arange(size) // ranks].transpose(2, 1, 0)[..., None] + np.arange(RUN)
        places = np.minimum(places, windows - 1).reshape(size, replays, -1)
        rate = np.clip(shares[places, known[:, None, None]] * turns, LEAST, 1.0)
        self._windows = rate.shape[2]
        total = np.concatenate([np.zeros((size, replays, 1)), np.cumsum(rate, axis=2) * WINDOW_S], axis=2)
        self._round = total[..., -1]  # CPU seconds until time goes round
        # One ascending array of all, to search in: each row begins above the end of the one before. A row has an entry
        # more than windows; of the last one the rate is never asked for.
        self._row = np.arange(size * replays).reshape(size, replays)
        self._above = self._row * (self._round.max() + 1.0)
        self._ascending = (total + self._above[..., None]).ravel()
        self._rate = np.concatenate([rate, rate[..., -1:]], axis=2).ravel()

    def after(self, now: np.ndarray, work, ranks=slice(None)) -> np.ndarray:
        """The wall time (ranks, replays) at which each has had `work` more CPU seconds than at `now`."""
        rounds, within = np.divmod(now / WINDOW_S, self._windows)
        k = within.astype(np.int64)
        first = self._row[ranks] * (self._windows + 1)
        rate = self._rate[first + k]
        done = now + work / rate
        # Most work ends in the window in which it begins; the rest is searched for.
        late = np.nonzero((within - k) * WINDOW_S + work / rate > WINDOW_S)
        if len(late[0]):
            start, above = self._ascending[(first + k)[late]], self._above[ranks][late]
            spent = start - above + (within - k)[late] * rate[late] * WINDOW_S
            more, left = np.divmod(spent + np.broadcast_to(work, now.shape)[late], self._round[ranks][late])
            low = first[late]
            at = self._ascending.searchsorted(left + above, side="right") - 1
            at = np.clip(at, low, low + self._windows - 1)
            windows = (rounds[late] + more) * self._windows + (at - low)
            done[late] = windows * WINDOW_S + (left - (self._ascending[at] - above)) / self._rate[at]
        return np.maximum(now, done)


def shared_out(shares: np.ndarray, cores: int | None) -> np.ndarray:
    """`shares` (windows, ranks) without the slices of ranks that took turns on too few `cores`: each has an equal part
    of what all had together. Ranks that spin share a core in slices; ranks that work give it away whenever they
    wait, so that work on all cores ends as if it were shared evenly."""
    if not cores or shares.shape[1] <= cores:
        return shares
    return np.broadcast_to(shares.mean(axis=1, keepdims=True), shares.shape)


def turns_of(size: int, cores: int | None, calibrated: int, calibrated_cores: int | None) -> float:
    """The share of a core that each of `size` ranks on `cores` has, over that of each of the `calibrated` ranks on
    theirs. Windows of ranks that took turns have these in them already, so that they are not counted again; above 1
    where ranks of the calibration shared cores, and these do not. Where cores are not known, nobody takes turns."""
    here, there = (min(1.0, c / n) if c else 1.0 for n, c in ((size, cores), (calibrated, calibrated_cores)))
    return here / there


@dataclass(frozen=True)
class Waiting:
    """What waiting costs on a machine that others use, too. A rank that waits gives its processor away again and again,
    and gets it back when the others' slices are over, which ranks that spin without a pause (`Noise`) do not see.

    `delays` (n,): seconds that waits took longer than on a quiet machine, one after the other. `spinning`: CPU time
    over wall time of a rank that waits."""

    delays: np.ndarray = field(default_factory=lambda: np.zeros(1))
    spinning: float = 1.0

    def drawn(self, waits: int, replays: int, rng) -> np.ndarray:
        """(waits, replays) delays of consecutive waits: runs of the measured ones, since bursts last longer than
        one."""
        together = max(TOGETHER, len(self.delays) // PARTS)
        first = rng.integers(0, len(self.delays), (-(-waits // together) or 1, replays))
        places = first[:, None] + np.arange(together)[None, :, None]
        return self.delays[places.reshape(-1, replays)[:waits] % len(self.delays)]


class Quiet:
    """Processors that each rank has for itself: as Noise, for any number of replays."""

    def after(self, now: np.ndarray, work, ranks=slice(None)) -> np.ndarray:
        """As much later as there is work."""
        return now + work
