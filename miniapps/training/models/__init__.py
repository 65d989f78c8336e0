"""The networks, a module each with one contract.

    shapes(model, edge)              {name: shape} of weights and biases, first layer first; of a `config.Model` and
                                     images of edge x edge pixels
    forward(tensors, images, mask)   logits, torch float32 (n, CLASSES); `tensors` in the order of `shapes`, images
                                     (n, edge, edge), `mask` (n, hidden) that the last hidden layer is multiplied by,
                                     or None

Nothing in them couples the images of a batch (no batch normalisation), so that the sum of the losses of a batch has
the sum of the gradients of its parts as gradient.
"""

from importlib import import_module
from types import ModuleType

import numpy as np

from miniapps.training.seeds import INIT, generator


def network(name: str) -> ModuleType:
    """The module of the network `name`, one of `config.MODELS`."""
    return import_module(f"miniapps.training.models.{name}")


def initial(shapes: dict[str, tuple[int, ...]], seed: int) -> list[np.ndarray]:
    """Initial weights float32, normal with variance 2 / fan in (He et al. 2015); biases 0. By NumPy, so that they do
    not depend on torch's generators."""
    arrays = []
    for number, shape in enumerate(shapes.values()):
        draw = generator(seed, INIT, number).standard_normal(shape, np.float32) if len(shape) > 1 else None
        fan_in = np.prod(shape[1:])
        arrays.append(
            np.zeros(shape, np.float32) if draw is None else draw * np.float32(np.sqrt(2.0 / fan_in))
        )
    return arrays
