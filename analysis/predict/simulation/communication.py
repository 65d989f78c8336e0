"""Costs of a target's waits beyond local work, for reductions, gathers and exchanges, and the partners of each wait."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from analysis.predict.costs.collectives import Collectives
from analysis.predict.simulation.target import Target
from miniapps.trace.schema import COLLECTIVE

ITEMSIZES = {"float16": 2, "bfloat16": 2, "float32": 4, "float64": 8, "int64": 8}


class Communication:
    """The costs of a target's waits beyond local work, and the partners that each rank waits for."""

    def __init__(self, target: Target, prices: Collectives | None):
        self._target, self._prices = target, prices
        self._known: dict[tuple[str, int], tuple[np.ndarray, np.ndarray | None]] = {}
        attributes = target.program.attributes
        self._reductions = {each["region"]: each for each in attributes.get("reductions", {}).values()}
        self._messages = attributes.get("messages", {})

    def of(self, name: str, kind: str, nbytes: float) -> tuple[np.ndarray, np.ndarray | None]:
        """(seconds by rank, partners or None) of a wait in the region `name` with `nbytes` bytes."""
        key = name, int(nbytes)
        if key not in self._known:
            self._known[key] = self._of(name, kind, nbytes)
        return self._known[key]

    def _of(self, name: str, kind: str, nbytes: float) -> tuple[np.ndarray, np.ndarray | None]:
        size, prices = self._target.size, self._prices
        if size == 1 or prices is None:
            return np.zeros(size), None
        if kind != COLLECTIVE:
            return self._exchange(name)
        facts = self._reductions.get(name)
        if facts is None:
            return np.full(size, prices.gather(nbytes * self._target.program.size, size)), None
        label = self._target.label_of(facts)
        itemsize, elements = ITEMSIZES.get(facts.get("dtype", ""), 8), math.prod(facts.get("shape", []))
        # A trace states the most contributions of a rank; ranks own blocks evenly.
        contributions = -(-facts.get("contributions", 1) * self._target.program.size // size)
        return np.full(size, prices.allreduce(label, elements, itemsize, size, contributions)), None

    def _exchange(self, name: str) -> tuple[np.ndarray, np.ndarray]:
        size, prices = self._target.size, self._prices
        assert prices is not None
        plans = [each["between"] for each in self._messages.get(name, []) if each.get("between")]
        if plans and self._target.blocks:
            traffic = [between_ranks(plan, self._target.owners, size) for plan in plans]
            nbytes = np.mean([matrix.sum(axis=1) for matrix in traffic], axis=0)
            joined = np.sum(traffic, axis=0) > 0
        else:
            prices.extrapolated[f"bytes of {name}, unknown on other ranks"] = None
            nbytes, joined = np.zeros(size), np.zeros((size, size), bool)
            ring = np.arange(size)
            joined[ring, (ring + 1) % size] = joined[(ring + 1) % size, ring] = True
            np.fill_diagonal(joined, False)
        joined |= joined.T
        width = int(joined.sum(axis=1).max())
        partners = np.tile(np.arange(size)[:, None], (1, width + 1))
        for rank in range(size):
            others = np.flatnonzero(joined[rank])
            partners[rank, : len(others)] = others
        return prices.exchange(nbytes, joined.sum(axis=1)), partners


def between_ranks(plan: Mapping[str, Any], owners: np.ndarray, size: int) -> np.ndarray:
    """(size, size) bytes that each rank sends to each, from a plan between blocks (`miniapps.trace.head.Between`); rank
    owners[b] has block b. If there are more or fewer blocks than in the plan, the number of rows of blocks changes."""
    columns = plan["columns"]
    rows = max(1, len(owners) // columns)
    traffic = np.zeros((size, size))
    block = np.arange(rows * columns)
    j, i = np.divmod(block, columns)
    for dj, di, nbytes in plan["bytes"]:
        other = (j + dj) % rows * columns + (i + di) % columns
        apart = owners[block] != owners[other]
        np.add.at(traffic, (owners[other[apart]], owners[block[apart]]), nbytes)
    return traffic
