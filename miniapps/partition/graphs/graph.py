"""One step of training as a graph of ATen operations: plain data, without torch.

Values have names; in the arguments of a node, a tensor is the string "%NAME". A single result has the name of its node,
several results NAME.0, NAME.1, ... All other arguments are numbers, strings, None and tuples of these; a dtype is a
string such as "torch.float32". Arguments about memory (device, layout, memory format) are omitted.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

ITEMSIZE = {
    "complex128": 16, "float64": 8, "int64": 8, "uint64": 8, "complex64": 8, "float32": 4, "int32": 4, "uint32": 4,
    "float16": 2, "bfloat16": 2, "int16": 2, "uint16": 2, "bool": 1, "uint8": 1, "int8": 1,
}  # bytes of an element  # fmt: skip


@dataclass(frozen=True)
class Tensor:
    """A value: its name, shape and dtype (`float32`)."""

    name: str
    shape: tuple[int, ...]
    dtype: str


@dataclass(frozen=True)
class Source:
    """An input value of the step; `kind`: parameter, buffer, input or constant. `key`: the name of the parameter,
    buffer or constant, or the position of the input. `data`: elements of a constant (little-endian, row-major)."""

    tensor: Tensor
    kind: str
    key: str
    data: bytes = field(default=b"", repr=False)


@dataclass(frozen=True)
class Node:
    """One operation. `target`: `aten.mm.default`, or the suite's own `partition.NAME`; `where`: the module of the
    parameter that it reads, else of an operand; `micro`: the number of its micro-batch, None if it belongs to all."""

    name: str
    target: str
    args: tuple[Any, ...]
    kwargs: tuple[tuple[str, Any], ...]
    results: tuple[Tensor, ...]
    where: str = ""
    micro: int | None = None

    def operands(self) -> tuple[str, ...]:
        """The names of the tensors among the arguments, in order; one may occur twice."""
        return self._operands

    @cached_property
    def _operands(self) -> tuple[str, ...]:  # planning asks some ten times
        return tuple(tensors_in((self.args, tuple(value for _, value in self.kwargs))))


@dataclass(frozen=True)
class Graph:
    """Nodes in an order of computation; `gradients` and `updates`: pairs (key of a parameter or buffer, name of a
    value)."""

    sources: tuple[Source, ...]
    nodes: tuple[Node, ...]
    loss: str
    gradients: tuple[tuple[str, str], ...]
    updates: tuple[tuple[str, str], ...] = ()

    def tensors(self) -> dict[str, Tensor]:
        """Every value by its name."""
        values = {source.tensor.name: source.tensor for source in self.sources}
        values.update((tensor.name, tensor) for node in self.nodes for tensor in node.results)
        return values

    def readers(self) -> dict[str, list[Node]]:
        """The nodes that read each value, in order."""
        by: dict[str, list[Node]] = defaultdict(list)
        for node in self.nodes:
            for name in dict.fromkeys(node.operands()):
                by[name].append(node)
        return by

    def outputs(self) -> tuple[str, ...]:
        """The values that leave the step: loss, gradients, updates."""
        return (self.loss, *(name for _, name in self.gradients), *(name for _, name in self.updates))


def tensors_in(argument: Any) -> Iterator[str]:
    """The names of tensors in an argument, at any depth."""
    if isinstance(argument, str):
        if argument.startswith("%"):
            yield argument[1:]
    elif isinstance(argument, tuple):
        for part in argument:
            yield from tensors_in(part)


def reading(argument: Any, names: Iterator[str]) -> Any:
    """The argument with its tensors replaced by `names`, in the order of `tensors_in`."""
    if isinstance(argument, str) and argument.startswith("%"):
        return "%" + next(names)
    if isinstance(argument, tuple):
        return tuple(reading(part, names) for part in argument)
    return argument


def replace(argument: Any, names: dict[str, str]) -> Any:
    """The argument with renamed tensors: `names` maps old to new."""
    if isinstance(argument, str) and argument.startswith("%"):
        return "%" + names.get(argument[1:], argument[1:])
    if isinstance(argument, tuple):
        return tuple(replace(part, names) for part in argument)
    return argument
