"""The schema of a trace file: names and types shared by writer and reader."""

from __future__ import annotations

import functools
import hashlib
from typing import Any, Literal, get_args

import numpy as np
import xxhash

FORMAT = "fpna-trace"
NODE_FORMAT = "fpna-trace-node"  # the ranks of a node in one file
SCHEMA = 6  # files of another schema are refused

# The kind of a region, stated when it is named. A `wait` is for messages that its enclosing region sent; `other`
# encloses other regions, or reads their results.
Kind = Literal["compute", "collective", "exchange", "wait", "file", "other"]
KINDS: tuple[str, ...] = get_args(Kind)
COMPUTE, COLLECTIVE, EXCHANGE, WAIT, FILE, OTHER = KINDS

# How an option affects guarantees and timing comparisons, stated where it is declared.
Effect = Literal[
    "reduction", "replay", "guarantee", "ownership", "spread", "threads", "device", "fault", "cost", "size", "source",
    "restart", "until", "fingerprint", "machine", "processor",
]  # fmt: skip
EFFECTS: dict[Effect, str] = {
    "reduction": "requests how global sums are added; the trace records the orderings used",
    "replay": "repeats recorded orders of arrival and recorded choices",
    "guarantee": "follows the guarantee unless it is given",
    "ownership": "assigns blocks to ranks: free under layout",
    "spread": "lays a program over a mesh of ranks: free under layout",
    "threads": "sets the number of threads: free under layout",
    "device": "chooses the device that computes",
    "fault": "injects a fault",
    "cost": "changes times, never bits",
    "size": "sets a size of the problem: the work of a step is proportional to the product of all sizes",
    "source": "names the source of the problem, or decides other recorded options",
    "restart": "names the checkpoint from which a run continues",
    "until": "stops a run before its problem ends",
    "fingerprint": "chooses the hash of fingerprints: two kinds cannot be compared",
    "processor": "chooses the processors over which the guarantee holds",
    "machine": "chooses which parts of the machine a calibration measures",
}
FINGERPRINTS = ("xxh3", "sha256")
Decider = Literal["guarantee", "option", "application"]  # chooses the ordering of a reduction

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
        "flops": "int64",
    },
    "values": {
        "repeat": "int32",
        "step": "int32",
        "name": "int32",
        "block": "int32",
        "value": "float64",
        "after": "int64",
    },
    "fingerprints": {
        "repeat": "int32",
        "step": "int32",
        "name": "int32",
        "block": "int32",
        "hi": "uint64",
        "lo": "uint64",
        "after": "int64",
    },
    "sizes": {
        "repeat": "int32",
        "step": "int32",
        "name": "int32",
        "block": "int32",
        "dtype": "int32",
        "count": "int64",
        "sample": "int32",
        "l1": "float64",
        "largest": "float64",
        "p0": "float64",
        "p1": "float64",
        "p2": "float64",
        "p3": "float64",
        "after": "int64",
    },
    "order": {"repeat": "int32", "step": "int32", "name": "int32", "ranks": "uint16"},
    "choices": {
        "repeat": "int32",
        "step": "int32",
        "name": "int32",
        "block": "int32",
        "choice": "int32",
        "score": "float64",
    },
    "usage": {"repeat": "int32", "step": "int32", "name": "int32", "value": "float64"},
}
# The meaning of a row of each table, in Markdown, with links relative to docs/reference.
MEANINGS: dict[str, str] = {
    "events": "a region: `start` and `end` in ns by this rank's clock; `bytes` and `flops` are 0 if unknown",
    "values": "a number; `block` is -1 for the whole",
    "fingerprints": "the hash of an array, `hi` and `lo`; `block` is -1 for the whole",
    "sizes": "[the size of an array](trace.md#sizes): `repeat`, `step`, `name`, `block` and `after` equal those of its "
    "fingerprint",
    "order": "the ranks in the order of addition: `name` is the reducer, `ranks` has a second axis of length `size`",
    "choices": "a decision from a clock, or by a policy; `block` is -1 for the whole",
    "usage": "CPU seconds in the step: `cpu_time` of the process, `cpu` of its main thread and, at the step of a head, "
    "`chain_cpu`, a part of `cpu`; [over a mesh](../explanation/partition.md#utilisation) `utilisation`, and at step 0 "
    "`model_flops` and `core_rate`",
}
# Columns that index the names, which are lines of JSON in UTF-8.
NAMED = ("name", "choice", "dtype")
NAMES = {"names": {"text": "uint8"}}
GROWING = TABLES | NAMES
# Names in `usage`. Every rank records CPU seconds: of the process with all threads; of the thread that runs the
# application, which where no rank waits gives step time minus the time other processes took; at the step of a head, the
# part of the latter that the chain took since the previous head. Over a mesh, rank 0 records: at step 0 the
# floating-point operations of a step, and the operations per second of one core; in each step the used part of the rate
# of all cores.
CPU_TIME, THREAD_TIME, CHAIN_TIME = "cpu_time", "cpu", "chain_cpu"
MODEL_FLOPS, CORE_RATE, UTILISATION = "model_flops", "core_rate", "utilisation"

JSON_ATTRIBUTES = ("config", "problem_options", "method", "options", "environment", "promises", "partners", "regions",
                   "messages", "reductions", "ledger", "result", "files", "unseen", "unreached",
                   "neighbours")  # fmt: skip


class TraceError(Exception):
    """A trace cannot be written or read; the message names the file, what is wrong and what to do."""


def rank_file(rank: int) -> str:
    """Name of the trace file of `rank` inside the directory of a run."""
    return f"rank-{rank:05d}.h5"


def node_file(rank: int) -> str:
    """Name of the trace file of a node whose lowest rank is `rank`."""
    return f"node-{rank:05d}.h5"


def fingerprint(array: np.ndarray, kind: str = "xxh3") -> bytes:
    """The fingerprint of `array` (any shape, any plain dtype): 16 bytes that identify its dtype, shape and bits.

    XXH3 (128 bits) over `dtype.str` in little-endian form, the shape and the little-endian bytes in C order. So the
    hash depends neither on the memory layout nor on the byte order of the machine. +0.0 and -0.0 differ, and so do
    NaNs with different payloads. XXH3 shows differences, at 20 GB/s, but does not resist forgery; `kind` "sha256", the
    first half of SHA-256 of the same bytes, does. Raises TypeError for objects, ValueError for an unknown `kind`.
    """
    array = np.asarray(array)
    return fingerprint_rows(array[np.newaxis], kind)[0]


def fingerprint_rows(arrays: np.ndarray, kind: str = "xxh3") -> list[bytes]:
    """The fingerprints of `arrays[0]`, `arrays[1]`, ..., in little more than the time to read them."""
    arrays = np.asarray(arrays)
    if arrays.dtype.hasobject:
        raise TypeError(f"an array of dtype {arrays.dtype} has no bits to hash; pass a plain numeric array")
    if kind not in FINGERPRINTS:
        raise ValueError(f"fingerprint {kind!r} is unknown; there are {', '.join(FINGERPRINTS)}")
    little = arrays.astype(arrays.dtype.newbyteorder("<"), order="C", copy=False)
    begun = _begun(little.dtype, little.shape[1:], kind)
    # As bytes: hashes accept neither arrays of ml_dtypes nor empty N-d buffers.
    data = little.reshape(-1).view(np.uint8).data
    size = len(data) // max(len(little), 1)
    digests = []
    for start in range(0, len(little) * size, size) if size else [0] * len(little):
        row = begun.copy()
        row.update(data[start : start + size])
        digests.append(row.digest()[:16])
    return digests


@functools.lru_cache(4096)
def _begun(dtype: np.dtype, shape: tuple[int, ...], kind: str) -> Any:
    """The hash of the description of an array, to be copied: programs record the same shapes again and again."""
    begin = f"{dtype.str}{shape}".encode()
    return xxhash.xxh3_128(begin) if kind == "xxh3" else hashlib.sha256(begin)
