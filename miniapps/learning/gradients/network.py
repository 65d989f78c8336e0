"""Losses and gradients of micro-batches by torch, on the CPU.

A fixed shape does not give fixed bits: torch's kernels choose their vector code by the address of their operands (a
matrix of 64 columns at an address that is not a multiple of 16 bytes is added in another order), and convolutions
divide their work by the number of threads. So micro-batches are copied to an aligned place, weights are aligned like
torch's own memory, and under guarantee `layout` one thread computes every micro-batch.
"""

from collections.abc import Callable, Sequence

import numpy as np
import torch
from torch.nn.functional import cross_entropy

ALIGNMENT = 64  # bytes


def aligned(shape: tuple[int, ...], dtype) -> np.ndarray:
    """An array of zeros whose address is a multiple of ALIGNMENT."""
    dtype = np.dtype(dtype)
    nbytes = int(np.prod(shape)) * dtype.itemsize
    memory = np.zeros(nbytes + ALIGNMENT, np.uint8)
    start = -memory.ctypes.data % ALIGNMENT
    return memory[start : start + nbytes].view(dtype).reshape(shape)


class Network:
    """A network whose weights are NumPy's, float32 at aligned addresses; they may change between calls.

    `answers_at_once`: whether it has fixed samples, and answers for all in one call.

    `forward(tensors, images, mask)`: the logits; `mask` (n, hidden) multiplies the last hidden layer, None: no mask.
    Images have the shape `image`; a call takes at most `most` images. `largest`: the pixel value that becomes 1.
    """

    answers_at_once = False

    def __init__(
        self,
        forward: Callable,
        weights: Sequence[np.ndarray],
        image: tuple[int, ...],
        most: int,
        largest: int,
    ):
        self._forward, self._image = forward, image
        self._tensors = [torch.from_numpy(array).requires_grad_() for array in weights]
        self._take: Callable[[int, np.ndarray], None] = _nothing
        for number, tensor in enumerate(self._tensors):
            tensor.register_post_accumulate_grad_hook(self._hook(number))
        self._scale = np.float32(1.0 / largest)
        self._images = aligned((most, *image), np.float32)
        self._labels = aligned((most,), np.int64)
        self._mask: np.ndarray | None = None

    def begin(self, step: int, block: int) -> None:
        """Announce the next call, for networks that draw random numbers per call."""

    def ahead(self, step: int, block: int, images: np.ndarray) -> None:
        """Announce the images of a later call, for networks that can prepare them."""

    def dropped(
        self, drawn: Callable[[int, int], np.ndarray], blocks: Sequence[int], micro: int
    ) -> np.ndarray:
        """The dropout masks of all images of some micro-batches; `drawn(block, rows)` draws them."""
        return np.concatenate([drawn(block, micro) for block in blocks])

    def answers(self, step: int) -> np.ndarray:
        """The outputs for all samples of a network with fixed samples, float32 (n, classes), after `step`."""
        raise NotImplementedError("a network of images has no fixed samples")

    def outputs(self, images: np.ndarray) -> np.ndarray:
        """The outputs for `images`, float32 (n, classes), without gradients."""
        x, _ = self._copied(images, np.zeros(len(images), np.int64))
        with torch.inference_mode():
            return self._forward(self._tensors, x, None).numpy().copy()

    def loss(
        self,
        images: np.ndarray,
        labels: np.ndarray,
        mask: np.ndarray | None,
        take: Callable[[int, np.ndarray], None],
    ) -> float:
        """The sum of the losses (cross entropy) of uint8 `images` (n, edge, edge) with `labels` (n,).

        `take(tensor, gradient)` gets the gradient of this sum with respect to each tensor as soon as it is computed,
        and must neither change nor keep it.
        """
        x, target = self._copied(images, labels)
        dropped = None if mask is None else torch.from_numpy(self._masked(mask))
        self._take = take
        loss = cross_entropy(self._forward(self._tensors, x, dropped), target, reduction="sum")
        loss.backward()
        return loss.item()

    def losses(
        self,
        images: np.ndarray,
        labels: np.ndarray,
        mask: np.ndarray | None,
        take: Callable[[int, np.ndarray], None],
        room: Callable[[int], np.ndarray] | None = None,
    ) -> list[float]:
        """As `loss`, in a list. A network whose micro-batches share a call returns the loss of each micro-batch, and
        writes the gradient of a tensor into `room(tensor)`, the memory that `take` then gets."""
        return [self.loss(images, labels, mask, take)]

    def loss_alone(self, images: np.ndarray, labels: np.ndarray) -> float:
        """The sum of the losses, without gradients and dropout."""
        x, target = self._copied(images, labels)
        with torch.inference_mode():
            return cross_entropy(self._forward(self._tensors, x, None), target, reduction="sum").item()

    def correct(self, images: np.ndarray, labels: np.ndarray, top: int = 1) -> int:
        """The number of `images` whose label is among the `top` classes with the largest outputs. Among equal outputs
        lower classes come first; a NaN is larger than all numbers, and no right answer."""
        x, target = self._copied(images, labels)
        with torch.inference_mode():
            outputs = self._forward(self._tensors, x, None)
            own = outputs.gather(1, target[:, None])
            lower = torch.arange(outputs.shape[1]) < target[:, None]
            before = ~(outputs <= own) | (lower & (outputs == own))
            return int((before.sum(1) < top).sum())

    def _copied(self, images, labels):
        """Both, copied to the aligned memory of all calls."""
        n = len(images)
        np.multiply(images, self._scale, out=self._images[:n], casting="unsafe", dtype=np.float32)
        self._labels[:n] = labels
        return torch.from_numpy(self._images[:n]), torch.from_numpy(self._labels[:n])

    def _masked(self, mask: np.ndarray) -> np.ndarray:
        if self._mask is None or self._mask.shape != mask.shape:
            self._mask = aligned(mask.shape, np.float32)
        np.copyto(self._mask, mask)
        return self._mask

    def _hook(self, number: int):
        def accumulated(tensor) -> None:
            gradient, tensor.grad = tensor.grad, None
            self._take(number, gradient.numpy())

        return accumulated


def _nothing(tensor: int, gradient: np.ndarray) -> None:
    """Ignores a gradient: the initial value before the first loss."""
