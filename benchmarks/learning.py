"""Learning curves predicted: how far from the truth, on Fashion-MNIST in one process.

    python -m benchmarks.learning --data DIRECTORY            # of the four IDX files, as .gz
    python -m benchmarks.learning curves --data DIRECTORY --record tests/kernels/learning_curves.json

curves    accuracy on the test set of 784-128-128-10 with momentum 0.9 and rate eta (1 - t/T)^2, on three wires and four
          seeds: the last of 24 points predicted from the first 12, by the sum of learning rates, by steps, and as the
          value at half time

A wire is applied to the gradient of the whole batch; what `sign` leaves out is added to the next one (Seide 2014).
The last 4,000 images for training are left out.
"""

import gzip
import json
from dataclasses import dataclass
from functools import lru_cache, partial
from itertools import pairwise
from pathlib import Path

import numpy as np

from benchmarks.harness.results import parts_parser, run_parts
from kernels.learning.curves import predict
from kernels.progress import Progress

SIZES = (784, 128, 128, 10)
BATCH, MOMENTUM, RATE = 256, 0.9, 0.05
HELD_OUT = 4000
POINTS, CURVES = 24, 4  # of a curve; seeds
EPOCHS = 3


@dataclass
class State:
    """Weights, momenta and what the wire left out, (tensors), and how far the run is: steps, sum of learning rates."""

    weights: list
    momenta: list
    left: list
    steps: int = 0
    rates: float = 0.0


@dataclass(frozen=True)
class Data:
    """(images, labels) each."""

    train: tuple
    test: tuple


def read(directory: Path) -> Data:
    """Fashion-MNIST."""
    x, y = images(directory, "train")
    return Data((x[:-HELD_OUT], y[:-HELD_OUT]), images(directory, "t10k"))


def images(directory: Path, name: str):
    """(n, 784) float32 in 0 ... 1 and (n,) int64 labels as tensors; `name` is train or t10k."""
    import torch

    pixels = gzip.decompress((directory / f"{name}-images-idx3-ubyte.gz").read_bytes())
    labels = gzip.decompress((directory / f"{name}-labels-idx1-ubyte.gz").read_bytes())
    x = np.frombuffer(pixels, np.uint8, offset=16).reshape(-1, SIZES[0])
    y = np.frombuffer(labels, np.uint8, offset=8)
    return torch.from_numpy(x / np.float32(255)), torch.from_numpy(y.astype(np.int64))


def begun(seed: int) -> State:
    """A state before the first step."""
    import torch

    rng = np.random.default_rng([seed, 1])
    weights = []
    for fan_in, fan_out in pairwise(SIZES):
        weights.append(
            torch.from_numpy(rng.normal(0, (2 / fan_in) ** 0.5, (fan_out, fan_in)).astype(np.float32))
        )
        weights.append(torch.zeros(fan_out))
    return State(weights, *([torch.zeros_like(w) for w in weights] for _ in range(2)))


def outputs(weights, x):
    """(n, 10) of images (n, 784)."""
    import torch

    for k in range(0, len(weights), 2):
        x = torch.nn.functional.linear(x, weights[k], weights[k + 1])
        x = torch.relu(x) if k + 2 < len(weights) else x
    return x


def sent(gradient, wire: str, left):
    """What arrives of the gradient of a tensor; those of one dimension travel as they are. `left`, in place: what
    `sign` leaves out, which is added first."""
    import torch

    if wire == "float32" or gradient.ndim == 1:
        return gradient
    if wire == "fp8":
        return gradient.to(torch.float8_e5m2).to(torch.float32)
    whole = gradient + left
    up = whole >= 0
    arrived = torch.where(up, whole[up].mean(), whole[~up].mean())
    left.copy_(whole - arrived)
    return arrived


@lru_cache(4)
def order(seed: int, epoch: int, n: int) -> np.ndarray:
    """The order of n images in an epoch."""
    return np.random.default_rng([seed, 2, epoch]).permutation(n)


def step(state: State, wire: str, data: Data, seed: int, rate: float) -> None:
    """One step, in place."""
    import torch

    x, y = data.train
    epoch, place = divmod(state.steps, len(x) // BATCH)
    batch = torch.from_numpy(order(seed, epoch, len(x))[place * BATCH : (place + 1) * BATCH])
    leaves = [w.requires_grad_() for w in state.weights]
    loss = torch.nn.functional.cross_entropy(outputs(leaves, x[batch]), y[batch])
    gradients = torch.autograd.grad(loss, leaves)
    with torch.no_grad():
        for w, m, rest, gradient in zip(state.weights, state.momenta, state.left, gradients, strict=True):
            m.mul_(MOMENTUM).add_(sent(gradient, wire, rest))
            w.requires_grad_(False).add_(m, alpha=-rate)
    state.steps, state.rates = state.steps + 1, state.rates + rate


def accuracy(state: State, data: Data) -> float:
    """On the test set."""
    x, y = data.test
    return float((outputs(state.weights, x).argmax(1) == y).double().mean())


def curve(wire: str, seed: int, data: Data) -> dict:
    """Steps, sums of rates and accuracies at POINTS places of a run."""
    state, points = begun(seed), []
    every = EPOCHS * (len(data.train[0]) // BATCH) // POINTS
    for k in range(POINTS * every):
        step(state, wire, data, seed, RATE * (1 - k / (POINTS * every)) ** 2)
        if (k + 1) % every == 0:
            points.append((state.steps, state.rates, accuracy(state, data)))
    steps, rates, reached = zip(*points, strict=True)
    return {"wire": wire, "seed": seed, "steps": steps, "rates": rates, "accuracy": reached}


def errors(recorded: dict) -> dict[str, float]:
    """By abscissa, and of the last value: how far the end of a curve is from what its first half says."""
    y = recorded["accuracy"]
    half = len(y) // 2
    away = {"last value": abs(y[half - 1] - y[-1])}
    for name in ("rates", "steps"):
        x = recorded[name]
        away[name] = abs(predict(x[:half], y[:half], x[-1]).mean - y[-1])
    return away


def curve_rows(options) -> list[dict]:
    """Errors of predictions, over all curves."""
    data = read(options.data)
    tasks = {(w, s): partial(curve, w, s, data) for w in ("float32", "fp8", "sign") for s in range(CURVES)}
    recorded = each(tasks, options.quiet)
    if options.record:
        options.record.write_text(json.dumps({"curves": recorded}) + "\n")
    away = [errors(each) for each in recorded]
    rows = []
    for name in ("last value", "steps", "rates"):
        mean = float(np.mean([each[name] for each in away]))
        what = f"mean absolute error of {len(away)} curves, by {name}"
        rows.append({"part": "curves", "what": what, "figure": mean, "raw": [each[name] for each in away]})
    return rows


def each(tasks: dict, quiet: bool) -> list:
    """What the tasks return."""
    progress = Progress("benchmark", quiet=quiet)
    results = []
    for k, (name, task) in enumerate(tasks.items()):
        progress.show(k / len(tasks), f"{name}")
        results.append(task())
    progress.clear()
    return results


PARTS = {"curves": curve_rows}


def main(argv=None) -> None:
    """Measure the parts asked for."""
    parser = parts_parser("learning", __doc__, PARTS, 1)
    parser.add_argument("--data", type=Path, required=True, metavar="DIRECTORY", help="of Fashion-MNIST")
    parser.add_argument("--record", type=Path, metavar="FILE", help="write the curves there")
    run_parts("learning", parser, PARTS, argv)


if __name__ == "__main__":
    main()
