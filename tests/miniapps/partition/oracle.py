"""Every step of a plan against the unsharded operation, in one process and in float64.

    check(plan, graph, values, ranks)     raises AssertionError at the first step that is wrong

`values` are those of the sources. Each step gets true operands: for every rank (the blocks of each axis that it has)
the local arrays are cut out, the operation is called as `cuts.steps` says, and what results is compared
with the true values at the places that it is about; partial results must add up to them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import product
from math import prod
from typing import Any

import numpy as np
import torch

from miniapps.partition.cuts.axes import Cut, Dim, whole
from miniapps.partition.cuts.steps import SHAPE, SPAN, Compute, Plan, Reduce, Reshard, Window, step_operands
from miniapps.partition.execution.parts import PARTS
from miniapps.partition.execution.ring import RING

Blocks = tuple[int, ...]
Owned = Mapping[str, Blocks]
# float64 has 2^-53 and each sum here at most 2^11 terms; what is wrong in a rule is wrong in the first digit.
CLOSE = 2.0**-40
WIDE = {"float32": torch.float64, "float64": torch.float64}


def dtype_of(name: str) -> torch.dtype:
    """float64 in the place of every floating type."""
    return WIDE.get(name) or getattr(torch, name)


def places(dim: Dim, plan: Plan, owned: Owned) -> np.ndarray:
    """The positions in a dim that are in the blocks owned."""
    found = np.zeros(1, np.int64)
    for size, axis in dim:
        own = np.arange(size) if axis is None else in_blocks(plan, axis, size, owned[axis])
        found = (found[:, None] * size + own[None, :]).reshape(-1)
    return found


def in_blocks(plan: Plan, axis: str, size: int, blocks: Blocks) -> np.ndarray:
    """The elements of blocks, in a factor of `size`."""
    starts = plan.axis(axis).at(size)
    return np.concatenate([np.arange(starts[b], starts[b + 1]) for b in blocks] or [np.zeros(0, int)])


def index(cut: Cut, plan: Plan, owned: Owned):
    """What cuts out of the whole tensor the part that is owned."""
    return np.ix_(*(places(dim, plan, owned) for dim in cut)) if cut else ()


def windowed(array: np.ndarray, dim: int, low: int, high: int, wrap: bool) -> np.ndarray:
    """The places [low, high) of a dim, outside it zeros, or those from the other end."""
    if wrap:
        return np.take(array, np.arange(low, high) % array.shape[dim], dim)
    inside = np.arange(max(low, 0), min(high, array.shape[dim]))
    shape = list(array.shape)
    shape[dim] = high - low
    piece = np.zeros(shape, array.dtype)
    to = [slice(None)] * array.ndim
    to[dim] = inside - low
    piece[tuple(to)] = np.take(array, inside, dim)
    return piece


# ---- operations on arrays


def call(target: str, args: Sequence[Any], kwargs: Mapping[str, Any], shapes: Sequence[tuple[int, ...]]):
    """The results of an operation on tensors, a tuple; `shapes`: of the results, which views and kin are told."""
    room, name, *overload = target.split(".")
    if room == "partition":
        if name in OWN:
            return (OWN[name](*args, shape=shapes[0]),)
        if name == "rows":
            return (torch.arange(args[0]),)
        if name == "pool_max_gradient" and len(args) == 5:
            args = (*args, (0,) * len(args[2]), shapes[0][-len(args[2]) :])
        made = (PARTS.get(name) or RING[name])(*args)
        return made if isinstance(made, (tuple, list)) else (made,)
    function = getattr(getattr(torch.ops.aten, name), overload[0])
    if name == "view":
        function = torch.ops.aten.reshape.default
    made = function(*args, **kwargs)
    return made if isinstance(made, (tuple, list)) else (made,)


def input_gradient(gradient, weight, stride, padding, dilation, transposed, output_padding, groups, shape):
    """Of a convolution: the transposed one without padding, of which `shape` is cut out."""
    if transposed:
        return torch.ops.aten.convolution(
            gradient, weight, None, stride, padding, dilation, False, padding, groups
        )
    none = [0] * len(stride)
    full = torch.ops.aten.convolution(gradient, weight, None, stride, none, dilation, True, none, groups)
    return cropped(full, padding, shape)


def cropped(full: torch.Tensor, skip: Sequence[int], shape: Sequence[int]) -> torch.Tensor:
    """`shape` of a tensor from the place `skip` of its last dims on, zeros where it ends."""
    for d, (begin, n) in enumerate(zip(skip, shape[2:], strict=True), start=2):
        short = max(0, begin + n - full.shape[d])
        if short:
            border = list(full.shape)
            border[d] = short
            full = torch.cat([full, full.new_zeros(border)], d)
        full = full.narrow(d, begin, n)
    return full


def weight_gradient(gradient, x, stride, padding, dilation, transposed, output_padding, groups, shape):
    """By torch's backward pass; of the weight it reads the shape alone."""
    weight, none = gradient.new_zeros(shape), [0] * len(stride)
    how = stride, padding, dilation, transposed, none, groups
    return torch.ops.aten.convolution_backward(gradient, x, weight, None, *how, [False, True, False])[1]


OWN = {"conv_input_gradient": input_gradient, "conv_weight_gradient": weight_gradient}


# ---- true values


def truth(graph, values: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Every value of a graph, unsharded."""
    true = {name: np.asarray(value) for name, value in values.items()}
    for node in graph.nodes:
        args = tuple(concrete(arg, true, None) for arg in node.args)
        kwargs = {key: concrete(value, true, None) for key, value in node.kwargs}
        made = call(node.target, args, kwargs, [tensor.shape for tensor in node.results])
        if len(made) > len(node.results):
            made = [made[int(tensor.name.rpartition(".")[2])] for tensor in node.results]
        true.update((tensor.name, value.numpy()) for tensor, value in zip(node.results, made, strict=True))
    return true


def concrete(argument, arrays: Mapping[str, np.ndarray], shape):
    """An argument as torch takes it."""
    if isinstance(argument, tuple):
        return [concrete(part, arrays, shape) for part in argument]
    if not isinstance(argument, str):
        return argument
    if argument == SHAPE:
        return list(shape)
    if argument.startswith("%"):
        return torch.from_numpy(np.array(arrays[argument[1:]], order="C"))
    if argument.startswith("torch."):
        return dtype_of(argument.removeprefix("torch."))
    return argument


# ---- steps


class Oracle:
    """The true values of a plan, and the partial ones as its steps make them: a whole array per block."""

    def __init__(self, plan: Plan, true: Mapping[str, np.ndarray]):
        self.plan, self.true = plan, dict(true)
        self.partial: dict[str, dict[Blocks, np.ndarray]] = {}

    def run(self, ranks: Sequence[Owned]) -> None:
        """Check all steps, on all ranks."""
        for step in self.plan.steps:
            if isinstance(step, Compute):
                self.compute(step, ranks)
            elif isinstance(step, Reduce):
                for operand, result in zip(step.operands, step.results, strict=True):
                    self.true[result] = self.added(operand)
                    original = result.rpartition("@")[0]
                    self.compare(result, self.true[result], self.true[original], step)
            else:
                assert isinstance(step, Reshard)
                for operand, result in zip(step.operands, step.results, strict=True):
                    self.true[result] = self.true[operand]

    def added(self, name: str) -> np.ndarray:
        """The sum, or the extreme, of the partial arrays of all blocks."""
        value = self.plan.values[name]
        counts = [range(self.plan.axis(axis).blocks) for axis in value.partial]
        parts = [self.partial[name][blocks] for blocks in product(*counts)]
        combine = {"sum": np.add, "max": np.maximum, "min": np.minimum}[value.combine]
        return combine.reduce(parts)

    def whole(self, step: Compute) -> None:
        """The true results of an operation that the graph lacks: one of those in which another is written."""
        args, kwargs = self.arguments(step, self.true, self.plan.values[step.results[0]].shape), {}
        kwargs = self.keywords(step, self.true)
        made = call(step.target, args, kwargs, [self.plan.values[name].shape for name in step.results])
        if len(made) > len(step.results):
            made = [made[number(name)] for name in step.results]
        self.true.update((name, value.numpy()) for name, value in zip(step.results, made, strict=True))

    def compute(self, step: Compute, ranks: Sequence[Owned]) -> None:
        """Check an operation on every rank."""
        if any(name.split("@")[0] not in self.true for name in step.results):
            self.whole(step)
        if step.kernel == SPAN:  # elements that other ranks hold
            return
        seen: dict[str, np.ndarray] = {}
        windows = {window.axis: None for window in step.windows}
        looped = list(dict.fromkeys((*step.over, *windows)))
        for owned in ranks:
            for blocks in product(*(owned[axis] for axis in looped)):
                now = {**owned, **{axis: (block,) for axis, block in zip(looped, blocks, strict=True)}}
                for name, piece in self.local(step, now).items():
                    self.take(step, name, piece, now, seen)
        for name in step.results:
            assert seen[name].all(), f"{step.node}: nobody made a part of {name}"
            self.true.setdefault(name, self.true[name.split("@")[0]])

    def local(self, step: Compute, owned: Owned) -> dict[str, np.ndarray]:
        """The results of one call."""
        plan, values = self.plan, self.plan.values
        cuts = [values[name].cut for name in step.results]
        shapes = [tuple(len(places(dim, plan, owned)) for dim in cut) for cut in cuts]
        if not any(map(prod, shapes)):
            return {}  # without blocks; torch's attention would end the process
        if step.kernel == "create":
            shape = values[step.results[0]].shape
            made = call(step.target, self.arguments(step, {}, shape), self.keywords(step, {}), [shape])
            return {step.results[0]: made[0].numpy()[index(cuts[0], plan, owned)]}
        arrays = {name: self.operand(name, owned, step) for name in step_operands(step)}
        args = self.arguments(step, arrays, shapes[0])
        if step.target == "partition.places" and step.windows:
            made = (PARTS["stepped"](args[0], args[1], args[3]),)
        elif step.target == "partition.pool_max_gradient":
            first = len(shapes[0]) - 2
            skip = [0, 0]
            for window in step.windows:
                skip[window.dim - first] = window.skip(*self.span(window, owned))
            made = call(step.target, [*args, skip, shapes[0][first:]], {}, shapes)
        elif step.kernel == "conv":
            made = (self.convolution(step, args, owned, shapes[0]),)
        else:
            made = call(step.target, args, self.keywords(step, arrays), shapes)
        if len(made) > len(step.results):
            made = [made[number(name)] for name in step.results]
        return {name: value.numpy() for name, value in zip(step.results, made, strict=True)}

    def operand(self, name: str, owned: Owned, step: Compute) -> np.ndarray:
        """The local array of an operand, with the places that windows read."""
        value, array = self.plan.values[name], self.true[name]
        if value.partial:
            array = self.partial[name][tuple(owned[axis][0] for axis in value.partial)]
        chosen = [places(dim, self.plan, owned) for dim in value.cut]
        for window in step.windows:
            if window.operand == name:
                low, high = window.needs(*self.span(window, owned))
                array = windowed(array, window.dim, low, high, window.wrap)
                chosen[window.dim] = np.arange(high - low)
        return array[np.ix_(*chosen)] if chosen else array

    def span(self, window: Window, owned: Owned) -> tuple[int, int]:
        """The places of the only block that is owned, in the value that a window is about."""
        starts = self.plan.axis(window.axis).at(self.plan.values[window.of].shape[window.of_dim])
        (block,) = owned[window.axis]
        return starts[block], starts[block + 1]

    def convolution(self, step: Compute, args, owned: Owned, shape) -> torch.Tensor:
        """Without padding where there are windows."""
        own = step.target.startswith("partition")
        first, second = args[:2]
        stride, padding, dilation, transposed, _, _ = args[2:8] if own else args[3:9]
        padding, skip = list(padding), list(padding)
        for window in step.windows:
            padding[window.dim - 2] = 0
            skip[window.dim - 2] = window.skip(*self.span(window, owned))
        none = [0] * len(stride)
        if step.target == "partition.conv_weight_gradient":
            groups = (first if transposed else second).shape[1] // shape[1]
            return weight_gradient(first, second, stride, padding, dilation, transposed, none, groups, shape)
        groups = (shape if transposed != own else first.shape)[1] // second.shape[1]
        if transposed != own:
            full = torch.ops.aten.convolution(first, second, None, stride, none, dilation, True, none, groups)
            return cropped(full, skip, shape)
        return torch.ops.aten.convolution(first, second, None, stride, padding, dilation, False, none, groups)

    def arguments(self, step: Compute, arrays, shape):
        return [concrete(arg, arrays, shape) for arg in step.args]

    def keywords(self, step: Compute, arrays):
        return {key: concrete(value, arrays, None) for key, value in step.kwargs}

    def take(
        self, step: Compute, name: str, piece: np.ndarray, owned: Owned, seen: dict[str, np.ndarray]
    ) -> None:
        """Compare what one call made of a value with the true one, or keep it as a partial one."""
        value, at = self.plan.values[name], index(self.plan.values[name].cut, self.plan, owned)
        original = self.true[name.split("@")[0]]
        done = seen.setdefault(name, np.zeros(value.shape, bool))
        assert piece.shape == done[at].shape, (
            f"{step.node}: {name} is {piece.shape} instead of {done[at].shape}"
        )
        done[at] = True
        if value.partial:
            blocks = tuple(owned[axis][0] for axis in value.partial)
            parts = self.partial.setdefault(name, {})
            parts.setdefault(blocks, np.zeros(value.shape, original.dtype))[at] = piece
        else:
            self.compare(name, piece, original[at], step)

    def compare(self, name: str, got: np.ndarray, wanted: np.ndarray, step) -> None:
        """Raise AssertionError unless two arrays are equal, or, if floating, as close as CLOSE."""
        assert got.shape == wanted.shape, f"{step.node}: {name} is {got.shape} instead of {wanted.shape}"
        finite = np.isfinite(wanted)
        scale = float(np.abs(wanted[finite]).max(initial=1.0)) if wanted.dtype.kind == "f" else 0
        other = got != wanted  # infinite numbers must be equal
        apart = float(np.abs(got[other].astype(float) - wanted[other].astype(float)).max(initial=0.0))
        assert apart <= CLOSE * scale, f"{step.node}: {name} is wrong by {apart:g}\n{step}"


def number(name: str) -> int:
    """Which result of an operation a value is."""
    return int(name.split("@")[0].rpartition(".")[2])


def check(plan: Plan, graph, values: Mapping[str, np.ndarray], ranks: Sequence[Owned]) -> None:
    """All steps of a plan on all ranks; raises AssertionError at the first that is wrong."""
    oracle = Oracle(plan, truth(graph, values))
    oracle.run(ranks)
    for key, name in (*plan.gradients, *plan.updates):
        (source,) = (s for s in plan.sources if s.key == key)
        held = plan.values[source.tensor.name].cut
        assert plan.values[name].cut == held and not plan.values[name].partial, key
    loss = plan.values[plan.loss]
    assert loss.cut == whole(loss.shape) and not loss.partial


def drawn(graph, seed: int = 0) -> dict[str, np.ndarray]:
    """Values for all sources: normal numbers, and integers below 2, which every table has."""
    rng = np.random.default_rng(seed)
    values = {}
    for source in graph.sources:
        shape, integer = source.tensor.shape, source.tensor.dtype.startswith("int")
        array = rng.integers(0, 2, shape) if integer else rng.standard_normal(shape)
        values[source.tensor.name] = np.asarray(array if source.kind != "buffer" else np.abs(array))
    return values
