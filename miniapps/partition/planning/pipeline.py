"""Pipelines (GPipe, arXiv 1811.06965; GSPMD section 3.3): the stage of every operation, from the layers of a model.

    axis = staged(graph, layers, 4)              # 4 stages of neighbouring layers
    found = pipelined(graph, axis, layers)       # the stages and the task of each operation

An operation of the forward pass belongs to the stage of the last layer on which it depends. Its backward operations
belong to a stage that has their operands, the parameters and the saved values. A parameter belongs to the first stage
that reads it; its gradient is sent there. Operations that only move elements, and those that depend on inputs or on
parameters alone, are repeated at every stage that reads them. Values that another stage reads are sent there once.

All of this decides where and when an operation is computed, and no bit.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate

from miniapps.partition.cuts.axes import Axis, AxisError
from miniapps.partition.cuts.steps import BACKWARD, FORWARD, HEAD, STAGE, TAIL, Turn
from miniapps.partition.graphs.flops import node_flops
from miniapps.partition.graphs.graph import Graph, Node
from miniapps.partition.graphs.repeat import reached
from miniapps.partition.graphs.simplify import operation

MOVING = ("view", "permute", "expand", "slice")


@dataclass(frozen=True)
class Pipelined:
    """`stages` of each value, ascending; `nodes`: the stages at which an operation is computed; `tasks` by node."""

    stages: dict[str, tuple[int, ...]]
    nodes: dict[str, tuple[int, ...]]
    tasks: dict[str, Turn]


def staged(graph: Graph, layers: Sequence[str], count: int) -> Axis:
    """The axis `stage` over `layers` (prefixes of modules, first to last): `count` stages of equally many neighbouring
    layers, or else with the least work in the longest stage (`graphs.flops`). Raises AxisError for more stages than
    layers."""
    if count > len(layers):
        raise AxisError(
            f"axis {STAGE}: {count} stages for {len(layers)} layers; choose at most {len(layers)} stages, or a model "
            "with more layers"
        )
    if len(layers) % count == 0:
        each = len(layers) // count
        return Axis(STAGE, tuple(range(0, len(layers) + 1, each)))
    shapes = {name: tensor.shape for name, tensor in graph.tensors().items()}
    work = [1] * len(layers)
    for node in graph.nodes:
        # Modules before the first layer count for it, those after the last layer for the last.
        at = layer_of(node.where, layers)
        work[at if at is not None else 0 if node.target.startswith("aten.embedding") else -1] += node_flops(
            node, shapes
        )
    return Axis(STAGE, divided(work, count))


def divided(work: Sequence[int], count: int) -> tuple[int, ...]:
    """The starts of `count` runs of neighbours whose largest sum of `work` is least; longer runs first."""
    ends = [0, *accumulate(work)]
    best: dict[tuple[int, int], tuple[int, tuple[int, ...]]] = {}
    best |= {(1, end): (ends[end], (0,)) for end in range(1, len(work) + 1)}
    for runs in range(2, count + 1):
        for end in range(runs, len(work) + 1):
            best[runs, end] = min(
                (
                    (
                        max(best[runs - 1, begin][0], ends[end] - ends[begin]),
                        (*best[runs - 1, begin][1], begin),
                    )
                    for begin in range(end - 1, runs - 2, -1)
                ),
                key=lambda found: found[0],
            )
    return (*best[count, len(work)][1], len(work))


def layer_of(module: str, layers: Sequence[str]) -> int | None:
    """The number of the layer to which a module or parameter belongs."""
    for k, layer in enumerate(layers):
        if module == layer or module.startswith(f"{layer}."):
            return k
    return None


def pipelined(graph: Graph, axis: Axis, layers: Sequence[str]) -> Pipelined:
    """The stages and the task of each operation."""
    return Assigner(graph, axis, layers).found()


class Assigner:
    """The stages found so far. `forward`: operations on which the loss depends."""

    def __init__(self, graph: Graph, axis: Axis, layers: Sequence[str]):
        self.graph, self.axis = graph, axis
        self.given, self.learned = reached(graph)
        self.read = graph.readers()
        self.made = {tensor.name: node for node in graph.nodes for tensor in node.results}
        by_layer = [next(b for b in range(axis.blocks) if k < axis.starts[b + 1]) for k in range(axis.extent)]
        self.of_layer: dict[
            str, int
        ] = {}  # the stage of a parameter of a layer, and of what depends on it alone
        for source in graph.sources:
            at = layer_of(source.key, layers) if source.kind in ("parameter", "buffer") else None
            if at is not None:
                self.of_layer[source.tensor.name] = by_layer[at]
        self.forward = forward_of(graph)
        self.stage: dict[str, int] = {}  # of values that depend on inputs and parameters
        self.near: dict[str, set[int]] = {}  # stages that have a value after the forward pass
        self.home: dict[str, int] = {}  # of parameters and buffers

    def found(self) -> Pipelined:
        """Returns all stages and tasks."""
        self.go_forward()
        self.find_near()
        forced = self.own_gradients()
        self.go_backward(forced)
        stages, nodes = self.spread()
        return Pipelined(stages, nodes, tasks_of(self.graph, self.forward))

    def active(self, node: Node) -> bool:
        """Whether the results of a node depend on inputs and on parameters."""
        name = node.results[0].name
        return name in self.given and name in self.learned

    def go_forward(self) -> None:
        """Assign the operations of the forward pass."""
        for node in self.graph.nodes:
            if not self.active(node):
                layers = [self.of_layer[x] for x in node.operands() if x in self.of_layer]
                if layers:
                    self.of_layer.update((tensor.name, max(layers)) for tensor in node.results)
            elif node.name in self.forward:
                before = [self.stage.get(x, self.of_layer.get(x, 0)) for x in node.operands()]
                self.stage.update((tensor.name, max(before)) for tensor in node.results)

    def find_near(self) -> None:
        """Find the stages that have each value of the forward pass, and the homes of parameters."""
        for node in reversed(self.graph.nodes):
            own = {self.stage[t.name] for t in node.results if t.name in self.stage}
            if node.name not in self.forward:
                continue
            if not own:  # of parameters alone: at its readers
                own = set().union(*(self.near.get(t.name, set()) for t in node.results))
            for name in (*node.operands(), *(tensor.name for tensor in node.results)):
                if name in self.learned:
                    self.near.setdefault(name, set()).update(own)
        last = self.axis.blocks - 1
        for source in self.graph.sources:
            if source.kind in ("parameter", "buffer"):
                name = source.tensor.name
                self.home[name] = min(self.near.get(name) or {min(self.of_layer.get(name, 0), last)})

    def own_gradients(self) -> dict[str, int]:
        """The operations that end in a parameter's gradient, by node: they belong to its home, where this home has
        their saved operands."""
        forced: dict[str, int] = {}
        by_key = {s.key: self.home[s.tensor.name] for s in self.graph.sources if s.kind == "parameter"}
        for key, name in self.graph.gradients:
            waiting = [name]
            while waiting:
                node = self.made.get(waiting.pop())
                if node is None or node.name in self.forward or len(node.results) > 1:
                    continue
                alone = all(len(self.read.get(x, ())) == 1 for x in node.operands())
                if operation(node.target) == "add" and alone:
                    waiting += node.operands()
                    continue
                saved = [self.near[x] for x in node.operands() if x in self.near]
                if all(by_key[key] in near for near in saved):
                    forced[node.name] = by_key[key]
                if operation(node.target) in MOVING and alone:
                    waiting += node.operands()
        return forced

    def go_backward(self, forced: Mapping[str, int]) -> None:
        """Assign the other operations that depend on inputs and parameters."""
        for node in self.graph.nodes:
            if not self.active(node) or node.name in self.forward:
                continue
            saved = [self.near[x] for x in node.operands() if x in self.near]
            before = [self.stage[x] for x in node.operands() if x in self.stage and x not in self.near]
            found = forced.get(node.name)
            if found is None:
                found = chosen(saved, before)
            self.stage.update((tensor.name, found) for tensor in node.results)

    def spread(self) -> tuple[dict[str, tuple[int, ...]], dict[str, tuple[int, ...]]]:
        """Returns the stages of each value, and of each node."""
        stages: dict[str, set[int]] = {}
        nodes: dict[str, tuple[int, ...]] = {}
        leaving = set(self.graph.outputs())
        for node in reversed(self.graph.nodes):
            wanted: set[int] = set().union(*(stages.get(tensor.name, set()) for tensor in node.results))
            moves = operation(node.target) in MOVING and not leaving.intersection(
                t.name for t in node.results
            )
            if self.active(node) and not (moves and wanted):
                at = {self.stage[node.results[0].name]}
            else:
                at = wanted or {0}
            nodes[node.name] = tuple(sorted(at))
            for tensor in node.results:
                stages[tensor.name] = set(at)
            for name in node.operands():
                if name not in self.made or not self.active(self.made[name]) or self.moves(name):
                    stages.setdefault(name, set()).update(at)
        found = {name: tuple(sorted(at)) for name, at in stages.items()}
        for source in self.graph.sources:
            name = source.tensor.name
            found[name] = (self.home[name],) if name in self.home else found.get(name, (0,))
        return found, nodes

    def moves(self, name: str) -> bool:
        """Whether the value is the result of an operation that only moves elements."""
        return operation(self.made[name].target) in MOVING


def chosen(saved: Sequence[set[int]], before: Sequence[int]) -> int:
    """The stage of a backward operation. `saved`: the stages that have each value of the forward pass that it reads;
    `before`: the stages of the gradients that it reads."""
    base = min(before, default=None)
    both = set.intersection(*saved) if saved else set()
    if not saved:
        return base if base is not None else 0
    if not both:
        return max(min(near) for near in saved)
    if base is None:
        return max(both)
    return max((stage for stage in both if stage <= base), default=max(both))


def forward_of(graph: Graph) -> set[str]:
    """The operations on which the loss depends."""
    wanted, found = {graph.loss}, set()
    for node in reversed(graph.nodes):
        if not wanted.isdisjoint(tensor.name for tensor in node.results):
            found.add(node.name)
            wanted.update(node.operands())
    return found


def tasks_of(graph: Graph, forward: set[str]) -> dict[str, Turn]:
    """The task of each operation. Without micro-batches all operations that vary belong to micro-batch 0."""
    alone = all(node.micro is None for node in graph.nodes)
    given, _ = reached(graph)
    counts = 1 + max((node.micro or 0 for node in graph.nodes), default=0)
    after: set[str] = set()  # values that depend on operations of a micro-batch
    tasks: dict[str, Turn] = {}
    for node in graph.nodes:
        passes = FORWARD if node.name in forward else BACKWARD
        varies = node.micro is not None or (alone and node.results[0].name in given)
        if varies:
            tasks[node.name] = (node.micro or 0, passes)
        elif after.intersection(node.operands()):
            tasks[node.name] = (counts, TAIL)
        else:
            tasks[node.name] = (-1, HEAD)
        if varies or tasks[node.name][1] == TAIL:
            after.update(tensor.name for tensor in node.results)
    return tasks
