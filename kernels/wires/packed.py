"""Wires that lose nothing, for the words of any accumulation: the words themselves, or words of 64 bits packed.

A wire that loses nothing leaves the guarantee as it is. It pays on links that are slower than memory: `packed` encodes
what passes between nodes, and inside a node words travel as they are.
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
    """A way to encode words.

    `most(n, width)`: bytes of a buffer for n elements of `width` words. `encode(words, width, buffer) -> bytes used`
    and `decode(buffer, width, words)`: words (n * width,), buffer uint8 of `most` bytes; ValueError for foreign bytes.
    """

    name: str
    most: Callable[[int, int], int]
    encode: Callable[[np.ndarray, int, np.ndarray], int]
    decode: Callable[[np.ndarray, int, np.ndarray], None]


SUMMARIES = {
    PLAIN: "The words themselves.",
    "packed": "Words of 64 bits in as few bits as 64 of them need, without loss: for slow links.",
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

    Raises ChoiceError for an unknown name, and where it cannot carry such words.
    """
    known("wire", name, SUMMARIES)
    if name == PLAIN:
        return None
    if travels.itemsize != 8:
        raise ChoiceError(
            f"wire {name!r} packs words of 64 bits, and the messages here are of {travels}: choose accumulation "
            "'exact', or leave the wire out"
        )
    return PACKED
