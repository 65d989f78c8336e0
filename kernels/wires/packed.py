"""Wires that lose nothing, for the words of any accumulation: the words themselves, or integers packed.

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
    "packed": "Integers in as few bits as 64 of them need, without loss: for slow links.",
}
PACKED = Wire("packed", _native.packed_bytes, _native.pack, _native.unpack)


def get(name: str, travels: np.dtype) -> Wire | None:
    """The wire of that name for words of type `travels`; None for `as is`.

    Raises ChoiceError for an unknown name, and where it cannot carry such words.
    """
    known("wire", name, SUMMARIES)
    if name == PLAIN:
        return None
    if travels != np.int64:
        raise ChoiceError(
            f"wire {name!r} packs integers, and the messages here are of {travels}: choose accumulation 'fixed-point' "
            "or 'exact', or leave the wire out"
        )
    return PACKED
