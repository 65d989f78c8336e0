"""The chain of a run: heads, each of which vouches for all that was recorded up to a step, whoever recorded it.

The rows of a name and block between two heads are one element, of which the rank that recorded them has the SHA-256. A
head is the SHA-256 of the one before, the step, these digests in the order of their bytes, the hash of the checkpoint
(at the end of a repeat that of the final state, as result.json has it), and the hash of the problem. So neither the
order of blocks nor their owners enter, and under `layout` the heads of a problem are the same on any number of ranks.

Digests that are gathered and sorted stand for the set of elements as SHA-256 does for one. A sum of hashes would travel
by an all-reduce of fixed length instead, but is safe only where each hash is long (LtHash: 2 kB), and then making
them costs ten times as much as one SHA-256; here rank 0 takes in 32 bytes for each name and block and head.

Times are outside: events and usage. So is what depends on owners or on a clock: choices, records of what passes between
states (`trace.records.PASSING`, NODE), ranks that were found wrong. A name and block has one owner between two heads.
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

VERSION = "fpna-chain-3"  # the attribute `chain` of a trace; the heads of another version are others
DIGEST = 32  # bytes
HASHED = {
    "fingerprints": (("step", "<i4"), ("hi", "<u8"), ("lo", "<u8")),
    "values": (("step", "<i4"), ("value", "<f8")),
    "order": (("step", "<i4"), ("ranks", "<u2")),
}  # columns beside name and block
TABLES = tuple(HASHED)
# Names of rows of rank 0.
HEAD, CHECKPOINT, STATE, BEGIN = f"{CHAIN}head", f"{CHAIN}checkpoint", f"{CHAIN}state", f"{CHAIN}begin"
_PREFIX = VERSION.encode() + b"\n"
WAITING = 2**17  # rows that are held before they are hashed


@dataclass(frozen=True)
class Mark:
    """A head of repeat `repeat` after all rows of steps up to `step`. `checkpoint`: the hash of the checkpoint that was
    written with it, empty at the end of a repeat; `state`: the hash of the final state, empty elsewhere. All in hex."""

    repeat: int
    step: int
    head: str
    checkpoint: str = ""
    state: str = ""


class Rows:
    """What one process recorded since the last head. `cpu`: seconds of its thread's CPU time that this took so far."""

    def __init__(self) -> None:
        self._waiting: dict[
            str, list[tuple[np.ndarray, np.ndarray]]
        ] = {}  # by table: elements, and their packed rows
        self._count = 0  # of rows that wait
        self._hashes: dict[tuple[str, int], Any] = {}  # of elements
        self._names: list[str] = []
        self._counted = np.empty(0, bool)
        self.latest = -1  # step of any row that was added
        self.after = -1  # rows of steps up to this one are outside, as those that a restarted run begins with
        self.cpu = 0.0

    def add(self, table: str, columns: Mapping[str, np.ndarray], names: list[str]) -> None:
        """Add rows of one repeat in the order in which they were recorded; `name` counts in `names`, of which there may
        be more in later calls."""
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
        """The digests of all elements, DIGEST bytes each; no rows are left afterwards."""
        begin = time.thread_time()
        self._hash()
        digests = b"".join([each.digest() for each in self._hashes.values()])
        self._hashes.clear()
        self.cpu += time.thread_time() - begin
        return digests

    def _hash(self) -> None:
        """Hash the rows that wait, each element in one call."""
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
    """The steps whose heads are over rows: orders are recorded when the next step begins, and belong to its head."""
    return step + 1 if table == "order" else step


def counted(name: str) -> bool:
    """Whether rows of that name are in the chain."""
    return (is_state(name) or name.startswith(INPUT)) and not name.startswith(CHAIN) and name != WRONG


def problem_of(app: str, problem_options: Mapping[str, Any], fingerprint: str) -> bytes:
    """The hash of a problem, 32 bytes: its options, all of them, and how fingerprints are computed."""
    text = json.dumps([app, problem_options, fingerprint], sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(_PREFIX + text.encode()).digest()


def next_head(previous: bytes, step: int, digests: bytes, kept: bytes, problem: bytes) -> bytes:
    """The head, 32 bytes, after `step`, of the elements whose `digests` all ranks took, one after the other in any
    order; `kept`: the hash of the checkpoint, or of the final state."""
    words = np.frombuffer(digests, ">u8").reshape(-1, DIGEST // 8)
    ordered = words[np.lexsort(words.T[::-1])]  # as bytes are compared
    hashed = hashlib.sha256(_PREFIX + previous + step.to_bytes(8, "little", signed=True))
    for part in (ordered.tobytes(), kept, problem):
        hashed.update(part)
    return hashed.digest()


def hash_of_checkpoint(attributes: Mapping[str, Any], arrays: Mapping[str, np.ndarray]) -> bytes:
    """32 bytes: SHA-256 of what a checkpoint holds, however it is stored; without the head in it, and without its
    repeat, so that repeats of one state have one hash."""
    kept = {key: value for key, value in attributes.items() if key not in ("chain", "repeat")}
    hashed = hashlib.sha256(_PREFIX + json.dumps(kept, sort_keys=True).encode())
    for name in sorted(arrays):
        little = np.ascontiguousarray(arrays[name], arrays[name].dtype.newbyteorder("<"))
        hashed.update(json.dumps([name, little.dtype.str, little.shape]).encode() + b"\n")
        hashed.update(little.reshape(-1).view(np.uint8).data)
    return hashed.digest()


def hash_of_state(fingerprint: str) -> bytes:
    """32 bytes: SHA-256 of the fingerprint of a final state, as result.json has it."""
    return hashlib.sha256(_PREFIX + b"state\n" + fingerprint.encode()).digest()


def _prefix(table: str, name: str, width: int) -> bytes:
    """What stands before the rows of an element, of `width` bytes each."""
    return json.dumps([table, name, width]).encode() + b"\n"


def _packed(table: str, columns: Mapping[str, np.ndarray], keep: np.ndarray) -> np.ndarray:
    """What of the rows `keep` is hashed beside the name, as a structure without gaps."""
    hashed = [(key, dtype, columns[key].shape[1:]) for key, dtype in HASHED[table]]
    packed = np.empty(len(keep), [("block", "<i4"), *hashed])
    packed["block"] = columns["block"][keep] if "block" in columns else -1
    for key, _ in HASHED[table]:
        packed[key] = columns[key][keep]
    return packed
