"""The fastest of all combinations of a few choices, and the combinations that are not significantly slower.

The search replays every strategy, up to MOST. Replay k of each strategy has the same machine rate (common random
numbers), so two strategies are compared replay by replay. A strategy is *told* from the best if at least nine of ten of
its replays are slower than the same replays of the best: the 80 % interval of their ratio is above 1.

The choices are the guarantees of the given runs, since local work depends on them; any rank counts; and the orderings
of the calibration. The answer lists strategies without a prediction, with the reason.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np
import pandas as pd

from analysis.errors import Unreachable
from analysis.predict.choices.orderings import offered, unpriced
from analysis.predict.reading.calibration import Calibration
from analysis.predict.simulation.model import Predicted
from kernels.guarantees import LEVELS, meets

MOST, KEPT = 10**5, 10  # strategies that are replayed, and shown
DIMENSIONS = ("ordering", "ranks", "guarantee")
OWN = "own"  # the reductions of the given runs
TOLD = 0.9  # share of paired replays
STRATEGIES = (
    "place", "guarantee", "ranks", "ordering", "seconds", "low", "high", "slower", "told", "extrapolated"
)  # fmt: skip
INFEASIBLE = ("guarantee", "ranks", "ordering", "reason")


@dataclass(frozen=True)
class Strategy:
    """One choice of each dimension."""

    guarantee: str
    ranks: int
    ordering: str

    @property
    def reduction(self) -> str | None:
        """The label of its reductions; None for the run's own."""
        return None if self.ordering == OWN else self.ordering


@dataclass(frozen=True)
class Found:
    """`best`: predictions of the fastest strategies; `table`: a row for each, columns STRATEGIES; `infeasible`: a row
    per strategy without a prediction, columns INFEASIBLE. `replayed`: number of strategies compared; `alike`: number
    that are not told from the best. `own`: predictions with the runs' own reductions, for prices of guarantees."""

    best: list[Predicted]
    table: pd.DataFrame
    infeasible: pd.DataFrame
    replayed: int
    alike: int
    own: list[Predicted] = field(default_factory=list)


def strategies(
    dimensions: Sequence[str],
    ranks: Sequence[int],
    guarantees: Sequence[str],
    orderings: Sequence[str],
) -> list[Strategy]:
    """The product of the choices. Raises Unreachable if a dimension outside `dimensions` has several choices, or for
    more than MOST strategies."""
    choices: dict[str, list] = {
        "guarantee": sorted(guarantees, key=LEVELS.index),
        "ranks": sorted(set(ranks)),
        "ordering": list(orderings),
    }
    for name, values in choices.items():
        if name not in dimensions and len(values) > 1:
            raise Unreachable(
                f"--search {','.join(dimensions)}: the runs or options have several choices of {name} "
                f"({', '.join(map(str, values))}); add it to --search, or give one"
            )
    if (count := math.prod(map(len, choices.values()))) > MOST:
        raise Unreachable(
            f"--search {','.join(dimensions)}: {count:,} strategies, more than the {MOST:,} that are replayed; search "
            "fewer dimensions, or give fewer --ranks or orderings"
        )
    return [Strategy(*each) for each in itertools.product(*choices.values())]


def infeasible(strategy: Strategy, calibration: Calibration | None) -> str:
    """Why a strategy's ordering cannot be predicted; empty if it can."""
    label = strategy.reduction
    if label is None:
        return ""
    if strategy.ranks == 1:
        return f"on one rank every ordering is the same as --ordering {OWN}"
    if calibration is None:
        return "orderings have no price without a calibration"
    held = offered(calibration).get(label, "none")
    if not meets(held, strategy.guarantee):
        return f"{label} promises {held}, which is less than {strategy.guarantee}"
    return unpriced(calibration, label, strategy.ranks)


def search(
    given: Sequence[Strategy],
    answer: Callable[[Strategy], Predicted],
    nearest: Callable[[int], Calibration | None],
    objective: Callable[[Predicted], float],
    keep: int = KEPT,
) -> Found:
    """Replays all strategies and compares them by `objective`, in seconds. `answer` predicts a strategy, all from one
    seed; `nearest` returns the calibration for a rank count. Raises Unreachable if no strategy can be predicted."""
    refused: list[tuple] = []
    kept: list[tuple[float, int, Strategy, Predicted]] = []
    own: list[Predicted] = []
    values: list[float] = []
    samples: list[np.ndarray] = []
    for strategy in given:
        reason = infeasible(strategy, nearest(strategy.ranks))
        try:
            one = None if reason else answer(strategy)
        except (Unreachable, ValueError) as error:
            one, reason = None, str(error)
        if one is None:
            refused.append((*_fields(strategy), reason))
            continue
        values.append(objective(one))
        samples.append(one.samples.astype(np.float32))
        kept = sorted([*kept, (values[-1], len(values), strategy, one)], key=lambda each: each[:2])[:keep]
        if strategy.reduction is None:
            own.append(one)
    if not kept:
        raise Unreachable(
            f"none of {len(given):,} strategies can be predicted; the first ({', '.join(map(str, refused[0][:-1]))}): "
            f"{refused[0][-1]}"
        )
    first = samples[kept[0][1] - 1]
    slower = np.array([np.mean(each > first) for each in samples])
    rows = []
    for place, (seconds, number, strategy, one) in enumerate(kept, start=1):
        share = float(slower[number - 1])
        marks = "; ".join(one.prediction.extrapolated)
        rows.append(
            (place, *_fields(strategy), seconds, *one.prediction.interval, share, share >= TOLD, marks)
        )
    return Found(
        [each[-1] for each in kept],
        pd.DataFrame(rows, columns=list(STRATEGIES)),
        pd.DataFrame(refused, columns=list(INFEASIBLE)),
        len(values),
        int(np.sum(slower < TOLD)) - 1,
        own,
    )


def _fields(strategy: Strategy) -> tuple[str, int, str]:
    return strategy.guarantee, strategy.ranks, strategy.ordering
