"""Wires: the encodings of messages, independent of ordering and accumulation.

Lossless, for the words of any accumulation (`packed`):

| name | message | bits |
|---|---|---|
| `as is` | the words themselves | those of the words |
| `packed` | of every 64 words of 64 bits, the bits that any of them needs | see kernels/native/packed.cpp |

Lossy, for float32 elements (`codecs`, `cells`), in cells of at most 4096 elements, `codec(text)`:

| name | element | bits | head of a cell, bytes |
|---|---|---|---|
| `float32` | itself | 32 | 0 |
| `float16`, `bfloat16` | cast, to nearest even | 16 | 0 |
| `e4m3`, `e5m2` | cast, to nearest even | 8 | 0 |
| `fp8` | as e5m2, but finite numbers saturate at 57344 | 8 | 0 |
| `int8`, `int16` | an integer times a unit, a power of two | 8, 16 | 4: the unit |
| `int4` | an integer times a bfloat16 number of its block | 4 | 2 for each block |
| `e2m1`, `e3m0` | cast, times a power of two of its block | 4 | 1 for each block |
| `table:n=N` | sign, and the number of one of 2^(N-1) percentiles of magnitudes | N | 2^N: the percentiles |
| `sign` | sign | 1 | 8: means of the positive and of the negative elements |

`scale=tensor` (of casts) and `scale=match` (of all) add 4 bytes to the head. `reference` defines every bit.
"""

from kernels.wires.cells import CELL, SMALL, Cells, cells_of
from kernels.wires.codecs import LOSSY, Codec, codec
from kernels.wires.packed import PACKED, PLAIN, SUMMARIES, Wire, get
from kernels.wires.reference import quality

__all__ = [
    "CELL",
    "LOSSY",
    "PACKED",
    "PLAIN",
    "SMALL",
    "SUMMARIES",
    "Cells",
    "Codec",
    "Wire",
    "cells_of",
    "codec",
    "get",
    "quality",
]
