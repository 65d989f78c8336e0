"""Costs of communication beyond the local work of a rank: all-reduces by their schedules, the library's by three zones.

The suite's reductions follow schedules, so their cost is

    c + alpha messages + beta bytes + gamma additions + alpha' messages + beta' bytes between nodes

on the critical path (`kernels.allreduce.cost`; Hockney's model). Primed terms count the node that sends or receives
most, since its ranks share its link. Relative nonnegative least squares fits the coefficients for each accumulation, to
the calibration's times. If the calibration timed the ordering on the requested rank count, among all its ranks or in
groups of them, the model interpolates these times in the length instead. For another rank count it uses the counts that
the calibration states for that count, and marks the answer as extrapolated.

The schedule of the library's own all-reduce is unknown. Its time has three zones (Lin et al. 2404.12674, section 4.3):
a constant latency; then a sigmoid of the logarithm of the bus bandwidth over that of the bytes; then m(p) bytes over
the bandwidth. m is 2 (p - 1)/p for an all-reduce, and (p - 1)/p for a gather or scatter.
"""

from __future__ import annotations

import contextlib
from dataclasses import dataclass, field

import numpy as np
import pandas as pd
from scipy.optimize import curve_fit, nnls

from analysis.errors import Unreachable
from analysis.predict.reading.calibration import Calibration
from miniapps.trace.head import label_of

COUNTS = ("messages", "bytes", "additions")
CROSSING = ("crossing_messages", "crossing_bytes")  # between nodes; absent in calibrations on one node
LIBRARY = "library"
MOST_EXPONENT = 50.0
EVERY = COUNTS + CROSSING
SAME = 1.1  # times within this factor count as equal
OVER = " over "  # before the wire in a label
BESIDE = "beside "  # regions of messages beside work: "beside messages LABEL", and "work" and "both"


@dataclass(frozen=True)
class Zones:
    """Times of the library's all-reduces: `latency` in seconds up to `short` bytes; up to `long` bytes, log10 of the
    bandwidth rises from `low` to `high` around 2 ** `middle` bytes, with `steepness`; beyond, it is `high`."""

    latency: float
    short: float
    long: float
    low: float
    high: float
    middle: float
    steepness: float

    def seconds(self, nbytes: np.ndarray) -> np.ndarray:
        """Seconds of all-reduces that carry `nbytes` bytes over the bus, m(p) included."""
        n = np.maximum(np.asarray(nbytes, float), 1.0)
        width = _sigmoid(np.log2(n), self.low, self.high, self.middle, self.steepness)
        between = np.maximum(self.latency, n / 10.0 ** np.where(n > self.long, self.high, width))
        return np.where(n <= self.short, self.latency, between)


def _sigmoid(x, low, high, middle, steepness):
    exponent = np.clip(-steepness * (np.asarray(x, float) - middle), -MOST_EXPONENT, MOST_EXPONENT)
    return low + (high - low) / (1.0 + np.exp(exponent))


def zones(nbytes: np.ndarray, seconds: np.ndarray) -> Zones:
    """Fits the three zones to times `seconds` (n,) by ascending `nbytes` (n,) over the bus. The first zone ends with
    the last message that takes no longer than the shortest, within SAME; the third begins at the longest message."""
    nbytes, seconds = np.asarray(nbytes, float), np.maximum(np.asarray(seconds, float), 1e-9)
    latency, width, x = float(seconds[0]), np.log10(nbytes / seconds), np.log2(nbytes)
    first = int(np.flatnonzero(seconds <= SAME * latency)[-1])
    low, high = float(width[first]), float(width[first:].max())
    middle, steepness = float(np.mean(x[[first, -1]])), 1.0
    if len(x) - first >= 3 and high > low:
        bounds = ([x[first] - 5, 0.05], [x[-1] + 5, 10.0])
        with contextlib.suppress(RuntimeError):  # without convergence, keep the starting values
            (middle, steepness), _ = curve_fit(
                lambda at, m, k: _sigmoid(at, low, high, m, k),
                x[first:],
                width[first:],
                (middle, steepness),
                bounds=bounds,
            )
    return Zones(latency, float(nbytes[first]), float(nbytes[-1]), low, high, float(middle), float(steepness))


def bus(collective: str, size: int) -> float:
    """m(p): bytes over the bus per byte of a collective on `size` ranks."""
    return (size - 1) / size * (2.0 if collective.startswith("allreduce") else 1.0)


@dataclass(frozen=True)
class Link:
    """A network that replaces the calibration's: `latency` of a message in s, `bandwidth` of a rank in bytes/s."""

    latency: float
    bandwidth: float

    def seconds(self, messages: float, nbytes: float) -> float:
        """Seconds of these messages, one after the other."""
        return messages * self.latency + nbytes / self.bandwidth


@dataclass
class Collectives:
    """Seconds of collectives and exchanges on a calibration's machine. `extrapolated` collects the requested costs that
    the calibration did not measure. `turns`: a rank's share of a core, over that of a rank of the calibration
    (`simulation.noise.turns_of`). It divides the time that ranks work on messages, not the time of the links."""

    calibration: Calibration
    link: Link | None = None
    turns: float = 1.0
    extrapolated: dict[str, None] = field(default_factory=dict)
    _table: pd.DataFrame = field(init=False)
    _fits: dict[str, np.ndarray] = field(default_factory=dict)

    def __post_init__(self):
        self._table = measured(self.calibration)

    def allreduce(
        self,
        label: str,
        elements: int,
        itemsize: int,
        size: int,
        contributions: int = 1,
        scatters: bool = False,
        near: int | None = None,
    ) -> float:
        """Seconds of an all-reduce, or if it `scatters` of a reduce-scatter, by the reduction `label`
        (`miniapps.trace.head.label_of`) on `size` ranks, at most `near` of them on a node, beyond the local work of
        each rank. `contributions`: the most that a rank has. Raises Unreachable for a lossy wire that was not
        measured."""
        if size == 1:
            return 0.0
        own = self._measured(label, contributions, scatters, size, near)
        if scatters and not own["scatters"].iloc[0]:  # latency of an all-reduce, half of its bytes
            self.extrapolated["reduce-scatters, which were not calibrated"] = None
            whole, latency = (
                self.allreduce(label, count, itemsize, size, contributions, near=near)
                for count in (elements, 1)
            )
            return latency + (whole - latency) / 2
        n = elements * itemsize / 8  # lengths of the calibration are of float64
        if self.link is not None:
            counts = self._counts(own, n, size)
            return self.link.seconds(counts[0] + counts[3], counts[1] + counts[4])
        if own["ranks"].iloc[0] == size:
            x, y = own["length"].to_numpy(float), own["extra"].to_numpy(float)
            if n > x[-1]:  # beyond the longest: in proportion to its bytes
                self.extrapolated[f"{label} of {elements:,} elements"] = None
                return float(y[-1] * n / x[-1]) / self.turns
            # Time is latency plus bytes, so it is linear between lengths.
            return float(np.interp(n, x, y)) / self.turns
        self.extrapolated[f"all-reduces on {size} ranks, measured on {self.calibration.size}"] = None
        if own["ordering"].iloc[0] == LIBRARY:
            return self._library(own, n * 8, size)
        parts = self._fit(own["accumulation"].iloc[0]) * np.append(1.0, self._counts(own, n, size))
        across = parts[-len(CROSSING) :].sum()
        return float((parts.sum() - across) / self.turns + across)

    def local(
        self, label: str, elements: int, itemsize: int, contributions: int = 1, scatters: bool = False
    ) -> float:
        """Seconds of the work for an all-reduce, or a reduce-scatter, that a rank does alone."""
        own = self._measured(label, contributions, scatters, self.calibration.size)
        n, x, y = elements * itemsize / 8, own["length"].to_numpy(float), own["alone"].to_numpy(float)
        seconds = float(np.interp(n, x, y))
        # The work grows with the contributions that a rank adds beyond those of the calibration.
        more = max(contributions / own["contributions"].iloc[0], 1.0) * max(n / x[-1], 1.0)
        return seconds * more / self.turns

    def beside(self, label: str, nbytes: float) -> float:
        """The share of the time of a reduction, or of an `exchange`, of `nbytes` bytes that passes while ranks work and
        call its `progress` after each product: as measured, linear in the logarithm of the bytes."""
        table = passing(self.calibration)
        if table.empty:
            self.extrapolated["messages beside work, of which none is priced as hidden: not calibrated"] = (
                None
            )
            return 0.0
        own = table[table["label"] == label]
        if own.empty:
            self.extrapolated[f"{label} beside work, priced as the mean of others"] = None
            own = table.groupby("length", as_index=False)["share"].mean()
        own = own.sort_values("length")
        x, y = np.log(own["length"].to_numpy(float)), own["share"].to_numpy(float)
        return float(np.interp(np.log(max(nbytes / 8, 1.0)), x, y))

    def gather(self, nbytes: float, size: int) -> float:
        """Seconds of a gather, scatter or all-to-all of the library with `nbytes` bytes in total."""
        if size == 1:
            return 0.0
        own = self._measured(LIBRARY, 1, False, size)
        if self.link is not None:
            return self.link.seconds(size - 1, nbytes * bus("gather", size))
        if own["ranks"].iloc[0] != size:
            self.extrapolated[f"gathers on {size} ranks, measured on {self.calibration.size}"] = None
        return self._library(own, nbytes, size, "gather")

    def exchange(self, nbytes: np.ndarray, partners: np.ndarray) -> np.ndarray:
        """Seconds (ranks,) of an exchange in which each rank sends `nbytes` (ranks,) to `partners` (ranks,) ranks."""
        nbytes, partners = np.asarray(nbytes, float), np.asarray(partners, float)
        if self.link is not None:
            return np.where(partners > 0, self.link.latency * partners + nbytes / self.link.bandwidth, 0.0)
        own = self.calibration.of("exchange")
        if own.empty and self._table.empty:
            raise self._without_messages()
        if own.empty:
            self.extrapolated["exchanges, which were not calibrated"] = None
            return np.where(partners > 0, self.allreduce(LIBRARY, 1, 8, self.calibration.size), 0.0)
        own = own.sort_values("bytes")
        x, y = own["bytes"].to_numpy(float), own["seconds"].to_numpy(float)
        times = np.interp(nbytes, x, y)
        beyond = nbytes > x[-1]
        latency = y[0] / max(own["partners"].iloc[0], 1.0)
        more = np.maximum(partners - own["partners"].iloc[0], 0.0) * latency
        return (
            np.where(partners > 0, np.where(beyond, y[-1] * nbytes / x[-1], times) + more, 0.0) / self.turns
        )

    # ---- parts

    def timed(self, size: int) -> bool:
        """Whether all-reduces among `size` ranks were timed."""
        return bool((self._table["ranks"] == size).any())

    def _measured(
        self, label: str, contributions: int, scatters: bool, size: int, near: int | None = None
    ) -> pd.DataFrame:
        """The rows of a reduction, or of the one that stands in for it: among `size` ranks with about as many `near`,
        or else among all; with the least measured number of contributions that is not below `contributions`, since a
        rank may send a single one unchanged, but not several; with those of a reduce-scatter, if there are any."""
        own = self._table[self._table["label"] == label]
        if own.empty:
            own = self._stand_in(label)
        if scatters and own["scatters"].any():
            own = own[own["scatters"]]
        else:
            own = own[~own["scatters"]]
        among = own[own["ranks"] == size]
        own = among if len(among) else own[own["ranks"] == own["ranks"].max()]
        places = own["near"].unique()
        if len(places) > 1:
            wanted = size if near is None else near
            own = own[own["near"] == min(places, key=lambda k: (abs(k - wanted), k))]
        counts = np.sort(own["contributions"].unique())
        nearest = min(int(np.searchsorted(counts, contributions)), len(counts) - 1)
        return own[own["contributions"] == counts[nearest]]

    def _without_messages(self) -> Unreachable:
        return Unreachable(
            f"{self.calibration.path}: has no time of messages; calibrate again without --what, or with --what "
            "collectives, too"
        )

    def _stand_in(self, label: str) -> pd.DataFrame:
        """The measured reductions most similar to `label`, which was not measured."""
        if OVER in label:
            wire = label.partition(OVER)[2]
            raise Unreachable(
                f"{self.calibration.path}: has no time of {label}; calibrate with a plan over this wire: fpna "
                f"calibrate --plan 'MODEL RECIPE SIZE=LOW..HIGH wire={wire}'"
            )
        if self._table.empty:
            raise self._without_messages()
        held = label.partition(" in ")[2] or "working"
        same = self._table[self._table["accumulation"] == held]
        same = same[~same["label"].str.contains(OVER, regex=False)]
        own = same if len(same) else self._table
        own = own[own["label"] == own["label"].iloc[0]]
        self.extrapolated[f"{label}, priced as {own['label'].iloc[0]}"] = None
        return own

    def _counts(self, own: pd.DataFrame, n: float, size: int) -> np.ndarray:
        """(5,) the counts EVERY for `n` elements on `size` ranks: linear between the counted lengths, and beyond."""
        suffix = "" if size == own["ranks"].iloc[0] else f":{size}"
        columns = [f"{name}{suffix}" for name in EVERY]
        if any(column not in own or own[column].isna().all() for column in columns):
            known = sorted(
                {int(c.partition(":")[2]) for c in own if c.startswith("messages:") and own[c].notna().any()}
            )
            if not known:
                raise Unreachable(
                    f"{self.calibration.path}: counts no schedules for {size} ranks; calibrate on {size} ranks"
                )
            near = min(known, key=lambda p: abs(np.log(p / size)))
            self.extrapolated[f"schedules on {size} ranks, counted as on {near}"] = None
            columns = [f"{name}:{near}" for name in EVERY]
        own = own[own[columns].notna().all(axis=1)]
        x, y = own["length"].to_numpy(float), own[columns].to_numpy(float)
        at = np.array([np.interp(n, x, column) for column in y.T])
        if n > x[-1]:
            at[[1, 2, 4]] = y[-1, [1, 2, 4]] * n / x[-1]
        return at

    def _fit(self, accumulation: str) -> np.ndarray:
        """(6,) seconds: a constant, per message, per byte, per addition; per message and per byte between nodes."""
        if accumulation not in self._fits:
            same = self._table[
                (self._table["accumulation"] == accumulation)
                & (self._table["ordering"] != LIBRARY)
                & ~self._table["label"].str.contains(OVER, regex=False)
            ]
            seconds = np.maximum(same["extra"].to_numpy(float), 1e-9)
            design = np.column_stack([np.ones(len(same)), *(same[name].to_numpy(float) for name in EVERY)])
            scale = np.maximum(design.max(axis=0), 1e-30)
            self._fits[accumulation] = nnls(design / scale / seconds[:, None], np.ones(len(same)))[0] / scale
        return self._fits[accumulation]

    def _library(self, own: pd.DataFrame, nbytes: float, size: int, collective: str = "allreduce") -> float:
        here = int(own["ranks"].iloc[0])
        fitted = zones(
            own["length"].to_numpy(float) * 8 * bus("allreduce", here), own["extra"].to_numpy(float)
        )
        grown = np.log2(size) / np.log2(here)  # latency grows as the rounds of a tree
        seconds = max(fitted.latency * grown, fitted.seconds(np.array([nbytes * bus(collective, size)]))[0])
        return float(seconds) / self.turns


def measured(calibration: Calibration) -> pd.DataFrame:
    """The all-reduces of a calibration, a row per ordering, length, number of contributions, and group of ranks:
    `label`, `ordering`, `accumulation`, `length` (elements of float64), `contributions` (of a rank), `scatters` (a
    reduce-scatter), `ranks` of a group, `near` of them on a node, `extra` (seconds beyond the local work of a rank),
    `alone` (seconds of that work), and the counts EVERY, also on other rank counts."""
    cases = calibration.of("allreduce.", "reduce-scatter.")
    stated = {each["region"]: each for each in calibration.reductions.values()}
    rows = []
    for _, row in cases.iterrows():
        facts = stated.get(row["region"])
        if facts is None or not min(2, calibration.size) <= row["ranks"] <= calibration.size:
            continue
        alone = cases[cases["region"] == row["region"].rpartition(":")[0] + ":alone"]
        local = float(alone["seconds"].iloc[0]) if len(alone) and calibration.size > 1 else 0.0
        rows.append(
            dict(row)
            | {
                "label": label_of(facts),
                "ordering": facts["ordering"],
                "accumulation": facts.get("accumulation", "working"),
                "contributions": row.get("contributions", 1.0),
                "near": row.get("near", row["ranks"]),
                "scatters": facts.get("collective", "allreduce") == "reduce-scatter",
                "extra": max(float(row["seconds"]) - local, 1e-9),
                "alone": local,
            }
        )
    columns = [
        "label",
        "ordering",
        "accumulation",
        "length",
        "contributions",
        "scatters",
        "ranks",
        "near",
        "extra",
        "alone",
        *EVERY,
    ]
    table = pd.DataFrame(rows) if rows else pd.DataFrame(columns=columns)
    for name in [c for c in table if c.partition(":")[0] == "messages"]:  # on one node, nothing crosses
        for key in CROSSING:
            if (column := name.replace("messages", key)) not in table:
                table[column] = np.where(table[name].notna(), 0.0, np.nan)
    table["scatters"] = table["scatters"].astype(bool)
    return table.sort_values(
        ["label", "scatters", "contributions", "length"], kind="stable", ignore_index=True
    )


def passing(calibration: Calibration) -> pd.DataFrame:
    """Reductions and exchanges beside products, a row per label and length: `label`, `length` (elements of 8 bytes) and
    `share`: by how much less both together take than one after the other, over the time of the messages."""
    cases = calibration.of(BESIDE)
    if cases.empty:
        return pd.DataFrame({"label": [], "length": [], "share": []})
    named = cases["region"].str.removeprefix(BESIDE).str.partition(" ")
    times = cases.assign(what=named[0], label=named[2]).pivot_table(
        index=["label", "length"], columns="what", values="seconds", aggfunc="median"
    )
    share = (times["messages"] + times["work"] - times["both"]) / times["messages"]
    return share.clip(0.0, 1.0).rename("share").reset_index()
