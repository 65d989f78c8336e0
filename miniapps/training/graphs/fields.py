"""Losses and gradients of micro-batches of nodes of a graph, by torch, on the CPU.

A node's logits need its neighbours and their neighbours: its field of two hops. A micro-batch is computed only on the
field of its nodes. So no rank waits for another before the sum of gradients, and gradients do not depend on owners.
Fields overlap, and nodes in several fields are computed several times.
"""

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from enum import Enum

import numpy as np
import torch
from torch.nn.functional import log_softmax

from miniapps.learning.gradients.network import Network
from miniapps.learning.seeds import ANSWERS, ARRIVAL, generator
from miniapps.training.graphs.cora import Graph
from miniapps.training.graphs.neighbours import Neighbours


@dataclass(frozen=True)
class Hood:
    """The messages of a layer from its input nodes to its output nodes: message i goes from sources[i] to targets[i],
    in ascending order of both; numbers are places among the input or output nodes."""

    sources: torch.Tensor
    targets: torch.Tensor
    own: torch.Tensor  # places of the output nodes among the input nodes
    degrees: torch.Tensor  # (count, 1) float32, at least 1
    order: str  # of the additions of messages, forward and backward

    @property
    def count(self) -> int:
        """The number of output nodes."""
        return len(self.own)


@dataclass(frozen=True)
class Field:
    """The inputs for the logits of some nodes."""

    features: torch.Tensor  # of the input nodes of the first layer
    first: Hood
    hidden: torch.Tensor  # numbers in the graph of the nodes between the layers
    second: Hood


class Use(Enum):
    """The use of a field."""

    LEARNING = "learning"
    JUDGING = "judging"  # a loss without learning that decides how learning continues
    INFERENCE = "inference"


class GraphNetwork(Network):
    """A `Network` whose images are nodes of `graph`. `aggregate`: the order of additions, one of AGGREGATIONS;
    `inference`: the order in evaluations, None for the same.

    `seed`: of orders of arrival, which each call draws by its use and the arguments of `begin`. `neighbours`: samples
    neighbours for learning, None for all; evaluations use all neighbours.
    """

    answers_at_once = True

    def __init__(
        self,
        forward: Callable,
        weights: Sequence[np.ndarray],
        most: int,
        graph: Graph,
        aggregate: str,
        seed: int,
        neighbours: Neighbours | None = None,
        inference: str | None = None,
    ):
        # torch imports it at the first call of a foreign operator, which would cost a second in the first step.
        import torch._dynamo  # noqa: F401

        super().__init__(forward, weights, (), most, 1)
        self._graph, self._seed, self._neighbours = graph, seed, neighbours
        self._orders = dict.fromkeys(Use, aggregate) | {Use.INFERENCE: inference or aggregate}
        self._use = Use.JUDGING
        self._ahead: dict[tuple[int, int], Future[Field]] = {}
        self._thread: ThreadPoolExecutor | None = None
        self.begin(0, 0)

    def begin(self, step: int, block: int) -> None:
        """Announce the next micro-batch and its step, or the next block of an evaluation after the step."""
        self._now = step, block

    def ahead(self, step: int, block: int, images: np.ndarray) -> None:
        """Let a thread gather the field of a later micro-batch; the field is the same."""
        if (step, block) not in self._ahead:
            self._thread = self._thread or ThreadPoolExecutor(1)
            self._ahead[step, block] = self._thread.submit(self.field, images, Use.LEARNING, (step, block))

    def dropped(
        self, drawn: Callable[[int, int], np.ndarray], blocks: Sequence[int], micro: int
    ) -> np.ndarray:
        """The dropout masks of all nodes of the graph: a node has the same mask in all fields."""
        return drawn(0, len(self._graph.features))

    def answers(self, step: int) -> np.ndarray:
        """The outputs of all nodes in one call, which costs less than calls for their overlapping fields."""
        nodes = np.arange(len(self._graph.features))
        self.begin(step, len(nodes))  # no block of an evaluation has this number
        return self.outputs(nodes)

    def loss(self, *arguments) -> float:
        with self._used_for(Use.LEARNING):
            return super().loss(*arguments)

    def correct(self, *arguments) -> int:
        with self._used_for(Use.INFERENCE):
            return super().correct(*arguments)

    def outputs(self, nodes: np.ndarray) -> np.ndarray:
        """The logarithms of the probabilities of the classes of `nodes`, float32 (n, classes)."""
        with torch.inference_mode():
            logits = self._forward(self._tensors, self.field(nodes, Use.INFERENCE), None)
            return log_softmax(logits, 1).numpy()

    @contextmanager
    def _used_for(self, use: Use) -> Iterator[None]:
        before, self._use = self._use, use
        try:
            yield
        finally:
            self._use = before

    def _copied(self, images, labels):
        n = len(images)
        self._labels[:n] = labels
        gathered = self._ahead.pop(self._now, None) if self._use is Use.LEARNING else None
        field = gathered.result() if gathered else self.field(images, self._use)
        return field, torch.from_numpy(self._labels[:n])

    def field(self, nodes: np.ndarray, use: Use, now: tuple[int, int] | None = None) -> Field:
        """The field of `nodes`, all different, in the micro-batch `now` (None: the one of `begin`); for learning with
        sampled neighbours."""
        now = now or self._now
        orders = [self._orders[use]] * 2
        if self._orders[use] == "emulated":
            purpose = ANSWERS if use is Use.INFERENCE else ARRIVAL
            drawn = generator(self._seed, purpose, *now).integers(2**63, size=2)
            orders = [f"emulated:{seed}" for seed in drawn]
        kept: list[np.ndarray | None] = [None, None]
        if use is Use.LEARNING and self._neighbours is not None:
            kept = [self._neighbours.kept(now[0], hop) for hop in (0, 1)]
        hidden, second = hood(self._graph, nodes, orders[1], kept[0])
        needed, first = hood(self._graph, hidden, orders[0], kept[1])
        features = torch.from_numpy(self._graph.features[needed])
        return Field(features, first, torch.from_numpy(hidden), second)


def hood(
    graph: Graph, nodes: np.ndarray, order: str, kept: np.ndarray | None = None
) -> tuple[np.ndarray, Hood]:
    """The input nodes of a layer for the output `nodes`, int64, ascending, and its Hood. `kept`: bool (edges of the
    graph,), the edges with messages; None: all."""
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
