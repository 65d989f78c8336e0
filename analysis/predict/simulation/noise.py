"""Noise: the calibrated share of a processor that each rank gets, window by window; and delays at the end of waits.

Ranks share bursts of noise, which last longer than a window. So the model draws windows for all ranks together, in runs
of consecutive ones (moving-block bootstrap: Künsch 1989). Ranks beyond the calibration's get windows of a calibrated
rank from other draws, and so do not share its bursts.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

WINDOW_S = 0.001  # length of a window in `miniapps.calibrate`
RUN = 200  # consecutive windows per draw
TOGETHER, PARTS = 20, 8  # consecutive delays per draw: TOGETHER, or 1 / PARTS of all if that is more
MOST = 2_000_000  # windows of all ranks and replays; longer replays repeat them
LEAST = 0.01  # share of a processor: with 0, a rank would never finish


class Noise:
    """The processors of `size` ranks in `replays` replays: `after` returns when work is done.

    `shares` (windows, ranks): CPU over wall time. `turns`: a rank's share of a core over that of a rank of the
    calibration (`turns_of`)."""

    def __init__(self, shares: np.ndarray, size: int, replays: int, seconds: float, rng, turns: float = 1.0):
        count = int(np.clip(seconds / WINDOW_S, RUN, max(RUN, MOST // (size * replays))))
        runs = -(-count // RUN)
        windows, ranks = shares.shape
        known = np.arange(size) % ranks
        # Drawn run after run, so that shorter and longer targets have the same windows in the same replay.
        draws = rng.integers(0, max(1, windows - RUN + 1), (runs, replays, -(-size // ranks)))
        places = draws[:, :, np.arange(size) // ranks].transpose(2, 1, 0)[..., None] + np.arange(RUN)
        places = np.minimum(places, windows - 1).reshape(size, replays, -1)
        rate = np.clip(shares[places, known[:, None, None]] * turns, LEAST, 1.0)
        self._windows = rate.shape[2]
        total = np.concatenate([np.zeros((size, replays, 1)), np.cumsum(rate, axis=2) * WINDOW_S], axis=2)
        self._round = total[..., -1]  # CPU seconds until the windows repeat
        # One ascending array of all rows, for one search: each row begins above the end of the previous one. A row has
        # one entry more than windows; the rate of its last entry is never used.
        self._row = np.arange(size * replays).reshape(size, replays)
        self._above = self._row * (self._round.max() + 1.0)
        self._ascending = (total + self._above[..., None]).ravel()
        self._rate = np.concatenate([rate, rate[..., -1:]], axis=2).ravel()

    def after(self, now: np.ndarray, work, ranks=slice(None)) -> np.ndarray:
        """The wall time (ranks, replays) at which each rank has spent `work` more CPU seconds than at `now`."""
        rounds, within = np.divmod(now / WINDOW_S, self._windows)
        k = within.astype(np.int64)
        first = self._row[ranks] * (self._windows + 1)
        rate = self._rate[first + k]
        done = now + work / rate
        # Most work ends in the window in which it begins; a search finds the end of the rest.
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
    """`shares` (windows, ranks) without time slices: if there were more ranks than `cores`, each gets the mean share.
    Spinning ranks share a core in slices; working ranks yield it whenever they wait, so their work ends as if all cores
    were shared evenly."""
    if not cores or shares.shape[1] <= cores:
        return shares
    return np.broadcast_to(shares.mean(axis=1, keepdims=True), shares.shape)


def turns_of(size: int, cores: int | None, calibrated: int, calibrated_cores: int | None) -> float:
    """The share of a core of each of `size` ranks on `cores`, over that of each of the `calibrated` ranks on their
    cores. The ratio leaves out sharing that the calibrated windows already contain; it is above 1 if only the
    calibrated ranks shared cores. If a number of cores is unknown, the share is 1."""
    return even_share(size, cores) / even_share(calibrated, calibrated_cores)


def even_share(ranks: int, cores: int | None) -> float:
    """The share of a core of each of `ranks` ranks on `cores`, at most one core; 1 on an unknown number of cores."""
    return min(1.0, cores / ranks) if cores else 1.0


@dataclass(frozen=True)
class Waiting:
    """Costs of waiting on a machine with other processes. A waiting rank yields its processor repeatedly and gets it
    back after the slices of other processes. Ranks that spin without a pause, as measured for `Noise`, do not show this
    delay.

    `delays` (n,): seconds of waits beyond their time on a quiet machine, in order. `spinning`: CPU time over wall time
    of a waiting rank."""

    delays: np.ndarray = field(default_factory=lambda: np.zeros(1))
    spinning: float = 1.0

    def drawn(self, waits: int, replays: int, rng) -> np.ndarray:
        """(waits, replays) delays of consecutive waits: runs of measured delays, since bursts last longer than one
        wait."""
        together = max(TOGETHER, len(self.delays) // PARTS)
        first = rng.integers(0, len(self.delays), (-(-waits // together) or 1, replays))
        places = first[:, None] + np.arange(together)[None, :, None]
        return self.delays[places.reshape(-1, replays)[:waits] % len(self.delays)]


@dataclass(frozen=True)
class Quiet:
    """Processors without noise, with the interface of `Noise`, for any number of replays. Work takes `slower` times as
    long as on a whole core, (replays,) or one for all."""

    slower: np.ndarray | float = 1.0

    def after(self, now: np.ndarray, work, ranks=slice(None)) -> np.ndarray:
        """The time `now`, plus that of the `work`."""
        return now + self.slower * work
