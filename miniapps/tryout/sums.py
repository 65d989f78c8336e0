"""Sums inside one process: their order, and whether their bits change with alignment and threads.

`python -m miniapps.tryout.sums numpy|torch THREADS ...` prints a JSON line for each way of adding. It is a separate
process because BLAS libraries read their number of threads once, and torch may be too large for this machine."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from kernels.registry import Variant, get
from kernels.sums.discovery import tree_of
from kernels.sums.lanes import lanes
from miniapps.system import environment

TERMS = 512  # of the sum whose tree is discovered
NUMBERS = (1_000, 1_000_000)  # terms of the compared sums: libraries split long ones among threads
LINE = 64  # bytes of a cache line
WAYS = (("sum", "np.sum", "float64"), ("dot", "np.dot", "float64")), (("sum", "torch.sum", "float32"),)
SEED = 7


def ways(library: str, threads: Sequence[int]) -> Iterator[dict[str, Any]]:
    """For each way in which `library` adds: its order with `threads[0]` threads, and the sums (hex) at each alignment
    and with each number of threads."""
    for operation, name, dtype in WAYS[library == "torch"]:
        variant = get(operation, library, library)
        _set(library, threads[0])
        known = tree_of(variant, TERMS, np.dtype(dtype), {})
        entry = {"what": name, "dtype": dtype, "threads": list(threads), "terms": TERMS,
                 "kind": known.entry()["kind"], "depth": known.entry()["depth"],
                 "lanes": lanes(known.found) if known.is_tree else None,
                 "alignments": aligned(variant, dtype)}  # fmt: skip
        entry["by_threads"] = []
        for count in threads:
            _set(library, count)
            entry["by_threads"].append([_total(variant, numbers(n, dtype)) for n in NUMBERS])
        yield entry | {"library": loaded(library, operation)}


def aligned(variant: Variant, dtype: str) -> list[list[str]]:
    """The sums (hex) of the same numbers at each offset that an element can have in a cache line."""
    size = np.dtype(dtype).itemsize
    found = []
    for n in NUMBERS:
        x, room = numbers(n, dtype), np.empty(n * size + 2 * LINE, np.uint8)
        begin = -room.ctypes.data % LINE
        sums = []
        for offset in range(0, LINE, size):
            at = room[begin + offset : begin + offset + n * size].view(dtype)
            at[:] = x
            sums.append(_total(variant, at))
        found.append(sums)
    return found


def numbers(n: int, dtype: str) -> np.ndarray:
    """Random numbers, (n,), the same in every process."""
    return np.random.default_rng([SEED, n]).standard_normal(n).astype(dtype)


def loaded(library: str, operation: str) -> str:
    """The library that adds: `numpy 2.3.5`; for a dot product the BLAS that numpy has loaded, if its name is known."""
    version = f"{library} {sys.modules[library].__version__}"
    if operation == "sum":
        return version
    blas = next((f"OpenBLAS {text}" for key, text in environment.arithmetic().items()
                 if key.startswith("openblas_numpy") or key == "openblas_lib"), "")  # fmt: skip
    return blas or environment.arithmetic().get("blas", "") or f"the BLAS of {version}"


def _total(variant: Variant, x: np.ndarray) -> str:
    factors = [x] if variant.operation == "sum" else [x, np.ones_like(x)]
    return float(variant(*factors)).hex()


def _set(library: str, threads: int) -> None:
    """Set torch's number of threads; the environment of this process sets that of NumPy's BLAS."""
    if library == "torch":
        import torch

        torch.set_num_threads(threads)


if __name__ == "__main__":
    for each in ways(sys.argv[1], [int(word) for word in sys.argv[2:]]):
        print(json.dumps(each), flush=True)
