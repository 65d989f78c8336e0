"""Finds the largest difference of two runs: rounding may have grown, or a bug may show only later."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pandas as pd

from analysis.divergence.recorded import Common
from analysis.divergence.rounding import UNITS
from analysis.divergence.shared import Shared
from analysis.divergence.sized import BY_RANK, P
from analysis.load.frames import Frames
from analysis.runs import Id
from miniapps.trace.records import ADDED, RECEIVED, SOURCE, TOTAL

KEY = ["step", "name", "occurrence", "block"]


@dataclass(frozen=True)
class Farthest:
    """The record in which two runs differ most.

    `amplification` is the difference in units in the last place of the sum of absolute values: of the numbers of the
    record, or for a total of all contributions. `sample` above 1: of one block of 64 numbers among so many."""

    name: str
    step: int
    amplification: float
    sample: int


def farthest(frames: Frames, a: Id, b: Id, common: Common) -> Farthest | None:
    """The record of floating-point numbers that differs most relative to its size; None if none differs."""
    both = sized_differences(frames, a, b, common)
    if both.empty:
        return None
    most = int(np.argmax(both["units"]))
    if not both["units"].iloc[most]:
        return None
    row = both.iloc[most]
    return Farthest(row["name"], int(row["step"]), float(row["units"]), int(row["sample"]))


def sized_differences(frames: Frames, a: Id, b: Id, common: Common) -> pd.DataFrame:
    """The records of floating-point numbers with sizes in both runs: KEY, `sample`, and `units` as
    `Farthest.amplification`; infinite where a number is not finite in one run alone. Sizes of two samples do not
    compare.

    `common` decides which records are compared. Messages from any source that came from another rank are left out.
    """
    shared, sides = Shared(frames, "fingerprints", a, b, common), []
    for run in (a, b):
        side = frames.of("sizes", *run)
        side = side[side["dtype"].isin(list(UNITS)).to_numpy()]
        names = side["name"].astype(str)
        kept = {name for name in names.unique() if _compared(name, shared)} - by_arrival(frames, a, b)
        side = shared.at_steps_of_a(run, side.assign(name=names, own_step=side["step"]))
        parted = side["name"].isin(shared.moved) & (side["step"] >= shared.parted)
        sides.append(side[(names.isin(kept) & ~parted).to_numpy()])
    both = sides[0].merge(sides[1], on=KEY, suffixes=("", "_b"))
    alike = (both["count"] == both["count_b"]) & (both["sample"] == both["sample_b"])
    both = both[alike & (both["count"] > 0)].reset_index(drop=True)
    if both.empty:
        return both[[*KEY, "sample"]].assign(units=0.0)
    scale = np.maximum(both["l1"].abs().to_numpy(), both["l1_b"].abs().to_numpy())
    scale = np.maximum(scale, _contributed(frames, a, both, both["own_step"]))
    scale = np.maximum(scale, _contributed(frames, b, both, both["own_step_b"]))
    with np.errstate(all="ignore"):
        far = np.max([np.abs((both[p] - both[f"{p}_b"]).to_numpy()) for p in P], axis=0)
        units = far / (scale * both["dtype"].astype(str).map(UNITS).to_numpy())
    units = np.where(np.isfinite(scale) & np.isnan(units), 0.0, np.nan_to_num(units, nan=np.inf))
    return both[[*KEY, "sample"]].assign(units=units)


def _compared(name: str, shared: Shared) -> bool:
    """True if records of this name can be compared between the runs."""
    return not (name in shared.unlike or shared.common.dropped("fingerprints", name))


def by_arrival(frames: Frames, a: Id, b: Id) -> set[str]:
    """Names of receives from any source whose messages came from different ranks in the two runs."""
    if not any(name.startswith(SOURCE) for run in (a, b) for name in frames.recorded("values", *run)):
        return set()
    taken = []
    for run in (a, b):
        values = frames.of("values", *run)
        values = values[values["name"].astype(str).str.startswith(SOURCE).to_numpy()]
        taken.append(
            {name: own["value"].tolist() for name, own in values.groupby(values["name"].astype(str))}
        )
    names = {name for name in taken[0].keys() | taken[1].keys() if taken[0].get(name) != taken[1].get(name)}
    return {f"{RECEIVED}{name.removeprefix(SOURCE)}" for name in names}


def _contributed(frames: Frames, run: Id, both: pd.DataFrame, steps: pd.Series) -> np.ndarray:
    """The sum of absolute values of all contributions to each row of `both`; `steps` are the steps in `run`.

    0 if the row is no total, or if its contributions are unknown."""
    sizes = frames.of("sizes", *run)
    names = [name for name in sizes["name"].unique() if name.startswith(ADDED)]
    if not names:
        return np.zeros(len(both))
    added = sizes[sizes["name"].isin(names).to_numpy()]
    base = added["name"].astype(str).str.removeprefix(ADDED).str.replace(BY_RANK, "", regex=True)
    totals = added["l1"].abs().groupby([added["step"], base, added["occurrence"]]).sum()
    wanted = both["name"].str.removeprefix(TOTAL).str.replace(BY_RANK, "", regex=True)
    wanted = wanted.where(both["name"].str.startswith(TOTAL), "")
    keys = pd.MultiIndex.from_arrays([steps, wanted, both["occurrence"]])
    return totals.reindex(keys).fillna(0.0).to_numpy()
