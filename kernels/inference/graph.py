"""Networks as a small graph of our own: operations, shapes of one sample, constants."""

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
    """A network that has something which `static` lacks; the message says what, where, and what there is."""


@dataclass(frozen=True)
class Node:
    """One operation: `operation` of the nodes `inputs` and of constants, by role; `shape` is that of one sample."""

    name: str
    operation: str
    inputs: tuple[str, ...]
    shape: tuple[int, ...]
    constants: Mapping[str, str] = field(default_factory=dict)
    attributes: Mapping[str, Any] = field(default_factory=dict)
    where: str = ""  # line of the source


@dataclass
class Graph:
    """Nodes in an order in which they can be computed, and the constants that they name.

    The node `input` is given; `output` is the name of the node that is the result. `batched`: whether arrays have a
    leading axis of samples; without it the whole input is one sample.
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
    """Of an array of that shape."""
    return math.prod(shape)
