"""Initial weights, momentum SGD (Sutskever et al. 2013, in torch's form) and Adam (Kingma & Ba 2015) by NumPy:
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


def rate_at(step: int, steps: int, rate: float, optimiser: str = "momentum") -> float:
    """The learning rate of `step`, from 1 to `steps`: rate (1 - t/T)^2 with t steps done; of Adam always `rate`."""
    if optimiser == "adam":
        return rate
    left = 1.0 - (step - 1) / steps
    return rate * (left * left)


class MomentumSGD:
    """The optimiser's state beside `weights`, float32 arrays, which `step` changes in place.

    `states`: {name: an array for each weight}, what a checkpoint holds beside the weights.
    """

    NAMES = ("velocity",)  # of `states`

    def __init__(self, weights: Sequence[np.ndarray], momentum: float, decay: float = 0.0):
        self.weights, self.momentum, self.decay = weights, np.float32(momentum), np.float32(decay)
        self.velocities = [np.zeros_like(array) for array in weights]
        self.states = {"velocity": self.velocities}

    def step(self, gradients: Sequence[np.ndarray], scale: float, rate: float, number: int = 1) -> None:
        """v = momentum v + scale g + decay w; w = w - rate v, with `gradients` float32 of the shapes of the weights."""
        factor, length = np.float32(scale), np.float32(rate)
        for weight, velocity, gradient in zip(self.weights, self.velocities, gradients, strict=True):
            velocity *= self.momentum
            velocity += factor * gradient
            if self.decay:
                velocity += self.decay * weight
            weight -= length * velocity


class Adam:
    """As MomentumSGD; `states` are the running means of gradients and of their squares."""

    NAMES = ("mean", "square")
    KEPT = np.float32(0.9), np.float32(0.999)  # of both means, at every step
    LEAST = np.float32(1e-8)

    def __init__(self, weights: Sequence[np.ndarray], decay: float = 0.0):
        self.weights, self.decay = weights, np.float32(decay)
        self.states = {name: [np.zeros_like(array) for array in weights] for name in self.NAMES}

    def step(self, gradients: Sequence[np.ndarray], scale: float, rate: float, number: int) -> None:
        """The step of that `number`, from 1: w = w - rate m' / (sqrt(s') + 1e-8), m' and s' the means of g = scale g +
        decay w and of g^2, divided by what they have seen: 1 - 0.9^number, 1 - 0.999^number."""
        one = np.float32(1)
        first, second = self.KEPT
        length = np.float32(rate / (1.0 - float(first) ** number))
        seen = np.float32((1.0 - float(second) ** number) ** 0.5)
        of_each = zip(self.weights, self.states["mean"], self.states["square"], gradients, strict=True)
        for weight, mean, square, gradient in of_each:
            slope = np.float32(scale) * gradient + self.decay * weight
            mean *= first
            mean += (one - first) * slope
            square *= second
            square += (one - second) * (slope * slope)
            weight -= length * mean / (np.sqrt(square) / seen + self.LEAST)


OPTIMISERS: dict[str, type[MomentumSGD] | type[Adam]] = {"momentum": MomentumSGD, "adam": Adam}


def optimiser(training, weights: Sequence[np.ndarray]) -> MomentumSGD | Adam:
    """That of a `config.Training`."""
    if training.optimiser == "adam":
        return Adam(weights, training.decay)
    return MomentumSGD(weights, training.momentum, training.decay)
