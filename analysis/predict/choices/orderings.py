"""Which reductions a calibration has prices for: what they promise, and on how many ranks they have a schedule."""

from __future__ import annotations

from analysis.predict.costs.collectives import LIBRARY, measured
from analysis.predict.reading.calibration import Calibration
from kernels.guarantees import LEVELS, meets
from miniapps.trace.head import label_of

HERE = "messages"  # column that counts a schedule on the calibration's own ranks; `messages:8` on 8


def offered(calibration: Calibration) -> dict[str, str]:
    """{label: the level that all its all-reduces over several ranks promise}, in the order of their labels."""
    levels: dict[str, str] = {}
    for facts in calibration.reductions.values():
        if facts.get("ranks", calibration.size) == calibration.size:
            label, level = label_of(facts), str(facts.get("guarantee", "none"))
            levels[label] = min(levels.get(label, level), level, key=LEVELS.index)
    return dict(sorted(levels.items()))


def unpriced(calibration: Calibration, label: str, size: int) -> str:
    """Why the reduction of that label has no price on `size` ranks; empty where it has one."""
    table = measured(calibration)
    own = table[table["label"] == label]
    if own.empty:
        return f"{label} was not calibrated"
    if size in (1, calibration.size) or own["ordering"].iloc[0] == LIBRARY:
        return ""
    column = f"{HERE}:{size}"
    # Where no ordering is counted on so many ranks, counts on others are taken, and marked.
    if column in table and table[column].notna().any() and own[column].isna().all():
        return f"{label} has no schedule on {size} ranks"
    return ""


def promising(calibration: Calibration, level: str, size: int) -> list[str]:
    """The labels that promise `level` or more and have a price on `size` ranks."""
    return [
        label
        for label, held in offered(calibration).items()
        if meets(held, level) and not unpriced(calibration, label, size)
    ]
