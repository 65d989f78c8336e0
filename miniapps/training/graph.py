"""Losses and gradients of micro-batches of nodes of a graph, by torch, on the CPU.

A node's logits need its neighbours, and theirs: its field of two hops. A micro-batch is computed on the field of its
nodes alone, whoever owns it, so that no rank waits for another before the gradients are added, and its gradient does
not depend on who owns what. Fields overlap; what lies in several is computed several times.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import torch

from miniapps.training.data import Graph
from miniapps.training.gradient import Network
from miniapps.training.seeds import ARRIVAL, generator


@dataclass(frozen=True)
class Hood:
    """How a layer goes from the nodes that it needs to those that it gives: message i goes from sources[i] to
    targets[i], in ascending order of both; numbers are places among these nodes."""

    sources: torch.Tensor
    targets: torch.Tensor
    own: torch.Tensor  # where the nodes given are among those needed
    degrees: torch.Tensor  # (count, 1) float32, at least 1
    order: str  # in which messages are added up, there and back

    @property
    def count(self) -> int:
        """Nodes that the layer gives."""
        return len(self.own)


@dataclass(frozen=True)
class Field:
    """What the logits of some nodes take."""

    features: torch.Tensor  # of the nodes that the first layer needs
    first: Hood
    hidden: torch.Tensor  # numbers in the graph of the nodes between the layers
    second: Hood


class GraphNetwork(Network):
    """A `Network` whose images are nodes of `graph`; `aggregate`: the order of additions, a `config.AGGREGATIONS`.

    `seed`: of orders of arrival; each call draws them by what `begin` was told.
    """

    def __init__(
        self,
        forward: Callable,
        weights: Sequence[np.ndarray],
        most: int,
        graph: Graph,
        aggregate: str,
        seed: int,
    ):
        super().__init__(forward, weights, (), most, 1)
        self._graph, self._aggregate, self._seed = graph, aggregate, seed
        self.begin(0, 0)

    def begin(self, step: int, block: int) -> None:
        """Say which micro-batch of which step comes next."""
        self._now = step, block

    def _copied(self, images, labels):
        n = len(images)
        self._labels[:n] = labels
        return self.field(images), torch.from_numpy(self._labels[:n])

    def field(self, nodes: np.ndarray) -> Field:
        """The field of `nodes`, which are all different."""
        orders = [self._aggregate] * 2
        if self._aggregate == "emulated":
            drawn = generator(self._seed, ARRIVAL, *self._now).integers(2**63, size=2)
            orders = [f"emulated:{seed}" for seed in drawn]
        hidden, second = hood(self._graph, nodes, orders[1])
        needed, first = hood(self._graph, hidden, orders[0])
        features = torch.from_numpy(self._graph.features[needed])
        return Field(features, first, torch.from_numpy(hidden), second)


def hood(graph: Graph, nodes: np.ndarray, order: str) -> tuple[np.ndarray, Hood]:
    """The nodes that a layer needs for `nodes`, int64, ascending, and how it goes from these to `nodes`."""
    begins, ends = graph.starts[nodes].astype(np.int64), graph.starts[nodes + 1].astype(np.int64)
    degrees = ends - begins
    targets = np.repeat(np.arange(len(nodes)), degrees)
    within = np.arange(degrees.sum()) - np.repeat(np.cumsum(degrees) - degrees, degrees)
    sources = graph.neighbours[np.repeat(begins, degrees) + within]
    needed = np.union1d(sources, nodes).astype(np.int64)
    given = Hood(
        torch.from_numpy(np.searchsorted(needed, sources)),
        torch.from_numpy(targets),
        torch.from_numpy(np.searchsorted(needed, nodes)),
        torch.from_numpy(np.maximum(degrees, 1).astype(np.float32)[:, None]),
        order,
    )
    return needed, given
