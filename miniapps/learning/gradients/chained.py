"""Losses and gradients of perceptrons and convolutional networks by the chains of `kernels.contract`.

One call takes many micro-batches. The bits of a row do not depend on the other rows, and a gradient of weights is a
chain for each micro-batch, added by the tree of block-tree. So a call for a subtree of micro-batches has the bits of
calls for each of them, added by the tree. Products write into memory of the caller, and no operation is recorded for
gradients. Nor do bits depend on the processor: what is left to torch and NumPy compares numbers, copies them, or rounds
each of them correctly.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import fsum

import numpy as np
import torch

from kernels import _native
from kernels.contract.native import conv, conv_input, conv_weight, matmul, rowsum
from kernels.contract.native_attention import attention
from miniapps.learning.gradients.network import Network, aligned


@dataclass
class Dense:
    """A layer y = x W^T + b, with ReLU unless it is the `last`. `outputs`, `below`: memory for a call's results and for
    the gradients of its operands, None in the first layer."""

    weights: np.ndarray
    biases: np.ndarray
    last: bool
    outputs: np.ndarray
    below: np.ndarray | None

    def forward(self, x: np.ndarray) -> np.ndarray:
        """(n, outputs) of x (n, ...), valid until the next call."""
        y = matmul(x.reshape(len(x), -1), self.weights.T, self.outputs[: len(x)])
        y += self.biases
        if not self.last:
            np.maximum(y, 0.0, out=y)
        return y

    def backward(self, x, slopes, blocks, take: Callable, room: Callable) -> np.ndarray | None:
        """Pass the gradients of biases (1) and weights (0) to `take`; returns those of x, the operand of `forward`."""
        rows = x.reshape(len(x), -1)
        take(1, rowsum(slopes, 0, room(1), blocks=blocks))
        take(0, matmul(slopes.T, rows, room(0), blocks=blocks))
        if self.below is None:
            return None
        return matmul(slopes, self.weights, self.below[: len(x)]).reshape(x.shape)


@dataclass
class Convolution:
    """A layer of a convolution with zeros around, so that images keep their size, then the largest element of each
    2 x 2, biases and ReLU. Adding a bias is monotonic, so that it may follow. `whole`, `outputs`, `below`: memory
    for a call's images, results, and gradients of its operands (None in the first layer)."""

    weights: np.ndarray
    biases: np.ndarray
    whole: np.ndarray
    outputs: np.ndarray
    below: np.ndarray | None

    def forward(self, x: np.ndarray) -> np.ndarray:
        """(n, outputs, h / 2, w / 2) of x (n, inputs, h, w), or of (n, h, w), valid until the next call."""
        found, self._places = self.outputs[: len(x)], np.empty((len(x), *self.outputs.shape[1:]), np.uint8)
        whole = conv(self._images(x), self.weights, self.whole[: len(x)], padding=self._padding)
        _native.pool_largest(whole, self.biases, found, self._places)
        return found

    def backward(self, x, slopes, blocks, take: Callable, room: Callable) -> np.ndarray | None:
        """As of Dense; overwrites `whole`."""
        take(1, rowsum(slopes, (0, 2, 3), room(1), blocks=blocks))
        whole, images = self.whole[: len(x)], self._images(x)
        _native.pool_spread(slopes, self._places, whole)
        how = dict(padding=self._padding)
        take(0, conv_weight(images, whole, self.weights.shape[2:], room(0), blocks=blocks, **how))
        if self.below is None:
            return None
        return conv_input(whole, self.weights, images.shape[2:], self.below[: len(x)], **how)

    @property
    def _padding(self) -> list[int]:
        return [side // 2 for side in self.weights.shape[2:]]

    @staticmethod
    def _images(x: np.ndarray) -> np.ndarray:
        return x if x.ndim == 4 else x[:, None]


class Chained(Network):
    """Layers with ReLU between them; `weights`: of each layer (outputs, inputs), or (outputs, inputs, k, k) with an odd
    k for a `Convolution`, which come first, then its biases (outputs,).

    `micro`: the images of a micro-batch. Other arguments and methods as of Network.
    """

    def __init__(
        self, weights: Sequence[np.ndarray], image: tuple[int, ...], most: int, largest: int, micro: int
    ):
        super().__init__(lambda _, images, mask: torch.from_numpy(self._logits(images.numpy(), mask)),
                         weights, image, most, largest)  # fmt: skip
        self._layers: list[Dense | Convolution] = []
        self._micro, size = micro, image

        def memory(*shape: int) -> np.ndarray:
            return aligned((most, *shape), np.float32)

        for k, (matrix, biases) in enumerate(zip(weights[::2], weights[1::2], strict=True)):
            outputs, inputs = matrix.shape[:2]
            if matrix.ndim == 4:
                below = memory(inputs, *size) if k else None
                whole, size = memory(outputs, *size), (size[0] // 2, size[1] // 2)
                self._layers.append(Convolution(matrix, biases, whole, memory(outputs, *size), below))
            else:
                last = 2 * k + 2 == len(weights)
                self._layers.append(
                    Dense(matrix, biases, last, memory(outputs), memory(inputs) if k else None)
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
        self._backward(x, slopes, mask, take, room or (lambda tensor: None))
        return rowsum(own.reshape(-1, self._micro), 1).tolist()

    def _logits(self, images: np.ndarray, mask) -> np.ndarray:
        """(n, outputs) of images (n, ...), valid until the next call; the outputs of hidden layers are kept."""
        x = images
        for layer in self._layers:
            x = layer.forward(x)
            if mask is not None and layer is self._layers[-2]:
                x *= mask
        return x

    def _backward(self, images, slopes, mask, take: Callable, room: Callable) -> None:
        """Pass the gradients of all layers to `take`, from the `slopes` of the logits; changes kept outputs."""
        n, blocks = len(images), [self._micro] * (len(images) // self._micro)
        for k in reversed(range(len(self._layers))):
            x = self._layers[k - 1].outputs[:n] if k else images

            def taken(part, gradient, k=k):
                take(2 * k + part, gradient)

            below = self._layers[k].backward(x, slopes, blocks, taken, lambda part, k=k: room(2 * k + part))
            if below is not None:
                if mask is not None and k == len(self._layers) - 1:
                    below *= mask
                slopes = _where_positive(below, x)


def _where_positive(slopes: np.ndarray, outputs: np.ndarray) -> np.ndarray:
    """`slopes` with zeros where the outputs of ReLU are zero, in place; torch takes a third of the time of NumPy."""
    gradient = torch.from_numpy(slopes)
    torch.ops.aten.threshold_backward.grad_input(
        gradient, torch.from_numpy(outputs), 0.0, grad_input=gradient
    )
    return slopes
