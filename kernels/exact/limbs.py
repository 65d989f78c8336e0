"""Exact sums of float32 over ranks, in the fewest 64-bit words for the range of all terms.

Three steps: all ranks agree on the range of their terms by MAX; each rank adds its terms into words, which are combined
by integer SUM in any order; then each sum is rounded once. The range determines the number of words and changes no bit
of a sum: nothing is rounded before the end, so no sum depends on another. Two further words count infinities and NaN.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from kernels import _native

MOST_TERMS = 1 << 40
SPECIAL = 2  # words that count +inf and -inf; a NaN counts in both
LIMB, ROOM = 50, 62  # bits, at most: of a limb; of a word that holds sums of limbs


def range_of(x: np.ndarray, terms: int) -> np.ndarray:
    """The range of `x`, float32, as int64 (4,), which ranks combine by MAX; `terms`: the most terms of a sum."""
    exponent, unit, special = _native.limb_range(_floats(x))
    return np.array([exponent, -unit, special, terms], np.int64)


@dataclass(frozen=True)
class Limbs:
    """The format of sums for a range of terms. Limb k of `count` counts multiples of 2**(unit + bits k); if `special`,
    SPECIAL more words follow. Words are int64 (sums, words, columns)."""

    unit: int
    bits: int
    count: int
    special: bool

    @classmethod
    def of(cls, agreed: np.ndarray, ranks: int = 1) -> Limbs:
        """The format for a range on which `ranks` ranks agreed. Raises ValueError for more than 2**40 terms in all."""
        exponent, lowest, special, terms = agreed.tolist()
        terms = max(terms * ranks, 1)
        if terms > MOST_TERMS:
            raise ValueError(f"{terms} terms of a sum: at most 2**40 fit into words; add in parts")
        bits = min(LIMB, ROOM - (terms - 1).bit_length())
        if exponent < -lowest:  # all terms are zero
            return cls(0, bits, 1, bool(special))
        return cls(-lowest, bits, -(-(exponent + lowest) // bits), bool(special))

    @property
    def words(self) -> int:
        """Words of a sum."""
        return self.count + SPECIAL * self.special

    def added(self, x: np.ndarray, index: np.ndarray, bins: int, out: np.ndarray | None = None) -> np.ndarray:
        """Adds the rows of `x`, float32 (n, columns), to the bins `index` (n,); returns int64 (bins, words, columns).

        Adds to `out` if it is given. Raises IndexError for an index outside [0, bins), ValueError for numbers beyond
        the range.
        """
        x = _floats(x)
        if out is None:
            out = np.zeros((bins, self.words, x.shape[1]), np.int64)
        index = np.ascontiguousarray(index, np.int64)
        if len(index) and not 0 <= index.min() <= index.max() < bins:
            raise IndexError(f"indices {index.min()} ... {index.max()}: {bins} bins allow 0 ... {bins - 1}")
        if not _native.limb_add(x, index, self.unit, self.bits, self.count, out):
            raise ValueError(
                "a number is beyond the range: agree on it by MAX over the range_of of all terms"
            )
        return out

    def rounded(self, words: np.ndarray) -> np.ndarray:
        """Rounds each sum in `words` once, to nearest even: float32 (sums, columns). Zero is +0.0; infinities and NaN
        add by IEEE rules."""
        out = np.empty((len(words), words.shape[2]), np.float32)
        _native.limb_round(np.ascontiguousarray(words), self.unit, self.bits, self.count, out)
        return out


def _floats(x: np.ndarray) -> np.ndarray:
    if x.dtype != np.float32:
        raise TypeError(f"limbs hold sums of float32, not of {x.dtype}: convert it")
    return np.ascontiguousarray(x)
