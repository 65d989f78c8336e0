"""Builds hash trees over the rows of a run: two runs are compared by hashes, and by rows only where hashes differ.

Rows of values and fingerprints are sorted by (repeat, step, name, occurrence, block). A leaf holds the rows of one
(repeat, step, name, occurrence) with LEAF neighbouring block numbers. The hash of a set of rows is the sum, modulo
2^64, of one well-mixed word of each row (AdHash: Bellare & Micciancio 1997). Two such sums make 128 bits. One NumPy
expression computes the sums of all leaves. Like the fingerprints, the hash finds differences; it is no proof against
forgery (Merkle 1987 is).
"""

from __future__ import annotations

import numpy as np

from analysis.load.keys import changes

LEAF = 256  # blocks

# The columns of a leaf. `begin`, `rows`: its first row and the number of its rows; `keys`: hash of its block numbers;
# `hi`, `lo`: hash of its block numbers and bits.
PLACE = ("repeat", "step", "name", "occurrence")
LEAVES = {"repeat": "int32", "step": "int32", "name": "int32", "occurrence": "int32", "seq": "int32", "leaf": "int32",
          "begin": "int64", "rows": "int64", "keys": "uint64", "hi": "uint64", "lo": "uint64"}  # fmt: skip
HASHES = ("keys", "hi", "lo")


def leaves(columns: dict[str, np.ndarray], payload: tuple[str, ...]) -> dict[str, np.ndarray]:
    """The leaves over sorted rows: columns LEAVES, in the order of the rows.

    `columns` has PLACE, `block`, `seq` and the `payload`: one or two columns of 64 bits."""
    leaf = columns["block"] // LEAF
    first = np.flatnonzero(changes(*(columns[key] for key in PLACE), leaf))
    tree = {key: columns[key][first].astype(LEAVES[key], copy=False) for key in (*PLACE, "seq")}
    tree |= {"leaf": leaf[first], "begin": first, "rows": np.diff(first, append=len(leaf))}
    block = columns["block"].astype(np.uint64)
    words = [columns[key].view(np.uint64) for key in payload]
    keys = _mixed(block)
    hi = _mixed(words[0] ^ keys)
    lo = _mixed((words[1] if len(words) > 1 else words[0]) + hi)
    for name, word in zip(HASHES, (keys, hi, lo), strict=True):
        tree[name] = np.add.reduceat(word, first) if len(first) else np.empty(0, np.uint64)
    return {key: tree[key] for key in LEAVES}


def _mixed(words: np.ndarray) -> np.ndarray:
    """uint64 hashes of uint64 `words`: each bit depends on all bits of the word (the finaliser of SplitMix64: Steele,
    Lea & Flood 2014)."""
    mixed = words + np.uint64(0x9E3779B97F4A7C15)
    mixed ^= mixed >> np.uint64(30)
    mixed *= np.uint64(0xBF58476D1CE4E5B9)
    mixed ^= mixed >> np.uint64(27)
    mixed *= np.uint64(0x94D049BB133111EB)
    mixed ^= mixed >> np.uint64(31)
    return mixed
