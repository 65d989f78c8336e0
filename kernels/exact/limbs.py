"""Exact sums of float32 in as few words of 64 bits as the range of all terms asks for: partial sums that travel.

Three steps: all ranks agree on the range of their terms by MAX, add them into words, which add up to those of the whole
sum by integer SUM, in any order, and round each sum once. The range decides how many words there are and touches no bit
of a sum: nothing is rounded before the end, so that no sum depends on another. Infinities and NaN are counted in two
words of their own.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from kernels import _native

MOST_TERMS = 1 << 40
SPECIAL = 2  # words that count +inf and -inf; a NaN counts in both
LIMB, ROOM = 50, 62  # bits: of a limb, at most; of a word that sums of limbs may fill


def range_of(x: np.ndarray, terms: int) -> np.ndarray:
    """int64 (4,): the range of `x`, float32, of which `terms` are added up at most; to be agreed on by MAX."""
    exponent, unit, special = _native.limb_range(_floats(x))
    return np.array([exponent, -unit, special, terms], np.int64)


@dataclass(frozen=True)
class Limbs:
    """How sums of terms of a range are held: `count` limbs, of which limb k counts multiples of 2**(unit + bits k), and
    SPECIAL words more if `special`. Words are int64 (sums, words, columns)."""

    unit: int
    bits: int
    count: int
    special: bool

    @classmethod
    def of(cls, agreed: np.ndarray, ranks: int = 1) -> Limbs:
        """For a range that `ranks` ranks agreed on. Raises ValueError for more than 2**40 terms in all."""
        exponent, lowest, special, terms = agreed.tolist()
        terms = max(terms * ranks, 1)
        if terms > MOST_TERMS:
            raise ValueError(f"{terms} terms of a sum: at most 2**40 fit into words; add in parts")
        bits = min(LIMB, ROOM - (terms - 1).bit_length())
        if exponent < -lowest:  # there are only zeros
            return cls(0, bits, 1, bool(special))
        return cls(-lowest, bits, -(-(exponent + lowest) // bits), bool(special))

    @property
    def words(self) -> int:
        """Words of a sum."""
        return self.count + SPECIAL * self.special

    def added(self, x: np.ndarray, index: np.ndarray, bins: int, out: np.ndarray | None = None) -> np.ndarray:
        """int64 (bins, words, columns): the rows of `x`, float32 (n, columns), added at `index` (n,), to `out` if it is
        given.

        Raises IndexError for an index that is not in [0, bins), ValueError for numbers beyond the range.
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
        """float32 (sums, columns): each sum in `words`, rounded once to nearest even. Zero is +0.0; infinities and NaN
        have their sum by IEEE rules."""
        out = np.empty((len(words), words.shape[2]), np.float32)
        _native.limb_round(np.ascontiguousarray(words), self.unit, self.bits, self.count, out)
        return out


def _floats(x: np.ndarray) -> np.ndarray:
    if x.dtype != np.float32:
        raise TypeError(f"words hold sums of float32, not of {x.dtype}: convert it")
    return np.ascontiguousarray(x)
