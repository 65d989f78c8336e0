"""What the network of the closure reads and has, known without torch."""

import math

INPUTS = 2  # vorticity and strain rate
POINTS = 3  # around a block, that the network reads


def shapes(channels: int) -> list[tuple[int, ...]]:
    """Shapes of weights and biases, in the order in which they lie in the flat parameter vector."""
    return [
        (channels, INPUTS, 3, 3),
        (channels,),
        (channels, channels, 3, 3),
        (channels,),
        (1, channels, 1, 1),
        (1,),
    ]


def parameters(channels: int) -> int:
    """The length of that vector."""
    return sum(math.prod(shape) for shape in shapes(channels))
