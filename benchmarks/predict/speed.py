"""Times replays."""

from __future__ import annotations

import time

import numpy as np


def speed(options) -> list[dict]:
    """Seconds of 200 replays of 64 ranks with 1,000 waits per step."""
    from analysis.predict.simulation.noise import Noise
    from analysis.predict.simulation.replay import Step, Wait, simulate

    size, waits, replays = 64, 1000, 200
    rng = np.random.default_rng(1)
    work, residuals = np.full(size, 2e-5), np.exp(0.1 * rng.standard_normal(100))
    wait = Wait("allreduce", np.full(size, 5e-6), None, work, np.zeros(size), residuals, np.ones(1))
    step = Step([wait] * waits, [(k, True, True) for k in range(waits)], work, residuals)
    begin = time.perf_counter()
    noise = Noise(rng.uniform(0.5, 1.0, (1000, 2)), size, replays, 1.0, rng)
    simulate([step], 1, size, noise, np.exp(0.02 * rng.standard_normal(replays)), rng)
    seconds = time.perf_counter() - begin
    return [{"part": "speed", "what": "64 ranks, 1,000 waits, 200 replays, s", "error": seconds, "floor": None,
             "bias": None, "inside": None, "runs": 1, "best": 0, "compared": 0, "targets": 1, "rounds": 1, "busy": 0,
             "raw": [seconds]}]  # fmt: skip
