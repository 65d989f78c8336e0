"""The networks, a module each with one contract.

    shapes(model, edge)              {name: shape} of weights and biases, first layer first; of a `config.Model` and
                                     images of edge x edge pixels
    forward(tensors, images, mask)   logits, torch float32 (n, CLASSES); `tensors` in the order of `shapes`, images
                                     (n, edge, edge), `mask` (n, hidden) that the last hidden layer is multiplied by,
                                     or None

`graphsage` is given nodes of a graph in the place of images, with the nodes that they need (`miniapps.training.graph`).
Nothing in them couples the images of a batch (no batch normalisation), so that the sum of the losses of a batch has
the sum of the gradients of its parts as gradient.
"""

from importlib import import_module
from types import ModuleType

CLASSES = 10  # of images, whatever they show


def network(name: str) -> ModuleType:
    """The module of the network `name`, one of `config.MODELS`."""
    return import_module(f"miniapps.training.models.{name}")
