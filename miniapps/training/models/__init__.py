"""The models, a file each, which defines MODEL: a `ParallelModel`. They are found by that.

Nothing in a model couples the samples of a batch (no batch normalisation), so that the sum of the losses of a batch has
the sum of the gradients of its parts as gradient.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from miniapps.learning import discovery
from miniapps.learning.samples import images
from miniapps.learning.samples.images import COUNTS, EDGE, IMAGES, Labelled
from miniapps.runner.config import option

if TYPE_CHECKING:
    from miniapps.learning.gradients.network import Network

Shapes = dict[str, tuple[int, ...]]
WIDTH = 2**14  # of a layer, at most
ACTIVATION = 24  # bytes of an element on the way there and back


@dataclass
class Hidden:
    """What every network has."""

    hidden: int = option(128, help="width of hidden layers", minimum=1, maximum=WIDTH, effect="size")


class ParallelModel(ABC):
    """A model: its weights, what it learns, what it costs.

    `OPTIONS`: a dataclass of the options of section `model` that it hears; `DATA`: what it can learn;
    `USUAL`: what of it comes with this suite. The first line of
    the docstring of a model's class is what `--help` says of it.
    """

    OPTIONS: type = Hidden
    DATA: tuple[str, ...]
    USUAL: str

    @abstractmethod
    def shapes(self, sizes: Any, edge: int) -> Shapes:
        """{name: shape} of weights and biases, first layer first; of `sizes`, its OPTIONS, and samples of `edge`."""

    @abstractmethod
    def edge(self, data: str) -> int:
        """How large a sample is."""

    @abstractmethod
    def counts(self, data: str) -> tuple[int, int]:
        """Samples to learn from, and to test."""

    @abstractmethod
    def load(self, config: Any) -> Labelled:
        """The samples. Raises UsageError naming what is missing or damaged, and the commands that help."""

    @abstractmethod
    def network(self, config: Any, weights: Sequence[np.ndarray], data: Labelled, most: int) -> Network:
        """What computes losses and gradients, of at most `most` samples in a call."""

    @abstractmethod
    def memory(self, config: Any, samples: int) -> int:
        """Bytes of the data, and of a call with so many samples."""

    def complete(self, config: Any) -> None:
        """Write back what follows from other options; nothing here."""
        return

    def validate(self, config: Any, options: Any) -> None:
        """Raise UsageError or ChoiceError for what the model cannot be; nothing here."""
        return


class ImageModel(ParallelModel):
    """A model of images: a file says which `shapes` it has, how logits come of images, and how much lies between."""

    DATA = IMAGES
    USUAL = images.USUAL

    @abstractmethod
    def forward(self, tensors: Sequence[Any], images: Any, mask: Any = None) -> Any:
        """Logits, torch float32 (n, CLASSES), of images (n, edge, edge); `tensors` in the order of `shapes`, `mask`
        (n, hidden) that the last hidden layer is multiplied by, or None."""

    @abstractmethod
    def activations(self, sizes: Any, edge: int) -> int:
        """Elements of an image between the layers."""

    def edge(self, data: str) -> int:
        return EDGE[data]

    def counts(self, data: str) -> tuple[int, int]:
        return COUNTS[data]

    def load(self, config: Any) -> Labelled:
        return images.load(config.data.name, config.data.dir, config.seeds.data)

    def network(self, config: Any, weights: Sequence[np.ndarray], data: Labelled, most: int) -> Network:
        from miniapps.learning.gradients.network import Network

        edge = EDGE[config.data.name]
        return Network(self.forward, weights, (edge, edge), most, data.largest)

    def memory(self, config: Any, samples: int) -> int:
        edge = EDGE[config.data.name]
        return sum(COUNTS[config.data.name]) * edge * edge + ACTIVATION * samples * self.activations(
            config.model, edge
        )


def names() -> tuple[str, ...]:
    """Of all models."""
    return discovery.names(__name__)


def every() -> dict[str, ParallelModel]:
    """All models by name."""
    return discovery.every(__name__)


def model(name: str) -> ParallelModel:
    """The model of that name, one of `names()`."""
    return every()[name]


def of_images() -> dict[str, ImageModel]:
    """The models of images by name, which may also answer (`miniapps.inference`)."""
    return {name: found for name, found in every().items() if isinstance(found, ImageModel)}
