"""Losses and gradients of micro-batches of nodes of a graph, by torch, on the CPU.

A node's logits need its neighbours, and theirs: its field of two hops. A micro-batch is computed on the field of its
nodes alone, whoever owns it, so that no rank waits for another before the gradients are added, and its gradient does
not depend on who owns what. Fields overlap; what lies in several is computed several times.
"""

from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass

import numpy as np
import torch

from miniapps.training.data import Graph
from miniapps.training.gradient import Network
from miniapps.training.neighbours import Neighbours
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

    `seed`: of orders of arrival; each call draws them by what `begin` was told. `neighbours`: which of them are learned
    from, None for all; those of a network that is evaluated are always all.
    """

    def __init__(
        self,
        forward: Callable,
        weights: Sequence[np.ndarray],
        most: int,
        graph: Graph,
        aggregate: str,
        seed: int,
        neighbours: Neighbours | None = None,
    ):
        super().__init__(forward, weights, (), most, 1)
        self._graph, self._aggregate, self._seed, self._neighbours = graph, aggregate, seed, neighbours
        self._learns = False
        self._ahead: dict[tuple[int, int], Future[Field]] = {}
        self._thread: ThreadPoolExecutor | None = None
        self.begin(0, 0)

    def begin(self, step: int, block: int) -> None:
        """Say which micro-batch of which step comes next."""
        self._now = step, block

    def ahead(self, step: int, block: int, nodes: np.ndarray) -> None:
        """Let a thread gather the field of a micro-batch that is to be learned from later: the same field."""
        if (step, block) not in self._ahead:
            self._thread = self._thread or ThreadPoolExecutor(1)
            self._ahead[step, block] = self._thread.submit(self.field, nodes, (step, block), True)

    def loss(self, *arguments) -> float:
        self._learns = True
        try:
            return super().loss(*arguments)
        finally:
            self._learns = False

    def _copied(self, images, labels):
        n = len(images)
        self._labels[:n] = labels
        gathered = self._ahead.pop(self._now, None) if self._learns else None
        field = gathered.result() if gathered else self.field(images, self._now, self._learns)
        return field, torch.from_numpy(self._labels[:n])

    def field(self, nodes: np.ndarray, now: tuple[int, int] | None = None, learns: bool = False) -> Field:
        """The field of `nodes`, which are all different, in the micro-batch `now`, None for that which `begin` told;
        with `learns` of neighbours that are drawn."""
        now = now or self._now
        orders = [self._aggregate] * 2
        if self._aggregate == "emulated":
            drawn = generator(self._seed, ARRIVAL, *now).integers(2**63, size=2)
            orders = [f"emulated:{seed}" for seed in drawn]
        kept: list[np.ndarray | None] = [None, None]
        if learns and self._neighbours is not None:
            kept = [self._neighbours.kept(now[0], hop) for hop in (0, 1)]
        hidden, second = hood(self._graph, nodes, orders[1], kept[0])
        needed, first = hood(self._graph, hidden, orders[0], kept[1])
        features = torch.from_numpy(self._graph.features[needed])
        return Field(features, first, torch.from_numpy(hidden), second)


def hood(
    graph: Graph, nodes: np.ndarray, order: str, kept: np.ndarray | None = None
) -> tuple[np.ndarray, Hood]:
    """The nodes that a layer needs for `nodes`, int64, ascending, and how it goes from these to `nodes`. `kept`: bool
    (edges of the graph,), those that messages go along; None: all."""
    begins, ends = graph.starts[nodes].astype(np.int64), graph.starts[nodes + 1].astype(np.int64)
    degrees = ends - begins
    targets = np.repeat(np.arange(len(nodes)), degrees)
    within = np.arange(degrees.sum()) - np.repeat(np.cumsum(degrees) - degrees, degrees)
    edges = np.repeat(begins, degrees) + within
    if kept is not None:
        edges, targets = edges[kept[edges]], targets[kept[edges]]
        degrees = np.bincount(targets, minlength=len(nodes))
    sources = graph.neighbours[edges]
    needed = np.union1d(sources, nodes).astype(np.int64)
    given = Hood(
        torch.from_numpy(np.searchsorted(needed, sources)),
        torch.from_numpy(targets),
        torch.from_numpy(np.searchsorted(needed, nodes)),
        torch.from_numpy(np.maximum(degrees, 1).astype(np.float32)[:, None]),
        order,
    )
    return needed, given
