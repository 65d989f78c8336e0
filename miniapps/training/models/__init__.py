"""The models: every file here that defines MODEL, a `ParallelModel`.

No model couples the samples of a batch (no batch normalisation). So the gradient of the summed loss of a batch is the
sum of the gradients of its parts.
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
ACTIVATION = 24  # bytes of an element, forward and backward


@dataclass
class Hidden:
    """The options of every network."""

    hidden: int = option(128, help="width of hidden layers", minimum=1, maximum=WIDTH, effect="size")


class ParallelModel(ABC):
    """A model: its weights, data and costs.

    `OPTIONS`: a dataclass of its options in section `model`; `DATA`: the data sets that it can learn; `USUAL`: the one
    in this suite; `CHAINED`: whether chains compute its network, called for micro-batches: with the bits of any
    processor, and several in one call with the bits of separate calls added by the tree of block-tree. `--help` shows
    the first line of the docstring of a model's class.
    """

    OPTIONS: type = Hidden
    DATA: tuple[str, ...]
    USUAL: str
    CHAINED = False

    @abstractmethod
    def shapes(self, sizes: Any, edge: int) -> Shapes:
        """{name: shape} of weights and biases, first layer first, for `sizes`, its OPTIONS, and samples of `edge`."""

    @abstractmethod
    def edge(self, data: str) -> int:
        """The size of a sample."""

    @abstractmethod
    def counts(self, data: str) -> tuple[int, int]:
        """The numbers of training and test samples."""

    @abstractmethod
    def load(self, config: Any) -> Labelled:
        """Loads the samples. Raises UsageError with the missing or damaged file, and the commands to get it."""

    @abstractmethod
    def network(self, config: Any, weights: Sequence[np.ndarray], data: Labelled, most: int) -> Network:
        """The network that computes losses and gradients, for at most `most` samples per call."""

    @abstractmethod
    def memory(self, config: Any, samples: int) -> int:
        """Bytes of the data and of a call with that number of samples."""

    def complete(self, config: Any) -> None:
        """Fill in options that follow from others; nothing here."""
        return

    def validate(self, config: Any, options: Any) -> None:
        """Raise UsageError or ChoiceError for impossible options; nothing here."""
        return


class ImageModel(ParallelModel):
    """A model of images: its file defines its `shapes`, the logits of images, and the number of activations."""

    DATA = IMAGES
    USUAL = images.USUAL

    @abstractmethod
    def forward(self, tensors: Sequence[Any], images: Any, mask: Any = None) -> Any:
        """Logits, torch float32 (n, CLASSES), of images (n, edge, edge); `tensors` in the order of `shapes`; `mask`
        (n, hidden) multiplies the last hidden layer, None: no mask."""

    @abstractmethod
    def activations(self, sizes: Any, edge: int) -> int:
        """The number of activations per image."""

    def edge(self, data: str) -> int:
        return EDGE[data]

    def counts(self, data: str) -> tuple[int, int]:
        return COUNTS[data]

    def load(self, config: Any) -> Labelled:
        return images.load(config.data.name, config.data.dir, config.seeds.data)

    def network(self, config: Any, weights: Sequence[np.ndarray], data: Labelled, most: int) -> Network:
        edge = EDGE[config.data.name]
        if self.CHAINED and config.training.calls == "block":
            from miniapps.learning.gradients.chained import Chained

            return Chained(weights, (edge, edge), most, data.largest, config.training.micro)
        from miniapps.learning.gradients.network import Network

        return Network(self.forward, weights, (edge, edge), most, data.largest)

    def memory(self, config: Any, samples: int) -> int:
        edge = EDGE[config.data.name]
        return sum(COUNTS[config.data.name]) * edge * edge + ACTIVATION * samples * self.activations(
            config.model, edge
        )


def names() -> tuple[str, ...]:
    """The names of all models."""
    return discovery.names(__name__)


def every() -> dict[str, ParallelModel]:
    """All models by name."""
    return discovery.every(__name__)


def model(name: str) -> ParallelModel:
    """The model `name`, one of `names()`."""
    return every()[name]


def of_images() -> dict[str, ImageModel]:
    """The models of images by name, which `miniapps.inference` can use too."""
    return {name: found for name, found in every().items() if isinstance(found, ImageModel)}
