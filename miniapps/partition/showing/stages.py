"""Groups a plan into a few stages: operations of one layer and direction whose work the same axes divide.

A new stage begins where the layer of the model changes, or the axes that divide the work. These are the axes that cut
the results of an operation, or over which they are partial. Small values without axes, such as means of channels,
belong to the stage of their operands.
"""

from __future__ import annotations

from collections import Counter as Tally
from dataclasses import dataclass
from math import prod

from miniapps.partition.cuts.mesh import Mesh
from miniapps.partition.cuts.steps import (
    Compute,
    Plan,
    Receive,
    Reduce,
    Reshard,
    Send,
    Step,
    dividing,
    step_operands,
    step_results,
)
from miniapps.partition.showing.staged import GIVEN, LEAVING, Edge, Stage, Stages
from miniapps.partition.showing.traffic import Counter, Traffic

SMALL = 64  # times smaller than the largest value of a plan

Key = tuple[int, str, bool, tuple[str, ...]]  # of a stage: depth, layer, backward, axes


@dataclass
class Trip:
    """The messages of a step, until a stage reads one of their values."""

    kind: str
    axes: tuple[str, ...]
    nbytes: int


class Grouping:
    """The stages of the steps so far. `at`: the stage that computed a value, or to which it was sent."""

    def __init__(self, plan: Plan, mesh: Mesh):
        self.plan, self.counter = plan, Counter(plan, mesh)
        self.forward = _forward(plan)
        self.backward = _backward(plan, self.forward)
        self.learned = {name: key for key, name in plan.gradients}
        for step in plan.steps:
            if not isinstance(step, Compute):
                pairs = zip(step.operands, step.results, strict=True)
                self.learned |= {old: self.learned[new] for old, new in pairs if new in self.learned}
        self.modules: dict[Key, dict[str, None]] = {}
        self.nodes: dict[str, Key] = {}
        self.small = max(prod(value.shape) for value in plan.values.values()) / SMALL
        self.at: dict[str, Key] = {}
        self.late: dict[str, frozenset[str]] = {}  # operations without a stage, on which a value depends
        self.trips: dict[str, Trip] = {}  # of values that no stage has read yet
        self.edges: dict[tuple[Key | None, Key | None, str, tuple[str, ...]], list[int]] = {}

    def add(self, step: Step) -> None:
        """Add the next step."""
        traffic = self.counter.step(step)
        if isinstance(step, Compute):
            self.compute(step, traffic)
        else:
            self.move(step, traffic)

    def move(self, step: Reduce | Reshard | Send | Receive, traffic: Traffic | None) -> None:
        """Add a change of cuts, or a message to another stage of a pipeline: values without messages stay in their
        stage."""
        trip = None if traffic is None else Trip(traffic.kind, traffic.axes, traffic.nbytes)
        for old, new in zip(step.operands, step.results, strict=True):
            if old in self.at:
                self.at[new] = self.at[old]
            if old in self.late:
                self.late[new] = self.late[old]
            if found := trip or self.trips.get(old):
                self.trips[new] = found

    def compute(self, step: Compute, traffic: Traffic | None) -> None:
        """Add an operation: to a stage, or to the stage of its readers later."""
        operands = step_operands(step)
        made = [name for name in operands if name in self.at]
        prepared = step.node not in self.forward and step.node not in self.backward
        if prepared or (not made and (not step.where or step.kernel in ("view", "create"))):
            waiting = frozenset((step.node,)).union(*(self.late.get(name, ()) for name in operands))
            trip = next((self.trips[name] for name in operands if name in self.trips), None)
            for name in step.results:
                self.late[name] = waiting
                if trip is not None:
                    self.trips[name] = trip
            return
        key = self.key(step, made)
        for node in (step.node, *(node for name in operands for node in self.late.get(name, ()))):
            self.nodes.setdefault(node, key)
        inside = self.modules.setdefault(key, {})
        layer, _, module = step.where.rpartition(".")
        if layer == key[1]:
            inside[module] = None
        for name in operands:
            self.arrive(name, key)
        if traffic is not None:
            source = max((self.at[name] for name in made), default=None)
            self.edge(source, key, traffic.kind, traffic.axes, traffic.nbytes)
        for name in step.results:
            self.at[name] = key

    def key(self, step: Compute, made: list[str]) -> Key:
        """The stage of an operation: the stage of its operands, or a deeper one."""
        last = max((self.at[name] for name in made), default=None)
        learned = self.learned.get(step.results[0], "") if step.kernel != "view" else ""
        layer = layer_of(learned or step.where) or (last[1] if last else "")
        backward = step.node in self.backward
        small = prod(self.plan.values[step.results[0]].shape) <= self.small
        axes = divided(step, self.plan) or (last[3] if last and small else ())
        same = layer, backward, axes
        depth = max((self.at[name][0] + (self.at[name][1:] != same) for name in made), default=0)
        return depth, layer, backward, axes

    def arrive(self, name: str, key: Key | None) -> None:
        """Note that a stage reads a value, or that it leaves the step (None): all values of its messages have
        arrived."""
        trip = self.trips.get(name)
        if trip is None:
            if key is not None and self.at.get(name, key) != key:
                self.edge(self.at[name], key)
            return
        together = [other for other, same in self.trips.items() if same is trip]
        sources = [self.at.get(other) for other in (together if key is None else [name])]
        source = max((found for found in sources if found is not None), default=None)
        self.edge(source, key, trip.kind, trip.axes, trip.nbytes)
        for other in together:
            del self.trips[other]
            if other in self.at and key is not None:
                self.at[other] = key

    def edge(self, source: Key | None, target: Key | None, kind="", axes=(), nbytes=0) -> None:
        """Count an edge from stage to stage."""
        count = self.edges.setdefault((source, target, kind, axes), [0, 0])
        count[0] += bool(kind)
        count[1] += nbytes

    def done(self, mesh: Mesh) -> Stages:
        """The stages in order, after all steps were added."""
        for name in (self.plan.loss, *(value for _, value in (*self.plan.gradients, *self.plan.updates))):
            self.arrive(name, None)
        keys = sorted(self.modules, key=lambda key: (key[2], key[0]))
        operations = Tally(self.nodes.values())
        number = {key: k for k, key in enumerate(keys)}
        return Stages(
            axes=tuple(axis.name for axis in self.plan.axes),
            mesh=" x ".join(f"{name}={size}" for name, size in mesh.axes),
            ranks=mesh.size,
            operations=sum(isinstance(step, Compute) for step in self.plan.steps),
            gradients=len(self.plan.gradients),
            stages=tuple(
                Stage(layer, tuple(self.modules[key]), backward, axes, operations[key])
                for key in keys
                for _, layer, backward, axes in [key]
            ),
            edges=tuple(
                Edge(
                    GIVEN if source is None else number[source],
                    LEAVING if target is None else number[target],
                    kind,
                    axes,
                    calls,
                    nbytes,
                )
                for (source, target, kind, axes), (calls, nbytes) in self.edges.items()
            ),
        )


def stages_of(plan: Plan, mesh: Mesh) -> Stages:
    """The stages of a plan on a mesh."""
    grouping = Grouping(plan, mesh)
    for step in plan.steps:
        grouping.add(step)
    return grouping.done(mesh)


def layer_of(where: str) -> str:
    """The layer of a module or parameter: `blocks.0` of `blocks.0.q.weight`, `norm` of `norm`."""
    first, _, rest = where.partition(".")
    second = rest.partition(".")[0]
    return f"{first}.{second}" if second.isdigit() else first


def divided(step: Compute, plan: Plan) -> tuple[str, ...]:
    """The axes that divide the work of an operation, in the order of the plan."""
    found = dividing(step, plan.values)
    return tuple(axis.name for axis in plan.axes if axis.name in found)


def _forward(plan: Plan) -> set[str]:
    """The operations on which the loss depends."""
    needed, nodes = {plan.loss}, set()
    for step in reversed(plan.steps):
        if isinstance(step, Compute):
            if needed.intersection(step.results):
                needed.update(step_operands(step))
                nodes.add(step.node)
        else:  # values in one message may be independent
            pairs = zip(step.operands, step.results, strict=True)
            needed.update(old for old, new in pairs if new in needed)
    return nodes


def _backward(plan: Plan, forward: set[str]) -> set[str]:
    """The operations that depend on the gradient of the loss, the first number that the backward pass creates. Leaves
    out operations on values of only the forward pass."""
    known: set[str] = set()
    nodes = set()
    for step in plan.steps:
        first = False
        if isinstance(step, Compute) and step.node not in forward and step.kernel == "create":
            first = prod(plan.values[step.results[0]].shape) == 1
        if first or known.intersection(step_operands(step)):
            known.update(step_results(step))
            if isinstance(step, Compute):
                nodes.add(step.node)
    return nodes
