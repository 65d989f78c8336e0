"""Momentum SGD (Sutskever et al. 2013, in torch's form) and Adam (Kingma & Ba, arXiv 1412.6980, algorithm 1) by NumPy.
Every rank does the same update, without reductions.

They replace torch.optim, whose import loads torch's compiler and costs every rank 1.6 s and 70 MB. Its foreach and
fused forms regroup elements and may contract a product and a sum. Here each element has the same correctly rounded
operations on every rank and every kind of processor.
"""

import math
from collections.abc import Sequence

import numpy as np

from kernels.elementary import power


class MomentumSGD:
    """The optimiser of `weights`, float32 arrays, which `step` changes in place.

    `states`: {name: an array for each weight}, the arrays of a checkpoint beside the weights.
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
    """Adam, with the interface of MomentumSGD; `states`: the running means of gradients and of their squares.

    `reciprocal`: multiplies the root of the mean of squares by 1 / sqrt(1 - 0.999^number) instead of dividing it by
    sqrt(1 - 0.999^number). The roundings differ: `coupled` multiplies and `training` divides, and their checkpoints
    depend on it.
    """

    NAMES = ("mean", "square")
    KEPT = np.float32(0.9), np.float32(0.999)  # decay factors of both means per step
    LEAST = np.float32(1e-8)

    def __init__(self, weights: Sequence[np.ndarray], decay: float = 0.0, reciprocal: bool = False):
        self.weights, self.decay, self.reciprocal = weights, np.float32(decay), reciprocal
        self.states = {name: [np.zeros_like(array) for array in weights] for name in self.NAMES}

    def step(self, gradients: Sequence[np.ndarray], scale: float, rate: float, number: int) -> None:
        """Do step `number`, from 1: w = w - rate m' / (sqrt(s') + 1e-8). m' and s' are the means of g = scale g + decay
        w and of g^2, divided by 1 - 0.9^number and 1 - 0.999^number."""
        one, factor = np.float32(1), np.float32(scale)
        first, second = self.KEPT
        # 1 - 0.999^number in double: in single it loses three digits at the start.
        length = np.float32(rate / (1.0 - power(float(first), number)))
        seen = math.sqrt(1.0 - power(float(second), number))
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
    """The arrays that change from step to step, not copied: the weights, then each of `states`."""
    return [optimiser.weights, *optimiser.states.values()]


def restore(optimiser: MomentumSGD | Adam, arrays: Sequence[Sequence[np.ndarray]]) -> None:
    """Restore what `state_of` returned, or a copy of it."""
    for own, given in zip(state_of(optimiser), arrays, strict=True):
        for array, values in zip(own, given, strict=True):
            array[...] = values


OPTIMISERS: dict[str, type[MomentumSGD] | type[Adam]] = {"momentum": MomentumSGD, "adam": Adam}


def optimiser(steps, weights: Sequence[np.ndarray]) -> MomentumSGD | Adam:
    """The optimiser for the options `steps`, a `course.options.Steps`."""
    if steps.optimiser == "adam":
        return Adam(weights, steps.decay)
    return MomentumSGD(weights, steps.momentum, steps.decay)


def rate_at(step: int, steps: int, rate: float, optimiser: str = "momentum") -> float:
    """The learning rate of `step`, from 1 to `steps`: rate (1 - t/T)^2 with t finished steps; for Adam `rate`."""
    if optimiser == "adam":
        return rate
    left = 1.0 - (step - 1) / steps
    return rate * (left * left)
