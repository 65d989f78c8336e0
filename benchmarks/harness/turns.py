"""Calls in turn, and ratios with their spread."""

import statistics
import time

from kernels.progress import Progress

SAMPLES, SAMPLE_S = 7, 0.02


def in_turn(variants: dict, rounds: int, quiet: bool = False) -> dict[str, list]:
    """Call every function of `variants` once per round, each round in another order; {name: results}.

    Neighbours in time share the machine's mood, so ratios are taken within a round. The first round warms up
    and does not count. Unless `quiet`, shows progress on stderr, between the calls.
    """
    results = {name: [] for name in variants}
    names = list(variants)
    progress, calls = Progress("benchmark", quiet=quiet), (rounds + 1) * len(names)
    for k in range(rounds + 1):
        for i, name in enumerate(names[k % len(names) :] + names[: k % len(names)]):
            progress.show((k * len(names) + i) / calls, f"round {k} of {rounds}, {name}")
            value = variants[name]()
            if k:
                results[name].append(value)
    progress.clear()
    return results


def timed(call, repeats: int) -> float:
    """Seconds per call, of so many in a row."""
    begin = time.perf_counter()
    for _ in range(repeats):
        call()
    return (time.perf_counter() - begin) / repeats


def samples(call, quick: bool = False) -> list[float]:
    """Seconds per call, of SAMPLES samples that each are as many calls as take SAMPLE_S; `quick`: of one call."""
    once = timed(call, 1)
    if quick:
        return [once]
    repeats = max(1, int(SAMPLE_S / timed(call, max(1, int(SAMPLE_S / 10 / once)))))
    return [timed(call, repeats) for _ in range(SAMPLES)]


def ratio(numerators, denominators) -> dict[str, float]:
    """Median, minimum and maximum of the ratios round by round."""
    ratios = [a / b for a, b in zip(numerators, denominators, strict=True)]
    return {"median": statistics.median(ratios), "min": min(ratios), "max": max(ratios), "n": len(ratios)}
