"""The models, a file each, which defines MODEL: a `MeshModel`, plain torch that knows nothing of
ranks. They are found by that.

An axis that annotates a larger dim cuts it in its major factor: `heads` = 4 in a dim of 64 is `heads:4*16`. The axis
`stored` cuts the first dim of all parameters that nothing else cuts, between steps alone (`zero`).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from miniapps.learning import discovery
from miniapps.partition.cuts.axes import Axis
from miniapps.runner.config import option


@dataclass
class Width:
    """What most networks have."""

    hidden: int = option(128, help="width of hidden layers", minimum=1, maximum=2**14, effect="size")


@dataclass(frozen=True)
class Task:
    """What a model is to learn: samples of a step, how many of them are a micro-batch; pixels along an edge of an image
    and classes of images, or bytes that a text may have."""

    batch: int
    micro: int
    edge: int
    classes: int
    vocabulary: int


class MeshModel(ABC):
    """A model: what is cut, what it computes, what it learns from.

    `Deck`: a dataclass of sizes, and into how many blocks each axis is cut. `RECIPES`: {recipe: {axis that it annotates
    by: axis of the mesh that carries it}}. `TOGETHER`: groups of axes that never cut one tensor, so that one axis of a
    mesh may carry them. `WHOLE`: axes with one block for each of their elements. Where it is trained, `OPTIONS` are the
    options of section `model` that it hears, and `LEARNS` says from what: images, or text, whose models hear `tokens`.
    The first line of the docstring of a model's class is what `--help` says of it.
    """

    Deck: type
    RECIPES: ClassVar[Mapping[str, Mapping[str, str]]]
    TOGETHER: tuple[tuple[str, ...], ...] = ()
    WHOLE: tuple[str, ...] = ()
    OPTIONS: type = Width
    LEARNS: str = "images"

    # ---- the problem

    def refused(self, deck: Any) -> str:
        """Why there is no such model, "" where there is."""
        return ""

    @abstractmethod
    def module(self, deck: Any) -> Any:
        """A torch.nn.Module; calling it on the inputs gives the loss, a scalar."""

    @abstractmethod
    def inputs(self, deck: Any, seed: int = 0) -> tuple[Any, ...]:
        """The tuple of its inputs, drawn."""

    @abstractmethod
    def axes(self, deck: Any) -> tuple[Axis, ...]:
        """The logical axes of the problem."""

    @abstractmethod
    def annotations(self, deck: Any) -> dict[str | int, tuple[str | None, ...]]:
        """{parameter or position of an input: an axis, or None, per dim}."""

    # ---- where it is trained

    @abstractmethod
    def sized(self, sizes: Any, task: Task) -> Any:
        """The Deck of `sizes`, its OPTIONS, and a task. Raises UsageError for sizes that do not fit each other."""

    @abstractmethod
    def batch(
        self, samples: Any, labels: Any, task: Task, draw: Callable[[int], np.random.Generator]
    ) -> tuple[Any, ...]:
        """The inputs of a step. `samples`, of torch: images float32 (n, edge, edge), whose white is 1, or windows of
        text, int64 (n, tokens + 1); `labels` int64 (n,). `draw(purpose)`: random numbers of this step for one of the
        purposes in `miniapps.learning.seeds`."""

    @abstractmethod
    def costs(self, deck: Any) -> tuple[int, int]:
        """About how many numbers it has as parameters, and between its operations for all samples of a step."""


def names() -> tuple[str, ...]:
    """Of all models."""
    return discovery.names(__name__)


def every() -> dict[str, MeshModel]:
    """All models by name."""
    return discovery.every(__name__)


def model(name: str) -> MeshModel:
    """The model of that name, one of `names()`."""
    return every()[name]
