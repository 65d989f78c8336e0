"""The chain of a run: heads, each of which vouches for all that was recorded up to a step, whoever recorded it.

The rows of a name and block between two heads are one element, expanded to 1,024 integers of 16 bits. Elements are
added without carry (LtHash: Bellare & Micciancio 1997; Lewi, Kim, Maykov, Weis 2019), so that neither the order of
blocks nor their owners enter. A head is the SHA-256 of the one before, the step, this sum, the hash of the checkpoint,
and the hash of the problem. Under `layout` the heads of a problem are therefore the same on any number of ranks.

Times are outside: events and usage. So is what depends on owners or on a clock: choices, records of what passes between
states (`trace.records.PASSING`, NODE), ranks that were found wrong. A name and block has one owner between two heads.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from miniapps.trace.records import CHAIN, INPUT, WRONG, is_state

LANES = 1024
TABLES = ("fingerprints", "values", "order")
HEAD, CHECKPOINT, BEGIN = f"{CHAIN}head", f"{CHAIN}checkpoint", f"{CHAIN}begin"  # names of rows of rank 0
NO_CHECKPOINT = bytes(32)
_VERSION = b"fpna-chain-1\n"


@dataclass(frozen=True)
class Mark:
    """A head of repeat `repeat` after all rows of steps up to `step`; `checkpoint`: the hash of that which was written
    with it, empty at the end of a repeat. Both in hex."""

    repeat: int
    step: int
    head: str
    checkpoint: str = ""


class Rows:
    """The sum over the rows that one process recorded since the last head."""

    def __init__(self) -> None:
        self._elements: dict[tuple[str, int, int], Any] = {}
        self._counted: list[bool] = []
        self.latest = -1  # step of any row that was added
        self.after = -1  # rows of steps up to this one are outside, as those that a restarted run begins with

    def add(self, table: str, columns: Mapping[str, np.ndarray], names: list[str]) -> None:
        """Add rows of one repeat in the order in which they were recorded; `name` counts in `names`."""
        if table not in TABLES:
            return
        self._counted += [counted(name) for name in names[len(self._counted) :]]
        name, step = columns["name"], ends_in(table, columns["step"])
        block = columns.get("block", np.full(len(name), -1, np.int32))
        keep = np.array(self._counted, bool)[name] & (step > self.after)
        if not keep.any():
            return
        self.latest = max(self.latest, int(step[keep].max()))
        packed = _packed(table, columns)
        width = packed.shape[1]
        order = np.flatnonzero(keep)
        order = order[np.lexsort((block[order], name[order]))]
        text = packed[order].tobytes()
        name, block = name[order], block[order]
        new = np.flatnonzero((np.diff(name, prepend=-1) != 0) | (np.diff(block, prepend=-2) != 0))
        ends = [*new[1:].tolist(), len(order)]
        keys = zip(name[new].tolist(), block[new].tolist(), strict=True)
        for (code, number), i, j in zip(keys, new.tolist(), ends, strict=True):
            element = self._elements.get((table, code, number))
            if element is None:
                prefix = json.dumps([table, names[code], number, width]).encode() + b"\n"
                element = self._elements[table, code, number] = hashlib.shake_128(prefix)
            element.update(text[i * width : j * width])

    def take(self) -> np.ndarray:
        """uint16 (LANES,): the sum; no rows are left afterwards."""
        total = np.zeros(LANES, np.uint16)
        for element in self._elements.values():
            total += np.frombuffer(element.digest(2 * LANES), "<u2")
        self._elements.clear()
        return total


def ends_in(table: str, step: np.ndarray) -> np.ndarray:
    """The steps whose heads are over rows: orders are recorded when the next step begins, and belong to its head."""
    return step + 1 if table == "order" else step


def counted(name: str) -> bool:
    """Whether rows of that name are in the chain."""
    return (is_state(name) or name.startswith(INPUT)) and not name.startswith(CHAIN) and name != WRONG


def problem_of(app: str, problem_options: Mapping[str, Any], fingerprint: str) -> bytes:
    """The hash of a problem, 32 bytes: its options, all of them, and how fingerprints are computed."""
    text = json.dumps([app, problem_options, fingerprint], sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(_VERSION + text.encode()).digest()


def next_head(previous: bytes, step: int, total: np.ndarray, checkpoint: bytes, problem: bytes) -> bytes:
    """The head, 32 bytes, after `step`, of the sum of all ranks (uint16 (LANES,)) and the `checkpoint`'s hash."""
    words = np.ascontiguousarray(total, "<u2").tobytes()
    return hashlib.sha256(
        _VERSION + previous + step.to_bytes(8, "little", signed=True) + words + checkpoint + problem
    ).digest()


def hash_of_checkpoint(attributes: Mapping[str, Any], arrays: Mapping[str, np.ndarray]) -> bytes:
    """32 bytes: SHA-256 of what a checkpoint holds, however it is stored; without the head in it, and without its
    repeat, so that repeats of one state have one hash."""
    kept = {key: value for key, value in attributes.items() if key not in ("chain", "repeat")}
    hashed = hashlib.sha256(_VERSION + json.dumps(kept, sort_keys=True).encode())
    for name in sorted(arrays):
        little = np.ascontiguousarray(arrays[name], arrays[name].dtype.newbyteorder("<"))
        hashed.update(json.dumps([name, little.dtype.str, little.shape]).encode() + b"\n")
        hashed.update(little.reshape(-1).view(np.uint8).data)
    return hashed.digest()


def _packed(table: str, columns: Mapping[str, np.ndarray]) -> np.ndarray:
    """uint8 (rows, width): what of each row is hashed beside name and block."""
    step = np.ascontiguousarray(columns["step"], "<i4")
    if table == "fingerprints":
        parts = [np.ascontiguousarray(columns[key], "<u8") for key in ("hi", "lo")]
    elif table == "values":
        parts = [np.ascontiguousarray(columns["value"], "<f8")]
    else:
        parts = [np.ascontiguousarray(columns["ranks"], "<u2")]
    rows = len(step)
    return np.concatenate([part.view(np.uint8).reshape(rows, -1) for part in (step, *parts)], axis=1)
