"""Invariance certificates: whether the bits of a result change with cuts of dims that are not summed, with addresses of
operands, or with the number of threads.

A trial draws sizes, operands and a part of one dim, computes the whole and the part, and compares the elements that
both have. Where no trial differs, the probability of a difference in a trial is below 1 - 0.05^(1 / trials) with 95 %
(`kernels.bits.bound`), for sizes and operands from the same distributions.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from zlib import crc32

import numpy as np

from kernels import bits
from kernels.contract.cases import Case, Sizes

if TYPE_CHECKING:
    import torch

TYPES = ("float32", "float64")
THREADS = (1, 2)
OFFSETS = (0, 4, 16, 64)  # bytes from a multiple of 64, rounded up to whole elements


@dataclass(frozen=True)
class Deck:
    """The number of trials of a certificate, and the largest length of a dim."""

    trials: int
    most: int


DECKS = {"S": Deck(12, 160), "M": Deck(100, 256)}


@dataclass
class Certificate:
    """The results of the trials of one change to one operation."""

    operation: str
    variant: str
    dtype: str
    threads: int
    changed: str  # the dim that was cut, `address` or `threads`
    trials: int = 0
    differ: int = 0
    ulp: float = 0.0  # the largest distance

    def add(self, whole: np.ndarray, part: np.ndarray) -> None:
        """Count one trial."""
        self.trials += 1
        if bits.differ(whole, part).any():
            self.differ += 1
            self.ulp = max(self.ulp, float(bits.largest(bits.ulp_distance(whole, part).reshape(-1))))

    def entry(self) -> dict[str, Any]:
        """The row of the JSON document; `bound` is None where a trial differed."""
        return {**vars(self), "bound": None if self.differ else bits.bound(self.trials)}


def certify(cases: Iterable[Case], deck: Deck, seed: int = 0) -> Iterable[list[Certificate]]:
    """Yields the certificates of each case: one for every change, type and number of threads."""
    import torch

    for case in cases:
        found, name = [], crc32(f"{case.operation} {case.variant}".encode())
        for dtype in TYPES:
            for threads in THREADS:
                changes = [*case.cuts, "address", *(["threads"] if threads > 1 else [])]
                for place, changed in enumerate(changes):
                    rng = np.random.default_rng([seed, name, threads, place])
                    certificate = Certificate(case.operation, case.variant, dtype, threads, changed)
                    for trial in range(deck.trials):
                        operands = case.draw(Sizes(rng, deck.most), getattr(torch, dtype))
                        certificate.add(*_trial(case, operands, changed, threads, rng, OFFSETS[trial % 4]))
                    found.append(certificate)
        yield found


def _trial(
    case: Case, operands: Any, changed: str, threads: int, rng: np.random.Generator, offset: int
) -> tuple[np.ndarray, np.ndarray]:
    """(elements of the whole, the same elements computed with the change)."""
    whole = case.run([placed(x, 0) for x in operands], threads)
    if changed == "threads":
        return whole.numpy(), case.run([placed(x, 0) for x in operands], 1).numpy()
    if changed == "address":
        return whole.numpy(), case.run([placed(x, offset) for x in operands], threads).numpy()
    cut = case.cuts[changed]
    n = whole.shape[cut.dim]
    low = int(rng.integers(0, n))
    high = int(rng.integers(low + 1, n + 1))
    part = case.run([placed(x, offset) for x in cut.take(operands, low, high)], threads)
    return whole.narrow(cut.dim, low, high - low).numpy(), part.numpy()


def placed(x: torch.Tensor, offset: int) -> torch.Tensor:
    """A copy without gaps, with the same order of dims in memory, that begins `offset` bytes after a multiple of 64.
    `offset` is rounded up to whole elements."""
    import torch

    order = sorted(range(x.ndim), key=x.stride, reverse=True)
    size = x.element_size()
    memory = torch.empty(x.numel() + 128 // size, dtype=x.dtype)
    begin = -memory.data_ptr() % 64 // size + -(-offset // size)
    inner = memory[begin : begin + x.numel()].view([x.shape[d] for d in order])
    back = [order.index(d) for d in range(x.ndim)]
    return inner.permute(back).copy_(x)
