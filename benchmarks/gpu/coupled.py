"""Whole runs of `coupled` on one rank, without a launcher, where mpi4py can be imported.

With the physical closure, device and CPU must end with the same bits; with the learned closure, two repeats must.
"""

from benchmarks.gpu.stencil import row
from benchmarks.gpu.whole import lacking, on_both, seconds


def coupled_rows(asked) -> list[dict]:
    """A row per kind of run; a single row with the reason if nothing can run."""
    if reason := lacking():
        return [row("coupled", f"not run: {reason}")]
    runs = (
        [("S", "layout"), ("S", "exact")] if asked.quick else [("S", "exact"), ("M", "none"), ("M", "layout")]
    )
    rows = [_same_as_cpu(deck, guarantee, 1 if asked.quick else 3) for deck, guarantee in runs]
    return rows + [_repeats(deck, 1 if asked.quick else 3) for deck in (["S"] if asked.quick else ["S", "M"])]


def _same_as_cpu(deck: str, guarantee: str, steps: int) -> dict:
    what = f"coupled {deck} {guarantee}, physics"
    try:
        device, cpu = on_both("coupled", _arguments(deck, guarantee, "physics", steps))
    except RuntimeError as error:
        return row(what, f"FAIL {error}")
    same = set(device["fingerprints"]) == set(cpu["fingerprints"])
    check = "same bits" if same else "FAIL bits differ"
    return row(what, check, seconds(device, "steps"), seconds(cpu, "steps"))


def _repeats(deck: str, steps: int) -> dict:
    what = f"coupled {deck} layout, online"
    try:
        device, cpu = on_both("coupled", _arguments(deck, "layout", "online", steps))
    except RuntimeError as error:
        return row(what, f"FAIL {error}")
    same = len(set(device["fingerprints"])) == 1
    check = "repeats agree" if same else "FAIL repeats differ"
    return row(what, check, seconds(device, "steps"), seconds(cpu, "steps"))


def _arguments(deck: str, guarantee: str, closure: str, steps: int) -> list[str]:
    return ["--deck", deck, "--guarantee", guarantee, "--closure", closure, "--steps", str(steps)]
