"""Times of calls, calls in turn, and ratios with their spread."""

import statistics
import time

from kernels.timing import in_turn as in_turn

SAMPLES, SAMPLE_S = 7, 0.02


def timed(call, repeats: int) -> float:
    """Seconds per call, over `repeats` calls."""
    begin = time.perf_counter()
    for _ in range(repeats):
        call()
    return (time.perf_counter() - begin) / repeats


def samples(call, quick: bool = False) -> list[float]:
    """Seconds per call of SAMPLES samples, each with as many calls as take SAMPLE_S; `quick`: of one call."""
    once = timed(call, 1)
    if quick:
        return [once]
    repeats = max(1, int(SAMPLE_S / timed(call, max(1, int(SAMPLE_S / 10 / once)))))
    return [timed(call, repeats) for _ in range(SAMPLES)]


def ratio(numerators, denominators) -> dict[str, float]:
    """Median, minimum and maximum of the ratios round by round."""
    ratios = [a / b for a, b in zip(numerators, denominators, strict=True)]
    return {"median": statistics.median(ratios), "min": min(ratios), "max": max(ratios), "n": len(ratios)}
