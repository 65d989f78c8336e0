"""The price of each guarantee: the time of a step over its time under the weakest guarantee.

Replays of both, with the same random draws of the machine's rate, predict the price; runs of both score it
(`analysis.predict.scoring.price_score`). The local work of ranks depends on the guarantee, so a price needs a run under
the guarantee. Without such a run, the model replaces the reductions of a run under another guarantee by a calibrated
one that promises enough, and marks the prediction. It does so only between guarantees on the same side of `layout`:
from `layout` on, ranks compute block by block; below, they do not.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np
import pandas as pd

from analysis.errors import Unreachable
from analysis.groups import CHOSEN, SPANS_LAYOUTS
from analysis.predict.choices.orderings import offered, promising
from analysis.predict.costs.collectives import Collectives
from analysis.predict.reading.calibration import Calibration
from analysis.predict.reading.skeleton import Skeleton
from analysis.predict.simulation.model import Predicted
from analysis.predict.simulation.target import Target, alike, target
from kernels.guarantees import LEVELS, meets

PRICES = ("ranks", "clock", "guarantee", "weakest", "price", "low", "high", "told", "extrapolated")


def levels(runs: Sequence[Skeleton]) -> list[str]:
    """The guarantees of `runs`, the weakest first. Raises Unreachable if runs of several guarantees differ in other
    options than the guarantee's: their times say nothing about its price."""
    known = sorted({run.attributes.get("guarantee", "none") for run in runs}, key=LEVELS.index)
    if len(known) > 1 and len({alike(run, CHOSEN) for run in runs}) > 1:
        raise Unreachable(
            f"these runs have several guarantees ({', '.join(known)}), and differ in other options, too: give runs of "
            "one problem and method, or choose a guarantee with --guarantee"
        )
    return known


def targeted(
    runs: Sequence[Skeleton],
    size: int,
    settings: Mapping[str, str],
    level: str,
    reduction: str | None,
    calibration: Calibration | None,
) -> Target:
    """The target under the guarantee `level`, from a run under it. Without one, from a run under the nearest guarantee
    with the same local work, and marked. Raises Unreachable as `target` does, and if `reduction` promises less."""
    near = [each for each in levels(runs) if (each in SPANS_LAYOUTS) == (level in SPANS_LAYOUTS)]
    if level in near or not near or level not in LEVELS:
        return target(runs, size, settings, level, reduction)
    known = min(near, key=lambda each: abs(LEVELS.index(each) - LEVELS.index(level)))
    moved = target(runs, size, settings, known, reduction, level)
    remark = (
        f"no run under {level} was given: the prediction assumes the local work of {known}; record a run with "
        f"--guarantee {level}"
    )
    label = reduction
    if size > 1 and calibration is not None:
        if reduction is None:
            label = _quickest(moved, promising(calibration, level, size), calibration)
            if label is None:
                raise Unreachable(
                    f"--guarantee {level}: no run under it was given, and no reduction of the calibration promises it "
                    f"on {size} ranks; record a run with --guarantee {level}"
                )
            remark += f"; {label} replaces reductions that promise less"
        elif (held := offered(calibration).get(reduction)) is not None and not meets(held, level):
            raise Unreachable(
                f"--ordering {reduction}: promises {held}, less than --guarantee {level}; choose another ordering"
            )
    return replace(
        moved,
        reduction=label,
        lifted=level if reduction is None else None,
        extrapolated=(*moved.extrapolated, f"guarantee {level}, without a run under it"),
        remarks=(*moved.remarks, remark),
    )


def _quickest(moved: Target, labels: Sequence[str], calibration: Calibration) -> str | None:
    """The label with which the reductions of a target take the least time."""
    facts = list(moved.program.attributes.get("reductions", {}).values())
    prices = Collectives(calibration)
    seconds = {
        label: sum(
            max(1, each.get("calls", 1))
            * prices.allreduce(label, math.prod(each.get("shape", [])), 8, moved.size)
            for each in facts
        )
        for label in labels
    }
    return min(seconds, key=lambda label: seconds[label], default=None)


def prices(answers: Sequence[Predicted]) -> pd.DataFrame:
    """The price of each guarantee among `answers`, replays from one seed: a row per rank count and guarantee except the
    weakest, columns PRICES. `price` is the ratio of the medians. `low` to `high` is the 80 % interval of the ratios of
    paired replays; `told`: whether it excludes 1."""
    rows = []
    for size in sorted({each.prediction.ranks for each in answers}):
        own = sorted(
            (each for each in answers if each.prediction.ranks == size),
            key=lambda each: LEVELS.index(each.target.guarantee),
        )
        first = own[0]
        for each in own[1:]:
            if each.target.guarantee == first.target.guarantee:
                continue
            low, high = np.quantile(each.samples / first.samples, [0.1, 0.9]).tolist()
            marks = dict.fromkeys((*first.prediction.extrapolated, *each.prediction.extrapolated))
            rows.append(
                (size, each.prediction.clock, each.target.guarantee, first.target.guarantee,
                 each.prediction.median / first.prediction.median, low, high, not low <= 1.0 <= high, "; ".join(marks))
            )  # fmt: skip
    return pd.DataFrame(rows, columns=list(PRICES))
