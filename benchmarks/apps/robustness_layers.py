"""The margins at which orders of the sums of both layers of a perceptron flip its class."""

from __future__ import annotations

import numpy as np

from benchmarks.apps.classifiers import DRAWN, MARGINS, Network, in_order, of_classes
from kernels.sums import worst
from kernels.tree import unit_roundoff


def logits(x: np.ndarray, network: Network) -> tuple[np.ndarray, np.ndarray]:
    """(the outputs (classes,) of an image, the sums of the magnitudes of their terms), in float64, whose rounding is
    far below all margins here."""
    (below, biases_below), (weights, biases) = (
        (w.astype(np.float64), b.astype(np.float64)) for w, b in network
    )
    hidden = np.maximum(below @ x.astype(np.float64) + biases_below, 0)
    return weights @ hidden + biases, np.abs(weights) @ hidden + np.abs(biases)


def flipped_twice(a: np.ndarray, b: np.ndarray, network: Network, seed: int) -> dict[str, float]:
    """The largest margins at which drawn and worst orders of both layers give two classes, of images between a and b,
    which have other classes; 0 if none does. And `bound`, above which, to first order, no order flips."""
    top = int(np.argmax(logits(a, network)[0]))
    a, b = a.astype(np.float64), b.astype(np.float64)
    low, high = 0.0, 1.0  # the class of a, and another one
    while high - low > 1e-13:
        middle = (low + high) / 2
        same = int(np.argmax(logits(a + middle * (b - a), network)[0])) == top
        low, high = (middle, high) if same else (low, middle)
    second = int(np.argmax(logits(a + high * (b - a), network)[0]))

    def at(part: float) -> tuple[np.ndarray, float]:
        """(the image in float32, its relative margin)"""
        x = (a + part * (b - a)).astype(np.float32)
        outputs, sizes = logits(x, network)
        return x, float((outputs[top] - outputs[second]) / (sizes[top] + sizes[second]))

    slope = at(low - 1e-4)[1] / 1e-4
    near = [at(low - wanted / slope) for wanted in MARGINS]
    near = sorted(((x, margin) for x, margin in near if margin > 0), key=lambda each: each[1])
    rng, found = np.random.default_rng(seed), {"drawn": 0.0, "worst": 0.0}
    least, most = -1, len(near)  # flips, and does not
    while most - least > 1:
        middle = (least + most) // 2
        flips = worst_flips(near[middle][0], network, top, second, seed)
        least, most = (middle, most) if flips else (least, middle)
    found["worst"] = near[least][1] if least >= 0 else 0.0
    for x, margin in reversed(near[: least + 1]):
        if drawn_flips(x, network, top, second, rng):
            found["drawn"] = margin
            break
    return {**found, "bound": bound_of_layers(near[0][0], network, top, second)}


def worst_flips(x: np.ndarray, network: Network, top: int, second: int, seed: int) -> bool:
    """Whether orders that a search finds give both classes: hidden sums as low or high as one class wants them, then
    the sums of both classes."""
    (below, biases_below), (weights, biases) = network
    least, most = np.zeros(len(below), np.float32), np.zeros(len(below), np.float32)
    for k, terms in enumerate(of_classes(x, below, biases_below)):
        reached = worst.search(terms, seed=seed)
        least[k], most[k] = max(reached.lowest.value, 0), max(reached.highest.value, 0)
    wanted = weights[top] > weights[second]
    against, favoured = np.where(wanted, least, most), np.where(wanted, most, least)
    first, other = of_classes(against, weights, biases)[[top, second]]
    if not worst.search(first, seed=seed).lowest.value < worst.search(other, seed=seed).highest.value:
        return False
    first, other = of_classes(favoured, weights, biases)[[top, second]]
    return bool(worst.search(first, seed=seed).highest.value > worst.search(other, seed=seed).lowest.value)


def drawn_flips(x: np.ndarray, network: Network, top: int, second: int, rng: np.random.Generator) -> bool:
    """Whether DRAWN orders of the sums of both layers give both classes."""
    (below, biases_below), (weights, biases) = network
    hidden = np.empty((DRAWN, len(below)), np.float32)
    for k, terms in enumerate(of_classes(x, below, biases_below)):
        hidden[:, k] = in_order(rng.permuted(np.tile(terms, (DRAWN, 1)), axis=1))
    hidden = np.maximum(hidden, 0)
    sums = []
    for k in (top, second):
        terms = np.concatenate([hidden * weights[k], np.full((DRAWN, 1), biases[k])], axis=1)
        sums.append(in_order(rng.permuted(terms, axis=1)))
    lost = sums[0] < sums[1]
    return bool(lost.any() and not lost.all())


def bound_of_layers(x: np.ndarray, network: Network, top: int, second: int) -> float:
    """The bound of all orders to first order in u: (n - 1) u of the magnitudes of each sum, times the weight of a
    hidden neuron in the margin. Relative to the magnitudes of the terms of both classes."""
    (below, biases_below), (weights, _) = network
    u = unit_roundoff("float32")
    sizes = np.abs(of_classes(x, below, biases_below).astype(np.float64)).sum(axis=1)
    reached = below @ x + biases_below > 0
    moved = below.shape[1] * u * float((sizes * np.abs(weights[top] - weights[second]))[reached].sum())
    _, magnitudes = logits(x, network)
    return weights.shape[1] * u + moved / float(magnitudes[top] + magnitudes[second])
