"""DLRM in torch, on the CPU: the loss of a micro-batch from sums of bags, and the gradient of these sums."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import torch
from torch.nn.functional import binary_cross_entropy_with_logits

from miniapps.dlrm import perceptrons
from miniapps.learning.gradients.network import Network, aligned


class ClickNetwork(Network):
    """A `Network` of both perceptrons and the products between them. Every call copies its arguments to one aligned
    place: at most `most` samples of `features` dense numbers and `tables` sums of `columns`."""

    def __init__(self, weights: Sequence[np.ndarray], features: int, tables: int, columns: int, most: int):
        super().__init__(perceptrons.forward, weights, (features,), most, 1)
        self._sums = aligned((most, tables, columns), np.float32)
        self._targets = aligned((most,), np.float32)

    def learn(
        self,
        dense: np.ndarray,
        pooled: np.ndarray,
        labels: np.ndarray,
        take: Callable[[int, np.ndarray], None],
    ) -> tuple[float, np.ndarray]:
        """(the sum of the losses, binary cross-entropy; its gradient with respect to `pooled`). `take` receives the
        gradients of the weights, as in `Network.loss`."""
        x, sums = self._placed(dense, pooled)
        self._targets[: len(labels)] = labels
        self._take = take
        sums.requires_grad_()
        logits = self._forward(self._tensors, x, sums)
        target = torch.from_numpy(self._targets[: len(labels)])
        loss = binary_cross_entropy_with_logits(logits, target, reduction="sum")
        loss.backward()
        assert sums.grad is not None
        return loss.item(), sums.grad.numpy()

    def scores(self, dense: np.ndarray, pooled: np.ndarray) -> np.ndarray:
        """The logits, float32 (n,)."""
        with torch.inference_mode():
            return self._forward(self._tensors, *self._placed(dense, pooled)).numpy()

    def _placed(self, dense: np.ndarray, pooled: np.ndarray) -> tuple[torch.Tensor, torch.Tensor]:
        n = len(dense)
        self._images[:n], self._sums[:n] = dense, pooled
        return torch.from_numpy(self._images[:n]), torch.from_numpy(self._sums[:n])
