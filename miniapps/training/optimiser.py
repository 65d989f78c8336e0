"""How a network begins, at which rate it learns, and by which optimiser: the same on every rank."""

from collections.abc import Sequence

import numpy as np

from miniapps.learning.optimisers import Adam, MomentumSGD
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


OPTIMISERS: dict[str, type[MomentumSGD] | type[Adam]] = {"momentum": MomentumSGD, "adam": Adam}


def optimiser(training, weights: Sequence[np.ndarray]) -> MomentumSGD | Adam:
    """That of a `config.Training`."""
    if training.optimiser == "adam":
        return Adam(weights, training.decay)
    return MomentumSGD(weights, training.momentum, training.decay)
