"""Predicts learning curves by a Bayesian neural network with a layer of curves.

Klein, Falkner, Springenberg and Hutter, "Learning curve prediction with Bayesian neural networks", ICLR 2017. The
network reads the features x of a run (in AdaPrec its wire). Its outputs are the parameters a, b, c of five curves in
the time t, 0 < t <= 1, their weights, and the value at t = 1:

    y(x, t) = end(x) + sum_i weight_i(x) (curve_i(t) - curve_i(1))

| curve | value at t, parameters between 0 and 1 |
|---|---|
| vapor pressure | exp(-a - b / (10 t) - c log(t) / 10) |
| pow | a t^b |
| log power | -2 a / (1 + (t / e^(b / 10))^c) |
| exponential | -b e^(-10 a t) |
| Hill 3 | a / ((c / t)^b + 1) |

Its weights are sampled by stochastic gradient Hamiltonian Monte Carlo, whose step lengths are adapted while it burns in
(Springenberg, Klein, Falkner and Hutter, "Bayesian optimization with robust Bayesian neural networks", NIPS 2016). All
points are in each gradient. One seed gives one result on one machine; the bits of torch follow the processor.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise

import numpy as np
import torch
from numpy.typing import ArrayLike

from kernels.learning.curves import Prediction, checked

HIDDEN = (64, 64, 64)
CURVES, PARAMETERS = 5, 13
# Of the sampler: length of a step, and how fast it forgets its direction. Longer steps heat the weights: then points
# are found noisier than they are.
STEP, DECAY = 0.003, 0.05
BURN_IN, KEPT, EVERY = 2500, 50, 20  # steps before the first sample; samples; steps between two
NOISE, SPREAD = np.log(1e-4), 2.0  # prior of the logarithm of the points' variance: mean, standard deviation
LEAST_T = 1e-3  # instead of 0, at which curves are not finite


def predict(
    features: ArrayLike, curves: Sequence[tuple[ArrayLike, ArrayLike]], at: float, seed: int = 0
) -> list[Prediction]:
    """The value of each of several learning curves at the abscissa `at`, from all of them.

    features: (curves, k), float64; curves: for each its x (n,), not negative and ascending, and y (n,), between 0 and 1
    (accuracies). x is 0 at the start of training, and `at` at least the last of all. Raises ValueError as
    `kernels.learning.curves.predict`, and for features that are not one row for each curve.
    """
    known = np.asarray(features, np.float64)
    if known.ndim != 2 or len(known) != len(curves) or not len(curves):
        raise ValueError(
            f"features of shape {known.shape} of {len(curves)} learning curves: give a row for each, at least one"
        )
    points = [checked(x, y, at) for x, y in curves]
    scale = known.std(axis=0)
    rows = (known - known.mean(axis=0)) / np.where(scale > 0, scale, 1.0)
    of = torch.from_numpy(np.repeat(np.arange(len(points)), [len(x) for x, _ in points]))
    t = np.concatenate([x for x, _ in points]) / (at or 1.0)
    y = torch.from_numpy(np.concatenate([y for _, y in points]))
    network, inputs = Network(rows.shape[1]), torch.from_numpy(rows)
    times = torch.from_numpy(np.maximum(t, LEAST_T))

    def energy(weights: torch.Tensor) -> torch.Tensor:
        apart = values(network(weights, inputs)[of], times) - y
        noise = weights[-1]
        prior = weights[:-1].square().sum() / 2 + ((noise - NOISE) / SPREAD) ** 2 / 2
        return (apart.square() * torch.exp(-noise) + noise).sum() / 2 + prior

    generator, threads = torch.Generator().manual_seed(seed), torch.get_num_threads()
    torch.set_num_threads(1)  # matrices are too small for more, which wait for each other
    try:
        sampled = samples(energy, network.start(generator), generator)
    finally:
        torch.set_num_threads(threads)
    with torch.no_grad():
        found = np.array([torch.sigmoid(network(weights, inputs)[:, -1]).numpy() for weights in sampled])
    noise = float(np.mean(np.exp([float(weights[-1]) for weights in sampled])))
    spread = np.sqrt(found.var(axis=0) + noise)
    return [
        Prediction(float(mean), float(sigma)) for mean, sigma in zip(found.mean(axis=0), spread, strict=True)
    ]


class Network:
    """The network for k features. Its weights are one vector, float64, whose last number is the logarithm of the
    variance of a point."""

    def __init__(self, features: int):
        widths = (features, *HIDDEN, PARAMETERS + CURVES + 1)
        self.shapes = list(pairwise(widths))

    def start(self, generator: torch.Generator) -> torch.Tensor:
        """Weights of a random network."""
        parts = []
        for fan_in, fan_out in self.shapes:
            drawn = torch.randn(fan_in * fan_out, generator=generator, dtype=torch.float64)
            parts += [drawn / max(fan_in, 1) ** 0.5, torch.zeros(fan_out, dtype=torch.float64)]
        return torch.cat([*parts, torch.full((1,), NOISE, dtype=torch.float64)])

    def __call__(self, weights: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
        """The outputs (n, 19) for features x (n, k): of `values`."""
        first = 0
        for number, (fan_in, fan_out) in enumerate(self.shapes):
            last = first + fan_in * fan_out
            x = torch.addmm(weights[last : last + fan_out], x, weights[first:last].view(fan_in, fan_out))
            x = torch.tanh(x) if number < len(HIDDEN) else x
            first = last + fan_out
        return x


def values(outputs: torch.Tensor, t: torch.Tensor) -> torch.Tensor:
    """The values (n,) of curves with outputs (n, 19) of the network at times t (n,)."""
    given, weighed, end = outputs.split((PARAMETERS, CURVES, 1), dim=1)
    a1, b1, c1, a2, b2, a3, b3, c3, a4, b4, a5, b5, c5 = torch.sigmoid(given).unbind(1)
    log, third = torch.log(t), b5 * torch.log(c5)
    curves = (
        torch.exp(-a1) * (torch.exp(-b1 / (10 * t) - c1 * log / 10) - torch.exp(-b1 / 10)),
        a2 * (torch.exp(b2 * log) - 1),
        2 * a3 * (torch.sigmoid(b3 * c3 / 10) - torch.sigmoid(c3 * (b3 / 10 - log))),
        b4 * (torch.exp(-10 * a4) - torch.exp(-10 * a4 * t)),
        a5 * (torch.sigmoid(b5 * log - third) - torch.sigmoid(-third)),
    )
    return torch.sigmoid(end[:, 0]) + (torch.softmax(weighed, 1) * torch.stack(curves, 1)).sum(1)


def samples(
    energy: Callable[[torch.Tensor], torch.Tensor], weights: torch.Tensor, generator: torch.Generator
) -> list[torch.Tensor]:
    """KEPT samples of exp(-energy(weights)), float64 vectors like `weights`, after BURN_IN steps in which the scale of
    each weight's gradient is learned."""
    weights = weights.clone()
    momentum = torch.zeros_like(weights)
    span, mean, square = torch.ones_like(weights), torch.ones_like(weights), torch.ones_like(weights)
    kept = []
    for step in range(BURN_IN + KEPT * EVERY):
        leaf = weights.detach().requires_grad_()
        (slope,) = torch.autograd.grad(energy(leaf), leaf)
        if step < BURN_IN:
            part = 1 / (span + 1)
            span += 1 - span * mean.square() / square
            mean += part * (slope - mean)
            square += part * (slope.square() - square)
        inverse = 1 / square.sqrt()
        drawn = torch.randn(len(weights), generator=generator, dtype=torch.float64)
        noise = (2 * DECAY * STEP**2 * inverse).sqrt() * drawn
        momentum = (1 - DECAY) * momentum - STEP**2 * inverse * slope + noise
        weights = weights + momentum
        if step >= BURN_IN and (step - BURN_IN) % EVERY == EVERY - 1:
            kept.append(weights)
    return kept
