"""Balances blocks between unequal ranks: redistributes them at checkpoints by useful time per block.

Other systems fit the batch to the speed of a worker, which changes the statistics (Adaptive SGD). Here problem, batch
and blocks stay, and only the owners change. So the bits stay too under guarantees that do not depend on ownership.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from kernels.guarantees import meets
from miniapps.errors import UsageError
from miniapps.layout.owners import balanced
from miniapps.runner.slow import AWAY
from miniapps.trace.schema import COMPUTE

if TYPE_CHECKING:
    from miniapps.runner.context import Context
    from miniapps.trace import Tracer

GAIN = 0.05  # part of the slowest rank's time that a redistribution must save


def useful(tracer: Tracer) -> float:
    """Seconds that this rank computed in the current step: in regions of kind COMPUTE, minus the exchanges and
    reductions inside them, where it may wait. An exchange that ends after its region is not subtracted: it ran in the
    background."""
    computed, away = tracer.spans((COMPUTE,)), tracer.spans(AWAY)
    computed = computed[np.argsort(computed[:, 0])]
    around = np.searchsorted(computed[:, 0], away[:, 0], side="right") - 1
    inside = (
        (around >= 0) & (away[:, 1] <= computed[around, 1]) if len(computed) else np.zeros(len(away), bool)
    )
    return 1e-9 * float(np.diff(computed).sum() - np.diff(away[inside]).sum())


class Shares:
    """The useful time of this rank since its blocks were assigned, by the wall clock, so that a slow processor and a
    shared one both count as slow."""

    def __init__(self, ctx: Context, owner: np.ndarray):
        self._ctx = ctx
        self.counts: list[int] = np.bincount(owner, minlength=ctx.size).tolist()
        self._useful = 0.0

    def observe(self) -> None:
        """Add the useful time of the current step, at its end."""
        self._useful += useful(self._ctx.tracer)

    def decide(self) -> list[int] | None:
        """Returns the new number of blocks of each rank, None if it stays. Collective; the trace records the choice
        `shares`, and a replay repeats it."""
        ctx = self._ctx
        text = ctx.choose("shares", self._measured, clock=not meets(ctx.options.guarantee, "layout"))
        counts = parsed(text, sum(self.counts), ctx.size)
        self._useful = 0.0
        if counts == self.counts:
            return None
        self.counts = counts
        return counts

    def _measured(self) -> tuple[str, float]:
        """Returns the choice, and the part of the slowest rank's time that it saves."""
        useful = np.array(self._ctx.comm.allgather(self._useful))
        each = np.maximum(useful, 1e-9) / self.counts
        counts = balanced(sum(self.counts), each.tolist())
        gain = 1.0 - float((each * counts).max() / useful.max()) if useful.max() > 0.0 else 0.0
        return (",".join(map(str, counts if gain > GAIN else self.counts)), gain)


def parsed(text: str, count: int, size: int) -> list[int]:
    """The counts in a recorded choice. Raises UsageError unless they assign `count` blocks to `size` ranks."""
    words = text.split(",")
    counts = [int(word) for word in words if word.isascii() and word.isdigit() and len(word) < 10]
    if len(words) != len(counts) or len(counts) != size or sum(counts) != count or min(counts) < 1:
        raise UsageError(
            f"--replay: the run chose the shares {text[:80]!r}, which do not assign {count} blocks to {size} ranks; "
            "replay a run of the same problem on as many ranks"
        )
    return counts
