"""What a trace file holds: the names and types that the writer and the reader share."""

from __future__ import annotations

import numpy as np
import xxhash

FORMAT = "fpna-trace"
SCHEMA = 1

# Columns of each table, in the order in which they are stored. `ranks` of `order` has a second axis of
# length `size`, all others have one axis.
TABLES: dict[str, dict[str, str]] = {
    "events": {
        "start": "int64",
        "end": "int64",
        "name": "int32",
        "repeat": "int32",
        "step": "int32",
        "bytes": "int64",
    },
    "values": {"repeat": "int32", "step": "int32", "name": "int32", "block": "int32", "value": "float64"},
    "fingerprints": {
        "repeat": "int32",
        "step": "int32",
        "name": "int32",
        "block": "int32",
        "hi": "uint64",
        "lo": "uint64",
    },
    "order": {"repeat": "int32", "step": "int32", "name": "int32", "ranks": "uint16"},
}

COMMITTED = [*TABLES, "names"]  # what the columns of `committed` count

JSON_ATTRIBUTES = ("config", "method", "environment")


class TraceError(Exception):
    """A trace cannot be written or read; the message names the file, what is wrong and what to do."""


def rank_file(rank: int) -> str:
    """Name of the trace file of `rank` inside the directory of a run."""
    return f"rank-{rank:05d}.h5"


def fingerprint(array: np.ndarray) -> bytes:
    """16 bytes that identify the dtype, the shape and the bits of `array` (any shape, any plain dtype).

    XXH3 (128 bits) over `dtype.str` in little-endian form, the shape and the little-endian bytes in C order, so
    that the hash depends neither on the memory layout nor on the byte order of the machine. +0.0 and -0.0 differ,
    and so do NaNs with different payloads. It tells differences, at 20 GB/s; it is no proof against forgery.
    """
    array = np.asarray(array)
    if array.dtype.hasobject:
        raise TypeError(f"an array of dtype {array.dtype} has no bits to hash; pass a plain numeric array")
    little = array.astype(array.dtype.newbyteorder("<"), order="C", copy=False)
    digest = xxhash.xxh3_128(f"{little.dtype.str}{little.shape}".encode())
    # A view of bytes, because a hash takes no arrays of ml_dtypes and the like, and no empty N-d buffers.
    digest.update(little.reshape(-1).view(np.uint8).data)
    return digest.digest()
