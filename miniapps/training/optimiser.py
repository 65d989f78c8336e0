"""Momentum SGD (Sutskever et al. 2013, in torch's form) by NumPy: every rank updates alike, without reductions.

Not torch's: importing torch.optim loads torch's compiler, and its fused forms may contract a product and a sum.
Here each element goes through the same correctly rounded operations on every rank and every kind of processor.
"""

from collections.abc import Sequence

import numpy as np


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
