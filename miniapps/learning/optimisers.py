"""Momentum SGD (Sutskever et al. 2013, in torch's form) and Adam (Kingma & Ba, arXiv 1412.6980, algorithm 1) by NumPy:
every rank updates alike, without reductions.

Not torch's: importing torch.optim loads torch's compiler, which costs every rank 1.6 s and 70 MB, and its foreach and
fused forms regroup elements and may contract a product and a sum. Here each element goes through the same correctly
rounded operations on every rank and every kind of processor.
"""

from collections.abc import Sequence

import numpy as np


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
    """As MomentumSGD; `states` are the running means of gradients and of their squares.

    `reciprocal`: the root of the mean of squares is multiplied by 1 / sqrt(1 - 0.999^number), not divided by
    sqrt(1 - 0.999^number). The roundings differ: `coupled` has the former, `training` the latter, and the weights in
    their checkpoints came from these.
    """

    NAMES = ("mean", "square")
    KEPT = np.float32(0.9), np.float32(0.999)  # of both means, at every step
    LEAST = np.float32(1e-8)

    def __init__(self, weights: Sequence[np.ndarray], decay: float = 0.0, reciprocal: bool = False):
        self.weights, self.decay, self.reciprocal = weights, np.float32(decay), reciprocal
        self.states = {name: [np.zeros_like(array) for array in weights] for name in self.NAMES}

    def step(self, gradients: Sequence[np.ndarray], scale: float, rate: float, number: int) -> None:
        """The step of that `number`, from 1: w = w - rate m' / (sqrt(s') + 1e-8), m' and s' the means of g = scale g +
        decay w and of g^2, divided by what they have seen: 1 - 0.9^number, 1 - 0.999^number."""
        one, factor = np.float32(1), np.float32(scale)
        first, second = self.KEPT
        # 1 - 0.999^number in double: in single it loses three digits at the start.
        length = np.float32(rate / (1.0 - float(first) ** number))
        seen = (1.0 - float(second) ** number) ** 0.5
        of_each = zip(self.weights, self.states["mean"], self.states["square"], gradients, strict=True)
        for weight, mean, square, gradient in of_each:
            slope = factor * gradient
            if self.decay:
                slope += self.decay * weight
            mean *= first
            mean += (one - first) * slope
            square *= second
            square += (one - second) * (slope * slope)
            root = np.sqrt(square)
            root = root * np.float32(1.0 / seen) if self.reciprocal else root / np.float32(seen)
            weight -= length * mean / (root + self.LEAST)


def state_of(optimiser: MomentumSGD | Adam) -> list[Sequence[np.ndarray]]:
    """What changes from step to step, not copied: the weights, then each of `states`."""
    return [optimiser.weights, *optimiser.states.values()]


def restore(optimiser: MomentumSGD | Adam, arrays: Sequence[Sequence[np.ndarray]]) -> None:
    """Go on from what `state_of` gave, or a copy of it."""
    for own, given in zip(state_of(optimiser), arrays, strict=True):
        for array, values in zip(own, given, strict=True):
            array[...] = values


OPTIMISERS: dict[str, type[MomentumSGD] | type[Adam]] = {"momentum": MomentumSGD, "adam": Adam}


def optimiser(steps, weights: Sequence[np.ndarray]) -> MomentumSGD | Adam:
    """That of the options `steps`, a `course.options.Steps`."""
    if steps.optimiser == "adam":
        return Adam(weights, steps.decay)
    return MomentumSGD(weights, steps.momentum, steps.decay)


def rate_at(step: int, steps: int, rate: float, optimiser: str = "momentum") -> float:
    """The learning rate of `step`, from 1 to `steps`: rate (1 - t/T)^2 with t steps done; of Adam always `rate`."""
    if optimiser == "adam":
        return rate
    left = 1.0 - (step - 1) / steps
    return rate * (left * left)
