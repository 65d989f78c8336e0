"""Scatter-adds on the device: bits, and time against atomic additions and torch's `index_add_`."""

from statistics import median

import numpy as np

from benchmarks.gpu.sums import on_current_stream
from benchmarks.gpu.timing import against, rounds
from kernels import registry
from kernels.scatter import cupy as gpu
from kernels.scatter import reference

ELEMENTS, BINS = 10_000_000, 100_000
RUNS = 10  # calls of a variant without a guarantee, to count its different results
QUEUED = {
    "atomic": gpu.queue_atomic,
    "sorted": gpu.queue_sorted,
    "exact": gpu.queue_exact,
}


def scatter_rows(asked) -> list[dict]:
    """A row per variant, for float32 elements and random bins."""
    import cupy as xp

    n, bins = (2000, 50) if asked.quick else (ELEMENTS, BINS)
    rng = np.random.default_rng(1)
    x, index = rng.standard_normal(n).astype(np.float32), rng.integers(0, bins, n)
    on_device = xp.asarray(x), xp.asarray(index)
    checked = gpu.checked("atomic", *on_device, bins)
    calls = {name: (lambda queue=queue: queue(checked)) for name, queue in QUEUED.items()}
    calls["check of the index"] = lambda: gpu.checked("atomic", *on_device, bins)
    times = rounds(calls | _torch(on_device, bins), asked)
    return [
        {
            "what": f"scatter_add {n} into {bins}, {name}",
            "check": _check(name, x, index, bins, on_device) if name in QUEUED else "-",
            "ms": 1e3 * median(times[name]),
            "to atomic": against(times, name, "atomic"),
            "raw": times[name],
        }
        for name in times
    ]


def _check(name: str, x, index, bins: int, on_device) -> str:
    variant = registry.get("scatter_add", name, "cupy")
    results = {variant(*on_device, bins).get().tobytes() for _ in range(RUNS if name == "atomic" else 2)}
    if name == "atomic":
        return f"{len(results)} results in {RUNS} runs"
    if len(results) > 1:
        return "FAIL repeats differ"
    if name != "sorted":
        return "repeats agree"
    return "same bits" if results == {reference.ascending(x, index, bins).tobytes()} else "FAIL bits differ"


def _torch(on_device, bins: int) -> dict:
    try:
        import torch
    except ImportError:
        return {}
    if not torch.cuda.is_available():
        return {}
    x, index = map(torch.from_dlpack, on_device)

    def add(deterministic: bool):
        before = torch.are_deterministic_algorithms_enabled()
        torch.use_deterministic_algorithms(deterministic)
        try:
            torch.zeros(bins, device=x.device).index_add_(0, index, x)
        finally:
            torch.use_deterministic_algorithms(before)

    return {
        "torch index_add_": on_current_stream(lambda: add(False)),
        "torch index_add_, deterministic": on_current_stream(lambda: add(True)),
    }
