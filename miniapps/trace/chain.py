"""The chain of a run: each head is a hash of all records up to a step, whichever ranks wrote them.

The rows of one name and block between two heads form an element, and the rank that recorded them computes its SHA-256.
A head is the SHA-256 of the previous head, the step, these digests in the order of their bytes, the hash of the
checkpoint (at the end of a repeat: of the final state in result.json), and the hash of the problem. So neither the
order of blocks nor their owners matter, and under `layout` the heads of a problem are the same on any number of ranks.

The sorted digests identify the set of elements as securely as SHA-256 identifies one. A sum of hashes could travel by
an all-reduce of fixed length, but is safe only with long hashes (LtHash: 2 kB), which cost ten times as much as one
SHA-256. Here rank 0 receives 32 bytes per name, block and head.

The chain leaves out times (events and usage) and all records that depend on owners or on a clock: choices, records
between states (`trace.records.PASSING`, NODE), and wrong ranks. A name and block has one owner between two heads.
"""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from miniapps.trace.records import CHAIN, INPUT, WRONG, is_state

VERSION = "fpna-chain-3"  # the attribute `chain` of a trace; other versions compute other heads
DIGEST = 32  # bytes
HASHED = {
    "fingerprints": (("step", "<i4"), ("hi", "<u8"), ("lo", "<u8")),
    "values": (("step", "<i4"), ("value", "<f8")),
    "order": (("step", "<i4"), ("ranks", "<u2")),
}  # hashed columns beside name and block
TABLES = tuple(HASHED)
# Names of rows of rank 0.
HEAD, CHECKPOINT, STATE, BEGIN = f"{CHAIN}head", f"{CHAIN}checkpoint", f"{CHAIN}state", f"{CHAIN}begin"
_PREFIX = VERSION.encode() + b"\n"
WAITING = 2**17  # rows kept before they are hashed


@dataclass(frozen=True)
class Mark:
    """A head of `repeat` after all rows of steps up to `step`. `checkpoint`: the hash of the checkpoint written with
    it, empty at the end of a repeat; `state`: the hash of the final state, empty elsewhere. All in hex."""

    repeat: int
    step: int
    head: str
    checkpoint: str = ""
    state: str = ""


class Rows:
    """The rows that one process recorded since the last head. `cpu`: seconds of its thread's CPU time spent on them."""

    def __init__(self) -> None:
        self._waiting: dict[
            str, list[tuple[np.ndarray, np.ndarray]]
        ] = {}  # by table: element of each row, and the packed rows
        self._count = 0  # of waiting rows
        self._hashes: dict[tuple[str, int], Any] = {}  # by table and element
        self._names: list[str] = []
        self._counted = np.empty(0, bool)
        self.latest = -1  # the largest step of any added row
        self.after = -1  # rows of steps up to this one are left out: a restarted run begins after them
        self.cpu = 0.0

    def add(self, table: str, columns: Mapping[str, np.ndarray], names: list[str]) -> None:
        """Add rows of one repeat in the order in which they were recorded; the column `name` indexes `names`, which may
        grow from call to call."""
        if table not in TABLES:
            return
        begin = time.thread_time()
        if len(names) > len(self._names):
            self._names, self._counted = names, np.array([counted(name) for name in names], bool)
        step = ends_in(table, columns["step"])
        keep = np.flatnonzero(self._counted[columns["name"]] & (step > self.after))
        if len(keep):
            self.latest = max(self.latest, int(step[keep].max()))
            packed = _packed(table, columns, keep)
            element = (columns["name"][keep].astype(np.int64) << 32) + packed["block"]
            self._waiting.setdefault(table, []).append((element, packed))
            self._count += len(keep)
            if self._count > WAITING:
                self._hash()
        self.cpu += time.thread_time() - begin

    def take(self) -> bytes:
        """Returns the digests of all elements, DIGEST bytes each, and removes all rows."""
        begin = time.thread_time()
        self._hash()
        digests = b"".join([each.digest() for each in self._hashes.values()])
        self._hashes.clear()
        self.cpu += time.thread_time() - begin
        return digests

    def _hash(self) -> None:
        """Hash the waiting rows, each element in one call."""
        for table, parts in self._waiting.items():
            element, packed = (np.concatenate(each) for each in zip(*parts, strict=True))
            order = np.argsort(element, kind="stable")
            element, text, width = element[order], packed[order].tobytes(), packed.dtype.itemsize
            first = np.flatnonzero(np.diff(element, prepend=element[0] - 1))
            code = (element[first] + 2**31) >> 32
            prefix = {k: _prefix(table, self._names[k], width) for k in set(code.tolist())}
            each = zip(
                element[first].tolist(),
                code.tolist(),
                (width * first).tolist(),
                [*(width * first[1:]).tolist(), len(text)],
                strict=True,
            )
            for number, k, i, j in each:
                begun = self._hashes.get((table, number))
                if begun is None:
                    self._hashes[table, number] = hashlib.sha256(prefix[k] + text[i:j])
                else:
                    begun.update(text[i:j])
        self._waiting.clear()
        self._count = 0


def ends_in(table: str, step: np.ndarray) -> np.ndarray:
    """The step whose head covers each row: an order is recorded when the next step begins, and belongs to its head."""
    return step + 1 if table == "order" else step


def counted(name: str) -> bool:
    """Whether the chain includes rows of this name."""
    return (is_state(name) or name.startswith(INPUT)) and not name.startswith(CHAIN) and name != WRONG


def problem_of(app: str, problem_options: Mapping[str, Any], fingerprint: str) -> bytes:
    """The hash of a problem, 32 bytes: the application, all options of the problem, and the kind of fingerprints."""
    text = json.dumps([app, problem_options, fingerprint], sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(_PREFIX + text.encode()).digest()


def next_head(previous: bytes, step: int, digests: bytes, kept: bytes, problem: bytes) -> bytes:
    """The head after `step`, 32 bytes. `digests`: of all elements of all ranks, concatenated in any order; `kept`: the
    hash of the checkpoint, or of the final state."""
    words = np.frombuffer(digests, ">u8").reshape(-1, DIGEST // 8)
    ordered = words[np.lexsort(words.T[::-1])]  # big-endian words sort as their bytes do
    hashed = hashlib.sha256(_PREFIX + previous + step.to_bytes(8, "little", signed=True))
    for part in (ordered.tobytes(), kept, problem):
        hashed.update(part)
    return hashed.digest()


def hash_of_checkpoint(attributes: Mapping[str, Any], arrays: Mapping[str, np.ndarray]) -> bytes:
    """SHA-256 of the contents of a checkpoint, 32 bytes, independent of its storage. Leaves out its head and its
    repeat, so that equal states of all repeats have one hash."""
    kept = {key: value for key, value in attributes.items() if key not in ("chain", "repeat")}
    hashed = hashlib.sha256(_PREFIX + json.dumps(kept, sort_keys=True).encode())
    for name in sorted(arrays):
        little = np.ascontiguousarray(arrays[name], arrays[name].dtype.newbyteorder("<"))
        hashed.update(json.dumps([name, little.dtype.str, little.shape]).encode() + b"\n")
        hashed.update(little.reshape(-1).view(np.uint8).data)
    return hashed.digest()


def hash_of_state(fingerprint: str) -> bytes:
    """SHA-256 of the fingerprint of a final state in result.json, 32 bytes."""
    return hashlib.sha256(_PREFIX + b"state\n" + fingerprint.encode()).digest()


def _prefix(table: str, name: str, width: int) -> bytes:
    """The bytes hashed before the rows of an element, which have `width` bytes each."""
    return json.dumps([table, name, width]).encode() + b"\n"


def _packed(table: str, columns: Mapping[str, np.ndarray], keep: np.ndarray) -> np.ndarray:
    """The hashed columns of the rows `keep`, as a structured array without gaps."""
    hashed = [(key, dtype, columns[key].shape[1:]) for key, dtype in HASHED[table]]
    packed = np.empty(len(keep), [("block", "<i4"), *hashed])
    packed["block"] = columns["block"][keep] if "block" in columns else -1
    for key, _ in HASHED[table]:
        packed[key] = columns[key][keep]
    return packed
