"""Sampled neighbours of the nodes of a graph (Hamilton et al. 2017, section 3.1).

The draw is keyed by seed, epoch, hop and edge, so a node has the same neighbours in every field, on any rank.
"""

import numpy as np

from miniapps.learning.seeds import NEIGHBOURS, generator
from miniapps.training.graphs.cora import Graph


class Neighbours:
    """At most `most[0]` neighbours of the requested nodes, and `most[1]` of each neighbour, without repetition; drawn
    again in every epoch of `steps` steps, from 1."""

    def __init__(self, graph: Graph, most: tuple[int, int], seed: int, steps: int):
        self._starts, self._most, self._seed, self._steps = graph.starts.astype(np.int64), most, seed, steps
        self._of_edge = np.repeat(np.arange(len(self._starts) - 1), np.diff(self._starts))
        self._kept: dict[tuple[int, int], np.ndarray] = {}

    def kept(self, step: int, hop: int) -> np.ndarray:
        """bool (edges,): whether each edge, in the order of the graph, leads to a sampled neighbour. `hop` 0: of the
        requested nodes; 1: of their neighbours."""
        key = ((step - 1) // self._steps, hop)
        if key not in self._kept:
            drawn = generator(self._seed, NEIGHBOURS, *key).random(len(self._of_edge))
            order = np.lexsort((drawn, self._of_edge))
            place = (
                np.arange(len(order)) - self._starts[self._of_edge]
            )  # in the drawn order of a node's edges
            kept = np.empty(len(order), bool)
            kept[order] = place < self._most[hop]
            self._kept = {known: edges for known, edges in self._kept.items() if known[0] + 1 >= key[0]}
            self._kept[key] = kept
        return self._kept[key]
