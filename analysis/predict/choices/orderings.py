"""The reductions that a calibration has prices for: their guarantees, and the rank counts of their schedules."""

from __future__ import annotations

from analysis.predict.costs.collectives import LIBRARY, measured
from analysis.predict.reading.calibration import Calibration
from kernels.guarantees import meets
from miniapps.trace.head import promised

HERE = "messages"  # column with the messages of a schedule on the calibration's own ranks; `messages:8` on 8 ranks


def offered(calibration: Calibration) -> dict[str, str]:
    """{label: the level that all its all-reduces over the calibration's ranks guarantee}, sorted by label."""
    return promised(calibration.reductions.values(), calibration.size)


def unpriced(calibration: Calibration, label: str, size: int) -> str:
    """Why the reduction `label` has no price on `size` ranks; empty if it has one."""
    table = measured(calibration)
    own = table[table["label"] == label]
    if own.empty:
        return f"{label} was not calibrated"
    if size in (1, calibration.size) or own["ordering"].iloc[0] == LIBRARY:
        return ""
    column = f"{HERE}:{size}"
    # If the calibration counts no ordering on `size` ranks, the model uses counts on other ranks, and marks them.
    if column in table and table[column].notna().any() and own[column].isna().all():
        return f"{label} has no schedule on {size} ranks"
    return ""


def promising(calibration: Calibration, level: str, size: int) -> list[str]:
    """The labels that guarantee at least `level` and have a price on `size` ranks."""
    return [
        label
        for label, held in offered(calibration).items()
        if meets(held, level) and not unpriced(calibration, label, size)
    ]
