"""Bytes of a plan's messages, counted rank by rank with sets of places and whole schedules: slow, and easy to check."""

from itertools import accumulate, product
from math import prod

import numpy as np

from kernels.allreduce import Reduction
from kernels.allreduce.cost import cost
from miniapps.partition.cuts.steps import (
    SPAN,
    STAGE,
    Compute,
    Reduce,
    Reshard,
    Send,
    step_operands,
    step_results,
)
from miniapps.partition.graphs.graph import ITEMSIZE
from miniapps.partition.planning.schedule import scheduled


class EachRank:
    """`nbytes(step)`: bytes that all ranks send for a step."""

    def __init__(self, plan, mesh):
        self.plan, self.mesh = plan, mesh
        self.axes = {axis.name: axis for axis in plan.axes}
        self.own = [{axis.name: mesh.own(axis, rank) for axis in plan.axes} for rank in range(mesh.size)]
        self.passed = {id(step) for _, step in scheduled(plan, mesh) if isinstance(step, Send)}

    def nbytes(self, step):
        if isinstance(step, Reduce):
            return self.reduction(step)
        if isinstance(step, Reshard):
            pairs = zip(step.operands, step.results, strict=True)
            return sum(self.lacking(self.plan.values[o], self.plan.values[r], step) for o, r in pairs)
        if isinstance(step, Compute) and step.kernel == SPAN:
            return self.span(step)
        if isinstance(step, Compute):
            return sum(self.halo(step, operand) for operand in {window.operand for window in step.windows})
        return self.send(step) if id(step) in self.passed else 0

    def reduction(self, step):
        before, after = ([self.plan.values[x].cut for x in names] for names in (step.operands, step.results))
        home = step.home if step.home and self.mesh.comes_home(step.axes, step.home.axis) else None
        scatters = home is not None or (
            before != after
            and all(self.mesh.scatters(step.axes, a, b) for a, b in zip(before, after, strict=True))
        )
        total = 0
        for group in {self.mesh.group(step.axes, rank) for rank in self.executing(step)}:
            n, bounds = sum(self.elements(cut, group[0]) for cut in before), None
            if scatters:
                parts = (
                    sum(self.elements(cut, rank) for cut in after)
                    if home is None or home.block in self.own[rank][home.axis]
                    else 0
                    for rank in group
                )
                bounds = tuple(accumulate(parts, initial=0))
                n = bounds[-1]
            owner = {
                blocks: place
                for place, rank in enumerate(group)
                for blocks in product(*(self.own[rank][axis] for axis in step.axes))
            }
            every = product(*(range(self.axes[axis].blocks) for axis in step.axes))
            owners = tuple(owner[blocks] for blocks in every)
            collective = "reduce-scatter" if scatters else "allreduce"
            asked = Reduction("block-tree", (n,), np.dtype(step.dtype), collective=collective, bounds=bounds)
            total += cost(asked.schedule(len(group), owners=owners), n, ITEMSIZE[step.dtype]).bytes
        return total

    def send(self, step):
        value = self.plan.values[step.operands[0]]
        return ITEMSIZE[value.dtype] * sum(
            self.elements(value.cut, rank) * prod(len(self.own[rank][axis]) for axis in value.partial)
            for rank in self.executing(step)
        )

    def executing(self, step):
        if not self.plan.stages:
            return range(self.mesh.size)
        at = {step.source} if isinstance(step, Send) else set(self.plan.stages[step_results(step)[0]])
        return [rank for rank, own in enumerate(self.own) if at & set(own[STAGE])]

    def lacking(self, old, new, step):
        return ITEMSIZE[new.dtype] * sum(
            self.elements(new.cut, rank)
            - prod(
                len(self.places(a, rank) & self.places(b, rank))
                for a, b in zip(old.cut, new.cut, strict=True)
            )
            for rank in self.executing(step)
        )

    def span(self, step):
        (_, dim, begin, end), total = step.args, 0
        for value, result in zip(
            (self.plan.values[name] for name in step_operands(step)), step.results, strict=True
        ):
            seen_by = self.plan.seen_by.get(result)
            for rank in self.executing(step):
                if seen_by is not None and max(self.places(seen_by, rank)) < begin:
                    continue
                own = [len(self.places(of, rank)) for of in value.cut]
                lacks = len(set(range(begin, end)) - self.places(value.cut[dim], rank))
                total += lacks * prod(own[:dim] + own[dim + 1 :]) * ITEMSIZE[value.dtype]
        return total

    def halo(self, step, operand):
        value, total = self.plan.values[operand], 0
        windows = {window.dim: window for window in step.windows if window.operand == operand}
        for rank in self.executing(step):
            own = [self.places(dim, rank) for dim in value.cut]
            read = [
                self.read(windows[d], value.shape[d], rank) if d in windows else places
                for d, places in enumerate(own)
            ]
            total += prod(map(len, read)) - prod(len(a & b) for a, b in zip(own, read, strict=True))
        return total * ITEMSIZE[value.dtype]

    def read(self, window, size, rank):
        starts = self.axes[window.axis].at(self.plan.values[window.of].shape[window.of_dim])
        found = set()
        for block in self.own[rank][window.axis]:
            places = range(*window.needs(starts[block], starts[block + 1]))
            found.update(place % size if window.wrap else place for place in places)
        return {place for place in found if 0 <= place < size}

    def elements(self, cut, rank):
        return prod(len(self.places(dim, rank)) for dim in cut)

    def places(self, dim, rank):
        found = [0]
        for size, axis in dim:
            mine = range(size)
            if axis is not None:
                starts = self.axes[axis].at(size)
                mine = [e for b in self.own[rank][axis] for e in range(starts[b], starts[b + 1])]
            found = [major * size + minor for major in found for minor in mine]
        return set(found)
