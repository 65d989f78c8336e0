"""Times of calls, calls in turn, and ratios with their spread."""

import statistics
import time

from kernels.timing import in_turn as in_turn

SAMPLES, SAMPLE_S = 7, 0.02
PATIENCE_S, TRIES = (
    0.3,
    8,
)  # to wait for free processors before a call of all ranks, and calls until nothing disturbs one


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


def undisturbed(quiet, call):
    """(what `call` returns, True), called again until nothing else used the processors of any rank before and after it
    (`quiet`: miniapps.calibrate.noise.Quiet); after TRIES calls what the last one returned, and False. Collective."""
    for _ in range(TRIES):
        free, found = quiet.wait(PATIENCE_S), call()
        if quiet.now() and free:
            return found, True
    return found, False


def ratio(numerators, denominators) -> dict[str, float]:
    """Median, minimum and maximum of the ratios round by round."""
    ratios = [a / b for a, b in zip(numerators, denominators, strict=True)]
    return {"median": statistics.median(ratios), "min": min(ratios), "max": max(ratios), "n": len(ratios)}
