"""Replays a program on other ranks, many replays at once: work, waits, the time of messages, and noise."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from analysis.predict.simulation.noise import Noise, Quiet, Waiting
from analysis.waiting.replay import forward

MOST = 20_000_000  # simulated waits of all steps, ranks and replays: some seconds
FEWEST_STEPS = 2


@dataclass(frozen=True)
class Wait:
    """A wait of all ranks: `cost` of its messages in seconds, (ranks,) or one for all; `partners` (ranks, k), or None
    for all ranks; `before` and `inside`: seconds of work (ranks,) on a quiet machine. A draw from the `residuals` (n,)
    or `residuals_inside` (n,) multiplies the work. `beside` (ranks,): seconds in which messages pass while ranks work,
    before `cost`."""

    name: str
    cost: np.ndarray
    partners: np.ndarray | None
    before: np.ndarray
    inside: np.ndarray
    residuals: np.ndarray
    residuals_inside: np.ndarray
    beside: np.ndarray | None = None


@dataclass(frozen=True)
class Step:
    """One step: `waits`; the `order` of their posts and ends, as indices of `waits`; `tail` (ranks,): seconds of work
    after the last wait, with its `residuals`."""

    waits: Sequence[Wait]
    order: Sequence[tuple[int, bool, bool]]
    tail: np.ndarray
    residuals: np.ndarray


@dataclass(frozen=True)
class Replays:
    """`wall`, `cpu` (replays,): seconds per step; `waiting` {region: seconds per step from the time a rank is ready
    until it continues, mean over ranks and replays}; `steps`: number of simulated steps."""

    wall: np.ndarray
    cpu: np.ndarray
    waiting: dict[str, float]
    steps: int


def chosen_steps(steps: int, waits: int, size: int, replays: int) -> np.ndarray:
    """The indices of the steps to simulate, for `steps` steps with `waits` waits in total: all, or evenly spaced ones
    with the first."""
    count = steps if not waits else int(MOST // max(waits / steps * size * replays, 1.0))
    return np.unique(
        np.linspace(0, steps - 1, int(np.clip(count, min(FEWEST_STEPS, steps), steps))).round().astype(int)
    )


def simulate(
    steps: Sequence[Step],
    of: int,
    size: int,
    noise: Noise | Quiet,
    rate: np.ndarray,
    rng: np.random.Generator,
    delays: Waiting | None = None,
) -> Replays:
    """Replays `steps`, chosen from the `of` steps of a run. `rate` (replays,): factors from run to run of the time of
    work and messages. `delays`: delays at the end of waits.

    A run's time per step is the mean of its steps. If only some steps are simulated, the first stands for itself, since
    it includes work done once, and the others for all the rest. Means of fewer steps spread more than those of runs, so
    the result shrinks them towards their median.
    """
    replays, count = len(rate), len(steps)
    others = (of - 1) / (count - 1) if count > 1 else 1.0  # steps represented by one
    weight = of if count == 1 else 1.0
    delays = delays or Waiting()
    now, cpu = np.zeros((size, replays)), np.zeros((size, replays))
    waiting: dict[str, float] = {}

    def drawn(seconds: np.ndarray, residuals: np.ndarray) -> np.ndarray:
        factors = residuals[rng.integers(0, len(residuals), (size, replays))] if len(residuals) > 1 else 1.0
        spent = seconds[:, None] * rate * factors
        np.add(cpu, spent * weight, out=cpu)
        return spent

    everyone = np.arange(size)

    def through(step: Step, now: np.ndarray) -> np.ndarray:
        waits, late = step.waits, delays.drawn(len(step.waits), replays, rng)

        def watch(g: int, ready: np.ndarray, done: np.ndarray) -> None:
            waited = weight * (done - ready)
            np.add(cpu, delays.spinning * waited, out=cpu)
            waiting[waits[g].name] = waiting.get(waits[g].name, 0.0) + float(waited.mean())

        now = forward(
            step.order,
            now,
            lambda g: everyone,
            lambda g: drawn(waits[g].before, waits[g].residuals),
            lambda g: drawn(waits[g].inside, waits[g].residuals_inside),
            lambda g: waits[g].partners,
            cost=lambda g: waits[g].cost[:, None] * rate + late[g] * (waits[g].cost[:, None] > 0),
            after=lambda start, work, ranks: noise.after(start, work),
            beside=lambda g: 0.0 if (own := waits[g].beside) is None else own[:, None] * rate,
            watch=watch,
        )
        return noise.after(now, drawn(step.tail, step.residuals))

    wall = np.zeros(replays)
    for step in steps:
        begun = now.max(axis=0)
        now = through(step, now)
        wall += weight * (now.max(axis=0) - begun)
        weight = others
    # The variance of the mean of all steps, over that of the mean of the simulated steps.
    share = of / (1.0 + (count - 1) * others**2) if count > 1 else 1.0 / of
    return Replays(
        _gathered(wall / of, rate, share),
        _gathered(cpu.mean(axis=0) / of, rate, share),
        {name: seconds / of for name, seconds in waiting.items()},
        count,
    )


def _gathered(seconds: np.ndarray, rate: np.ndarray, share: float) -> np.ndarray:
    """`seconds` (replays,) with `share` of their variance; the variance from the machine's `rate` stays."""
    if share >= 1.0:
        return seconds
    each = seconds / rate
    middle = np.median(each)
    return np.maximum(middle + (each - middle) * np.sqrt(share), 0.0) * rate
