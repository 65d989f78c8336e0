"""Initial weights, and momentum SGD (Sutskever et al. 2013, in torch's form) by NumPy:
every rank draws and updates alike, without reductions.

Not torch's: importing torch.optim loads torch's compiler, and its fused forms may contract a product and a sum.
Here each element goes through the same correctly rounded operations on every rank and every kind of processor.
"""

from collections.abc import Sequence

import numpy as np

from miniapps.training.seeds import INIT, generator


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


def rate_at(step: int, steps: int, rate: float) -> float:
    """The learning rate of `step`, from 1 to `steps`: rate (1 - t/T)^2 with t steps done."""
    left = 1.0 - (step - 1) / steps
    return rate * (left * left)


class MomentumSGD:
    """The optimiser's state beside `weights`, float32 arrays, which `step` changes in place."""

    def __init__(self, weights: Sequence[np.ndarray], momentum: float):
        self.weights, self.momentum = weights, np.float32(momentum)
        self.velocities = [np.zeros_like(array) for array in weights]

    def step(self, gradients: Sequence[np.ndarray], scale: float, rate: float) -> None:
        """v = momentum v + scale g; w = w - rate v, with `gradients` float32 of the shapes of the weights."""
        factor, length = np.float32(scale), np.float32(rate)
        for weight, velocity, gradient in zip(self.weights, self.velocities, gradients, strict=True):
            velocity *= self.momentum
            velocity += factor * gradient
            weight -= length * velocity
