"""GraphSAGE (Hamilton et al. 2017): two layers, each of a node and the mean of its neighbours, normalised to length 1.

It uses nodes in the place of images: see `miniapps.training.graphs`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from kernels.guarantees import ChoiceError
from miniapps.runner.config import option
from miniapps.training.graphs import cora
from miniapps.training.graphs.cora import CLASSES, COUNTS, EDGES, NODES, WORDS, Papers
from miniapps.training.models import ACTIVATION, Hidden, ParallelModel, Shapes

if TYPE_CHECKING:
    from miniapps.training.graphs.fields import GraphNetwork

AGGREGATIONS = ("sorted", "exact", "atomic", "emulated")


@dataclass
class Options(Hidden):
    """The choice and the additions of neighbours."""

    neighbours: int = option(
        0,
        help="sampled neighbours of a paper, at most, drawn again in each epoch; 0: all",
        minimum=0,
        maximum=2**20,
    )
    second_neighbours: int = option(
        0, help="sampled neighbours of each neighbour, at most; 0: all", minimum=0, maximum=2**20
    )
    aggregate: str = option(
        "sorted",
        help="order in which neighbours, and in the backward pass gradients, are added; emulated: an order of arrival "
        "drawn from seeds.order",
        choices=AGGREGATIONS,
        role="method",
        flag="--aggregate",
    )
    aggregate_inference: str = option(
        "same",
        help="order in which evaluations add neighbours; same: the order of --aggregate",
        choices=("same", *AGGREGATIONS),
        role="method",
        flag="--aggregate-inference",
    )


class Sage(ParallelModel):
    """Two layers that add the features of neighbours in a graph."""

    OPTIONS = Options
    DATA = ("cora",)
    USUAL = "cora"

    def shapes(self, sizes, edge: int) -> Shapes:
        of: Shapes = {}
        for name, inner, outer in (("layer1", edge, sizes.hidden), ("layer2", sizes.hidden, CLASSES)):
            of |= {
                f"{name}.neighbours": (outer, inner),
                f"{name}.own": (outer, inner),
                f"{name}.bias": (outer,),
            }
        return of

    def edge(self, data: str) -> int:
        return WORDS

    def counts(self, data: str) -> tuple[int, int]:
        return COUNTS

    def load(self, config: Any) -> Papers:
        return cora.load(config.data.dir, config.data.features)

    def network(self, config: Any, weights: Sequence[np.ndarray], data: Any, most: int) -> GraphNetwork:
        from miniapps.training.graphs.fields import GraphNetwork
        from miniapps.training.graphs.neighbours import Neighbours

        model, seeds, graph = config.model, config.seeds, data.graph
        drawn = None
        if model.neighbours or model.second_neighbours:
            every = len(graph.neighbours)
            steps = max(1, len(data.labels) // config.training.batch)
            most_of = model.neighbours or every, model.second_neighbours or every
            drawn = Neighbours(graph, most_of, seeds.neighbours, steps)
        how = model.aggregate, seeds.order, drawn, model.aggregate_inference
        return GraphNetwork(forward, weights, most, graph, *how)

    def memory(self, config: Any, samples: int) -> int:
        hidden = config.model.hidden
        papers = 4 * (2 * NODES + EDGES) * WORDS + ACTIVATION * (NODES + EDGES) * hidden
        return papers + ACTIVATION * samples * 4 * hidden

    def complete(self, config: Any) -> None:
        if config.model.aggregate_inference == "same":
            config.model.aggregate_inference = config.model.aggregate

    def validate(self, config: Any, options: Any) -> None:
        """Raise ChoiceError for an aggregation below the guarantee."""
        for flag, order in (
            ("--aggregate", config.model.aggregate),
            ("--aggregate-inference", config.model.aggregate_inference),
        ):
            if order == "atomic" and options.guarantee != "none":
                raise ChoiceError(
                    f"{flag} atomic meets guarantee none, below {options.guarantee}: threads add in any order; choose "
                    "sorted or exact, or emulated, whose order a seed draws"
                )


def forward(tensors, field, mask=None):
    """The logits of the nodes of a `Field`; `mask` (nodes of the graph, hidden)."""
    from torch.nn.functional import relu

    h = relu(layer(field.features, field.first, *tensors[:3]))
    if mask is not None:
        h = h * mask[field.hidden]
    return layer(h, field.second, *tensors[3:])


def layer(x, hood, of_neighbours, of_own, bias):
    """W1 mean(neighbours) + b + W2 x, divided by its length, for the output nodes of a `Hood`."""
    from torch.nn.functional import linear, normalize

    from kernels.torchops.alternatives.operators import index_select
    from kernels.torchops.alternatives.reductions import segment_sum

    sums = segment_sum(
        index_select(x, 0, hood.sources, order=hood.order),
        index=hood.targets,
        bins=hood.count,
        order=hood.order,
    )
    own = linear(x[hood.own], of_own)
    return normalize(linear(sums / hood.degrees, of_neighbours, bias) + own)


MODEL = Sage()
