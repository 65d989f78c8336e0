"""Networks as small graphs: operations, shapes of one sample, constants."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from kernels.guarantees import ChoiceError

MAPS = ("relu", "exp", "tanh", "sigmoid", "log", "sqrt", "neg")
PAIRS = ("add", "sub", "rsub", "mul", "div", "rdiv", "maximum")
REDUCTIONS = ("sum", "mean", "norm", "max")


class Unsupported(ChoiceError):
    """An operation that `static` does not support; the message names it, its place, and the supported ones."""


@dataclass(frozen=True)
class Node:
    """One operation on the nodes `inputs` and on `constants`, by role; `shape` is that of one sample."""

    name: str
    operation: str
    inputs: tuple[str, ...]
    shape: tuple[int, ...]
    constants: Mapping[str, str] = field(default_factory=dict)
    attributes: Mapping[str, Any] = field(default_factory=dict)
    where: str = ""  # line of the source


@dataclass
class Graph:
    """Nodes in an order in which they can be computed, and their constants by name.

    `input` names the input, `output` the node of the result. `batched`: arrays have a leading axis of samples; without
    it the whole input is one sample.
    """

    input: str
    sample: tuple[int, ...]
    output: str
    nodes: list[Node]
    constants: dict[str, np.ndarray]
    batched: bool = True

    def users(self, name: str) -> list[Node]:
        """The nodes that read `name`."""
        return [node for node in self.nodes if name in node.inputs]


def elements(shape: tuple[int, ...]) -> int:
    """The number of elements of an array of that shape."""
    return math.prod(shape)
