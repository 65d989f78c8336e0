"""What a plan takes at least on a device of a machine file, before any rank's step is described.

A rank with the most work has no less than the mean over ranks. Operations that several ranks repeat count for each.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import dataclass
from math import prod

from miniapps.partition.cuts.axes import axes_of
from miniapps.partition.cuts.mesh import Mesh
from miniapps.partition.cuts.steps import STAGE, Compute, Plan, dividing
from miniapps.partition.graphs.flops import node_flops
from miniapps.partition.graphs.graph import Node, Tensor
from miniapps.untrusted.records import parse_toml
from miniapps.untrusted.regular import read_text

WIDTH, STATES = 4, 2  # bytes of a weight, and arrays of Adam for each
MOST = 2**20  # bytes of a file


@dataclass(frozen=True)
class Limits:
    """Operations per second that a device reaches, bytes of its memory, and bytes of a number on it."""

    rate: float
    capacity: float
    width: float


def limits_of(path: str | None) -> Limits | None:
    """The limits of the device in a machine file; None without a file, without a device, and for a file that `fpna
    price` refuses."""
    if path is None:
        return None
    try:
        device = parse_toml(read_text(os.fspath(path), MOST))["device"]
        found = Limits(device["product"] * device["achieved"], device["capacity"], device["width"])
        return found if min(found.rate, found.capacity, found.width) > 0 else None
    except (OSError, ValueError, KeyError, TypeError):
        return None


def least_seconds(plan: Plan, mesh: Mesh, limits: Limits) -> float:
    """The seconds of a step's products, convolutions and attention on the rank with most of them, at least."""
    shapes = {name: value.shape for name, value in plan.values.items()}
    total = 0.0
    for step in plan.steps:
        if isinstance(step, Compute):
            results = tuple(Tensor(name, shapes[name], "") for name in step.results)
            flops = node_flops(Node(step.node, step.target, step.args, step.kwargs, results), shapes)
            if flops:
                axes = dividing(step, plan.values)
                total += flops * _share(plan, mesh, axes, step.results[0])
    return total / limits.rate


def least_bytes(plan: Plan, mesh: Mesh, limits: Limits) -> float:
    """The bytes of weights, in both widths (Micikevicius et al. 2018), and of the optimiser's state on the rank with
    most of them, at least."""
    learned = {key for key, _ in plan.gradients}
    weights = 0.0
    for source in plan.sources:
        if source.kind == "parameter" and source.key in learned:
            value = plan.values[source.tensor.name]
            weights += prod(value.shape) * _share(plan, mesh, axes_of(value.cut), source.tensor.name)
    return weights * (WIDTH * (1 + STATES) + limits.width)


def _share(plan: Plan, mesh: Mesh, axes: Iterable[str], name: str) -> float:
    """The mean share of a rank, of work or elements that `axes` divide, at the stages of the value `name`."""
    carriers = {mesh.carrier(axis) for axis in axes} - {None}
    share = 1.0
    carrier = mesh.carrier(STAGE)
    if plan.stages and carrier is not None:
        owners = mesh.owners(plan.axis(STAGE))
        share = len({int(owners[stage]) for stage in plan.stages[name]}) / mesh.extent(carrier)
        carriers.discard(carrier)
    return share / prod(mesh.extent(by) for by in carriers if by is not None)
