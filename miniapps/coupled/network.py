"""Inputs and shapes of the closure's network, without torch."""

import math

INPUTS = 2  # vorticity and strain rate
POINTS = 3  # around a block, read by the network


def shapes(channels: int) -> list[tuple[int, ...]]:
    """Shapes of weights and biases, in the order of the flat parameter vector."""
    return [
        (channels, INPUTS, 3, 3),
        (channels,),
        (channels, channels, 3, 3),
        (channels,),
        (1, channels, 1, 1),
        (1,),
    ]


def parameters(channels: int) -> int:
    """The length of the flat parameter vector."""
    return sum(math.prod(shape) for shape in shapes(channels))
