"""Lossless wires, for the words of any accumulation: the words themselves, or packed words of 64 bits.

A lossless wire does not change the guarantee. It is worthwhile on links slower than memory: `packed` encodes messages
between nodes; inside a node words travel as they are.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from kernels import _native
from kernels.guarantees import ChoiceError, known

PLAIN = "as is"


@dataclass(frozen=True)
class Wire:
    """A lossless encoding of words.

    `most(n, width)`: bytes of a buffer for n elements of `width` words. `encode(words, width, buffer) -> bytes used`
    and `decode(buffer, width, words)`: words (n * width,), buffer uint8 of `most` bytes. `decode` raises ValueError for
    bytes that `encode` does not write.
    """

    name: str
    most: Callable[[int, int], int]
    encode: Callable[[np.ndarray, int, np.ndarray], int]
    decode: Callable[[np.ndarray, int, np.ndarray], None]


SUMMARIES = {
    PLAIN: "The words themselves.",
    "packed": "Words of 64 bits, in groups of 64, without the bits that no word of the group needs: for slow links.",
}


def _bits(words: np.ndarray) -> np.ndarray:
    return words.view(np.int64)


PACKED = Wire(
    "packed",
    _native.packed_bytes,
    lambda words, width, buffer: _native.pack(_bits(words), width, buffer),
    lambda buffer, width, words: _native.unpack(buffer, width, _bits(words)),
)


def get(name: str, travels: np.dtype) -> Wire | None:
    """The wire of that name for words of type `travels`; None for `as is`.

    Raises ChoiceError for an unknown name, and for words that the wire cannot carry.
    """
    known("wire", name, SUMMARIES)
    if name == PLAIN:
        return None
    if travels.itemsize != 8:
        raise ChoiceError(
            f"wire {name!r} packs words of 64 bits, but these messages are of {travels}: choose accumulation "
            "'exact', or leave out the wire"
        )
    return PACKED
