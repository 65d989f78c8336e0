"""The models: every file here that defines MODEL, a `MeshModel` in plain torch that is independent of ranks.

An axis that annotates a larger dim cuts its major factor: `heads` = 4 in a dim of 64 is `heads:4*16`. The axis `stored`
cuts the first dim of all parameters without another cut, only between steps (`zero`).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from kernels.guarantees import known
from miniapps.learning import discovery
from miniapps.partition.cuts.axes import Axis
from miniapps.partition.graphs.graph import Graph
from miniapps.runner.config import option


@dataclass
class Width:
    """The options of most networks."""

    hidden: int = option(128, help="width of hidden layers", minimum=1, maximum=2**14, effect="size")


@dataclass(frozen=True)
class Task:
    """The data for a model: samples per step (`batch`) and per micro-batch (`micro`); pixels along an edge of an image
    and classes of images, or the number of different bytes in a text (`vocabulary`); `parts`: of a step that go through
    a pipeline one after the other."""

    batch: int
    micro: int
    edge: int
    classes: int
    vocabulary: int
    parts: int = 1


class Problem(ABC):
    """A step of training and its cuts.

    `Deck`: a dataclass of sizes and of the number of blocks along each axis. `RECIPES`: {recipe: {axis of the problem:
    axis of the mesh that carries it}}. `TOGETHER`: groups of axes that never cut the same tensor, so that one axis of a
    mesh may carry a group. `LATER`: axes that propagate after the others. `STACK`: the name of a list of `deck.layers`
    equal modules, "" without. `WHOLE`: axes with one block per element. `BLOCKS`: {axis: field of the Deck with its
    number of blocks}, for fields without the name of the axis. `KEYS`: the axis that cuts the keys of attention, ""
    without.
    """

    Deck: Any
    RECIPES: ClassVar[Mapping[str, Mapping[str, str]]]
    TOGETHER: tuple[tuple[str, ...], ...] = ()
    LATER: tuple[str, ...] = ()
    STACK: str = ""
    WHOLE: tuple[str, ...] = ()
    BLOCKS: ClassVar[Mapping[str, str]] = {}
    KEYS: str = ""

    @property
    def exported(self) -> Graph | None:
        """The graph of a step, if it is known without sizes."""
        return None

    def require(self, recipe: str) -> None:
        """Raise ChoiceError for a recipe that the problem lacks."""
        known("recipe", recipe, tuple(self.RECIPES))

    def refused(self, deck: Any) -> str:
        """The reason why these sizes are impossible, "" if they are possible."""
        return ""

    @abstractmethod
    def module(self, deck: Any) -> Any:
        """A torch.nn.Module; calling it on the inputs gives the loss, a scalar."""

    @abstractmethod
    def inputs(self, deck: Any, seed: int = 0) -> tuple[Any, ...]:
        """A tuple of random inputs."""

    @abstractmethod
    def axes(self, deck: Any) -> tuple[Axis, ...]:
        """The logical axes of the problem."""

    @abstractmethod
    def annotations(self, deck: Any) -> Mapping[str | int, Sequence[str | tuple[str, ...] | None]]:
        """{parameter or position of an input: for each dim an axis, None, or several axes, of which the first in a
        recipe cuts it}."""

    def blocked(self, blocks: Mapping[str, Any]) -> dict[str, Any]:
        """Numbers of blocks by axis as fields of the Deck."""
        return {self.BLOCKS.get(axis, axis): count for axis, count in blocks.items()}

    def call(self, module: Any, *inputs: Any) -> Any:
        """The loss of a module that `module` returned."""
        return module(*inputs)

    def layers(self, deck: Any) -> tuple[str, ...]:
        """The modules over which the axis `stage` runs, first to last; none without this axis."""
        return tuple(f"{self.STACK}.{k}" for k in range(deck.layers)) if self.STACK else ()


class MeshModel(Problem):
    """A model of this package: also its data.

    `OPTIONS`: its options in section `model` of the application `mesh`; `LEARNS`: images or text; models of text have
    the option `tokens`. `RECORDED`: buffers of one number that a trace records after each step. `--help` shows the
    first line of the docstring of a model's class.
    """

    OPTIONS: type = Width
    LEARNS: str = "images"
    RECORDED: tuple[str, ...] = ()

    # ---- training by the application `mesh`

    @abstractmethod
    def sized(self, sizes: Any, task: Task) -> Any:
        """The Deck for `sizes`, its OPTIONS, and a task. Raises UsageError for contradicting sizes."""

    @abstractmethod
    def batch(
        self, samples: Any, labels: Any, task: Task, draw: Callable[[int], np.random.Generator]
    ) -> tuple[Any, ...]:
        """The inputs of a step. `samples`: tensor of images, float32 (n, edge, edge), white is 1, or of windows of
        text, int64 (n, tokens + 1); `labels`: int64 (n,); `draw(purpose)`: the random generator of this step for a
        purpose in `miniapps.learning.seeds`."""

    @abstractmethod
    def costs(self, deck: Any) -> tuple[int, int]:
        """Approximate numbers of parameters, and of intermediate elements for all samples of a step."""


def pipeline_refused(deck: Any, layers: int) -> str:
    """The reason why a deck's `samples` have no `micro_batches` equal parts, or its `layers` no `stage` stages; "" if
    they have."""
    if deck.samples % deck.micro_batches:
        return (
            f"micro_batches = {deck.micro_batches} does not divide samples = {deck.samples}; choose a divisor"
        )
    if deck.stage > layers:
        return f"stage = {deck.stage}: the model has {layers} layers; choose at most {layers} stages"
    return ""


def names() -> tuple[str, ...]:
    """The names of all models."""
    return discovery.names(__name__)


def every() -> dict[str, MeshModel]:
    """All models by name."""
    return discovery.every(__name__)


def model(name: str) -> MeshModel:
    """The model `name`, one of `names()`."""
    return every()[name]
