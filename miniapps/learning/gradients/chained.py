"""Losses and gradients of a perceptron by the chains of `kernels.contract`, many micro-batches in one call.

The bits of a row do not depend on the other rows, and a gradient of weights is a chain for each micro-batch, added by
the tree of block-tree. So a call for a subtree of micro-batches has the bits of calls for each of them, added by the
tree. Products write into memory of the caller, and no operation is recorded for gradients.
"""

from collections.abc import Callable, Sequence
from math import fsum

import numpy as np
import torch

from kernels.contract.native import matmul, rowsum
from kernels.contract.native_attention import attention
from miniapps.learning.gradients.network import Network, aligned


class Chained(Network):
    """Dense layers with ReLU between them; `weights`: of each layer (outputs, inputs), then its biases (outputs,).

    `micro`: the images of a micro-batch. Other arguments and methods as of Network.
    """

    def __init__(
        self, weights: Sequence[np.ndarray], image: tuple[int, ...], most: int, largest: int, micro: int
    ):
        super().__init__(lambda _, images, mask: torch.from_numpy(self._logits(images.numpy(), mask)),
                         weights, image, most, largest)  # fmt: skip
        self._layers, self._micro = list(zip(weights[::2], weights[1::2], strict=True)), micro
        self._outputs, self._slopes = (
            [aligned((most, len(biases)), np.float32) for biases in weights[1::2]] for _ in range(2)
        )

    def loss(self, images, labels, mask, take) -> float:
        return fsum(self.losses(images, labels, mask, take))

    def losses(self, images, labels, mask, take, room=None) -> list[float]:
        """The sum of the losses of each micro-batch; the gradient is that of the sum over all of them."""
        x, target = (tensor.numpy() for tensor in self._copied(images, labels))
        logits, rows = self._logits(x, mask), np.arange(len(x))
        # Attention of each row over unit vectors: the softmax of the row, and the logarithm of its sum.
        unit = np.eye(logits.shape[1], dtype=np.float32)[None, None]
        found, logarithms = attention(logits[None, None], unit, unit, scale=1.0)
        slopes, own = found[0, 0], np.subtract(logarithms[0, 0], logits[rows, target], dtype=np.float64)
        slopes[rows, target] -= 1.0
        self._backward(x.reshape(len(x), -1), slopes, mask, take, room or (lambda tensor: None))
        return rowsum(own.reshape(-1, self._micro), 1).tolist()

    def _logits(self, images: np.ndarray, mask) -> np.ndarray:
        """(n, outputs) of images (n, ...), valid until the next call; the outputs of hidden layers are kept."""
        n, x = len(images), images.reshape(len(images), -1)
        for layer, (weights, biases) in enumerate(self._layers):
            y = matmul(x, weights.T, self._outputs[layer][:n])
            y += biases
            if layer < len(self._layers) - 1:
                np.maximum(y, 0.0, out=y)
                if mask is not None and layer == len(self._layers) - 2:
                    y *= mask
            x = y
        return x

    def _backward(self, images, slopes, mask, take: Callable, room: Callable) -> None:
        """Pass the gradients of all layers to `take`, from the `slopes` of the logits; changes kept outputs."""
        n, blocks = len(images), [self._micro] * (len(images) // self._micro)
        for layer in reversed(range(len(self._layers))):
            x = self._outputs[layer - 1][:n] if layer else images
            take(2 * layer + 1, rowsum(slopes, 0, room(2 * layer + 1), blocks=blocks))
            take(2 * layer, matmul(slopes.T, x, room(2 * layer), blocks=blocks))
            if layer:
                below = matmul(slopes, self._layers[layer][0], self._slopes[layer - 1][:n])
                if mask is not None and layer == len(self._layers) - 1:
                    below *= mask
                slopes = _where_positive(below, x)


def _where_positive(slopes: np.ndarray, outputs: np.ndarray) -> np.ndarray:
    """`slopes` with zeros where the outputs of ReLU are zero, in place; torch takes a third of the time of NumPy."""
    gradient = torch.from_numpy(slopes)
    torch.ops.aten.threshold_backward.grad_input(
        gradient, torch.from_numpy(outputs), 0.0, grad_input=gradient
    )
    return slopes
