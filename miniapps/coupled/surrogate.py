"""A small convolutional network that replaces the dynamic closure, trained while the flow runs.

The input on the block plus 3 points is vorticity and strain rate, both divided by a vorticity scale. Two 3 x 3
convolutions and one 1 x 1 give the output, the coefficient C in (0, limit), on the block plus 1 point.

The rounding of torch's convolution depends on the shape of its whole batch. In one batch per rank (`batch="rank"`, the
usual way) the bits depend on the number of blocks per rank. With `batch="block"` a block has the same bits beside any
others: on the CPU by the kernels of `miniapps.coupled.convolution`, which take many blocks at once; on a GPU by calls
of torch per block, always of one shape. With `anywhere` the sigmoid is of fixed operations too. No bit then comes from
a function that torch chooses by the processor, since torch's additions, products and maxima are correctly rounded. A
backend of `kernels.inference` with guarantee `layout` (`static`) also gives a block the same bits in any batch. On a
GPU, cuDNN may choose algorithms with atomic additions, or round inputs to TF32: `repeatable` forbids both.
"""

import contextlib
from functools import partial
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F

from kernels import draws
from kernels.contract import flat
from miniapps.coupled.chunks import slices
from miniapps.coupled.convolution import conv, sigmoid
from miniapps.coupled.flow import strain, view
from miniapps.coupled.network import shapes
from miniapps.learning.optimisers import Adam

START = -2.5  # logit of the first coefficient divided by the limit


@contextlib.contextmanager
def repeatable_convolutions():
    """A context in which cuDNN uses deterministic algorithms, chosen by shape and not by timing, and no TF32."""
    cudnn = torch.backends.cudnn
    before = cudnn.deterministic, cudnn.benchmark, cudnn.allow_tf32
    cudnn.deterministic, cudnn.benchmark, cudnn.allow_tf32 = True, False, False
    try:
        yield
    finally:
        cudnn.deterministic, cudnn.benchmark, cudnn.allow_tf32 = before


class Surrogate:
    """The network and its optimiser; every rank holds the same bits of both.

    Initial weights are drawn from Philox(seed) (He et al. 2015), independent of torch's generators; the last bias
    starts the coefficient near limit / 13, a usual value.
    """

    def __init__(
        self,
        channels,
        limit,
        scale,
        learning_rate,
        seed,
        batch,
        device="cpu",
        repeatable=False,
        anywhere=False,
        compiled=None,
        threads=1,
    ):
        self.limit, self.scale, self.batch, self.device = limit, scale, batch, torch.device(device)
        self._together = batch == "block" and self.device.type == "cpu"
        own = sigmoid if anywhere else partial(flat, torch.sigmoid)
        self._functions = (partial(conv, threads=threads), own) if self._together else ()
        fixed = repeatable and self.device.type == "cuda"
        self._convolutions = repeatable_convolutions if fixed else contextlib.nullcontext
        self.shapes = shapes(channels)
        sizes = [int(np.prod(shape)) for shape in self.shapes]
        self.bounds = np.cumsum([0, *sizes])
        rng = np.random.Generator(np.random.Philox(key=seed))
        theta = np.zeros(sum(sizes), np.float32)
        for k in (0, 2, 4):
            fan_in = sizes[k] // self.shapes[k][0]
            theta[self.bounds[k] : self.bounds[k + 1]] = draws.normal(rng, sizes[k]) * np.sqrt(2.0 / fan_in)
        theta[self.bounds[4] : self.bounds[5]] *= 0.1  # the first coefficient is near START everywhere
        theta[-1] = START
        self.weights, self.steps, self.learning_rate = theta, 0, learning_rate
        self.adam = Adam([theta], reciprocal=True)
        self._compiled = compiled
        self.inference: Any = (
            None  # the network of a backend of `kernels.inference`, called in place of torch
        )
        self._load(theta)

    def parameters(self) -> np.ndarray:
        """The flat parameters, float32 (n,)."""
        return self.weights

    def inputs(self, zeta, psi, pad: int, h: float, xp):
        """(network input, strain rate on the block plus 1 point): float32 (blocks, 2, by + 6, bx + 6), float64."""
        magnitude = strain(psi, pad, h, 3, xp)
        stacked = xp.stack([view(zeta, pad, 3), magnitude], axis=1) * (1.0 / self.scale)
        return torch.from_dlpack(stacked.astype(xp.float32)), magnitude[:, 2:-2, 2:-2]

    def coefficient(self, inputs) -> torch.Tensor:
        """C on the block plus 1 point, float32 `(blocks, by + 2, bx + 2)`."""
        if self.inference is not None:
            return torch.from_numpy(self.inference(inputs.numpy())[:, 0])
        out = torch.empty(len(inputs), inputs.shape[2] - 4, inputs.shape[3] - 4, device=self.device)
        with torch.inference_mode(), self._convolutions():
            for some in self._calls(inputs):
                given = self._given(self.theta.detach(), inputs[some])
                out[some] = self._evaluate(given, inputs[some])[:, 0]
        return out

    def gradients(self, inputs, target, weight) -> np.ndarray:
        """The gradients of the squared error of nu_e per block, float32 `(k, n)`; k = 1 for one batch.

        target: C of the physics; weight: |S|; both `(blocks, by + 2, bx + 2)` float64. The loss of a block is the mean
        over its points of ((C - target) |S| / scale)^2.
        """
        target = torch.from_dlpack(target).to(torch.float32)
        weight = torch.from_dlpack(weight).to(torch.float32) * (1.0 / self.scale)
        gradients: list[torch.Tensor] = []
        for some in self._calls(inputs):
            given = self._given(self.theta, inputs[some])
            with self._convolutions():
                error = (self._evaluate(given, inputs[some])[:, 0] - target[some]) * weight[some]
                loss = (error * error).mean(dim=(1, 2)).sum()
                parts = torch.autograd.grad(loss, given)
            rows = len(inputs[some]) if self._together else 1
            gradients.append(torch.cat([part.reshape(rows, -1) for part in parts], 1))
        return torch.cat(gradients).cpu().numpy()

    def step(self, gradient) -> None:
        """Do one optimiser step with the summed gradient, float32 (n,)."""
        self.steps += 1
        self.adam.step([np.asarray(gradient, np.float32)], 1.0, self.learning_rate, self.steps)
        self._load(self.weights)

    def state(self) -> dict[str, np.ndarray]:
        """The arrays of a checkpoint: parameters, both moments, and the number of steps."""
        return {"theta": self.weights, "steps": np.array([self.steps]), **self._moments()}

    def load(self, state) -> None:
        """Restore a `state()`."""
        self.weights[:] = state["theta"]
        for name, moment in self._moments().items():
            moment[:] = state[name]
        self.steps = int(state["steps"][0])
        self._load(self.weights)

    def _moments(self) -> dict[str, np.ndarray]:
        """The running means of the optimiser, by their names in checkpoints."""
        (mean,), (square,) = (self.adam.states[name] for name in Adam.NAMES)
        return {"first_moment": mean, "second_moment": square}

    def _load(self, theta) -> None:
        """Copy the parameters from the optimiser, in host memory, to the network."""
        self.theta = torch.tensor(theta, device=self.device, requires_grad=True)
        if self._compiled is not None:
            weights = {str(k): layer.numpy() for k, layer in enumerate(self._layers(self.theta.detach()))}
            if hasattr(self.inference, "load"):
                self.inference.load(weights)
            else:
                self.inference = self._compiled(self._network, weights)

    def _layers(self, theta):
        return [
            theta[a:b].view(shape)
            for a, b, shape in zip(
                self.bounds[:-1].tolist(), self.bounds[1:].tolist(), self.shapes, strict=True
            )
        ]

    def _calls(self, inputs) -> list[slice]:
        """The blocks of each call of the network."""
        blocks, _, height, width = inputs.shape
        if self._together:
            return slices(blocks, height * width)
        return [slice(None)] if self.batch == "rank" else [slice(k, k + 1) for k in range(blocks)]

    def _given(self, theta, inputs) -> list[torch.Tensor]:
        """The tensors that a call reads and whose gradients it gives: the parameters or, for a gradient of each of
        several blocks, every layer repeated for each without a copy."""
        if not self._together:
            return [theta]
        layers = self._layers(theta.detach())
        return [
            layer.expand(len(inputs), *layer.shape).requires_grad_(theta.requires_grad) for layer in layers
        ]

    def _evaluate(self, given, x):
        """The coefficient (blocks, 1, by + 2, bx + 2) for what `_given` returned."""
        layers = given if self._together else self._layers(given[0])
        return self._network(layers, x, *self._functions)

    def _network(self, layers, x, conv=F.conv2d, sigmoid=torch.sigmoid):
        w1, b1, w2, b2, w3, b3 = layers
        x = F.relu(conv(x, w1, b1))
        x = F.relu(conv(x, w2, b2))
        return self.limit * sigmoid(conv(x, w3, b3))
