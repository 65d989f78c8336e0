"""Measures errors of predicted learning curves, and policies against fixed wires, on Fashion-MNIST in one process.

    python -m benchmarks.learning --data DIRECTORY            # with the four IDX files, as .gz
    python -m benchmarks.learning curves --data DIRECTORY --record tests/kernels/learning_curves.json

curves    accuracy on the test set of 784-128-128-10 with momentum 0.9 and rate eta (1 - t/T)^2, on three wires and four
          seeds: predicts the last of 24 points from the first 12, by the sum of learning rates and by steps, each
          with curves and with a Bayesian network, and as the value at half time; --recorded FILE: of recorded curves
policy    adaprec and cautious, and every fixed wire, in one time budget over links of 20 and 200 MB/s: regret in
          accuracy. Time is computed, not measured: COMPUTE_S per step, and twice the bytes of the gradient; nothing
          for evaluations and decisions

A wire is applied to the gradient of the whole batch; the error of `sign` is added to the next gradient (Seide 2014).
The last 4,000 training images are held out.
"""

import gzip
import json
from dataclasses import dataclass
from functools import lru_cache, partial
from itertools import pairwise
from pathlib import Path

import numpy as np

from benchmarks.harness.regret import regret
from benchmarks.harness.results import parts_parser, row, run_parts
from benchmarks.harness.turns import ratio
from kernels.learning.adaprec import AdaPrec
from kernels.learning.cautious import Cautious
from kernels.learning.curves import predict
from kernels.learning.trials import SEGMENTS, Trials
from kernels.progress import Progress

SIZES = (784, 128, 128, 10)
BATCH, MOMENTUM, RATE = 256, 0.9, 0.05
HELD_OUT = 4000
POINTS, CURVES = 24, 4  # points of a curve; seeds
EPOCHS = 3
COMPUTE_S = 5.5e-3  # of a step: an epoch of 235 steps takes 1.3 s
BITS = {"float32": 32, "fp8": 8, "sign": 1, "table:n=1": 1}
LINKS = {"20 MB/s": 20e6, "200 MB/s": 200e6}
BUDGET_STEPS = 1200  # steps of the cheapest wire in the budget
EVALUATED = 4  # evaluations in a task
POLICIES = ("adaprec", "cautious")


@dataclass
class State:
    """Weights, momenta and the errors of the wire (tensors), and the progress of the run: steps, sum of learning rates,
    seconds."""

    weights: list
    momenta: list
    left: list
    steps: int = 0
    rates: float = 0.0
    seconds: float = 0.0

    def copy(self) -> "State":
        """A deep copy of the state."""
        tensors = ([each.clone() for each in own] for own in (self.weights, self.momenta, self.left))
        return State(*tensors, self.steps, self.rates, self.seconds)


@dataclass(frozen=True)
class Data:
    """(images, labels) for each set; `held_out` is disjoint from `train`."""

    train: tuple
    held_out: tuple
    test: tuple


def read(directory: Path) -> Data:
    """Reads Fashion-MNIST."""
    x, y = images(directory, "train")
    return Data((x[:-HELD_OUT], y[:-HELD_OUT]), (x[-HELD_OUT:], y[-HELD_OUT:]), images(directory, "t10k"))


def images(directory: Path, name: str):
    """(n, 784) float32 in 0 ... 1 and (n,) int64 labels as tensors; `name` is train or t10k."""
    import torch

    pixels = gzip.decompress((directory / f"{name}-images-idx3-ubyte.gz").read_bytes())
    labels = gzip.decompress((directory / f"{name}-labels-idx1-ubyte.gz").read_bytes())
    x = np.frombuffer(pixels, np.uint8, offset=16).reshape(-1, SIZES[0])
    y = np.frombuffer(labels, np.uint8, offset=8)
    return torch.from_numpy(x / np.float32(255)), torch.from_numpy(y.astype(np.int64))


def begun(seed: int) -> State:
    """The state before the first step."""
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
    """The outputs (n, 10) for images (n, 784)."""
    import torch

    for k in range(0, len(weights), 2):
        x = torch.nn.functional.linear(x, weights[k], weights[k + 1])
        x = torch.relu(x) if k + 2 < len(weights) else x
    return x


def sent(gradient, wire: str, left):
    """The gradient of a tensor after the wire; gradients with one dimension do not change. `sign` adds the error `left`
    of the last gradient first, and updates it in place."""
    import torch

    if wire == "float32" or gradient.ndim == 1:
        return gradient
    if wire == "fp8":
        return gradient.to(torch.float8_e5m2).to(torch.float32)
    if wire == "sign":
        whole = gradient + left
        up = whole >= 0
        arrived = torch.where(up, whole[up].mean(), whole[~up].mean())
        left.copy_(whole - arrived)
        return arrived
    return torch.sign(gradient) * torch.quantile(gradient.abs().flatten(), 0.99)  # table:n=1


@lru_cache(4)
def order(seed: int, epoch: int, n: int) -> np.ndarray:
    """The order of n images in an epoch."""
    return np.random.default_rng([seed, 2, epoch]).permutation(n)


def step(state: State, wire: str, data: Data, seed: int, rate: float, seconds: float) -> None:
    """Makes one step, in place."""
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
    state.steps, state.rates, state.seconds = state.steps + 1, state.rates + rate, state.seconds + seconds


def accuracy(state: State, samples: tuple) -> float:
    """The accuracy on some of the samples of Data."""
    x, y = samples
    return float((outputs(state.weights, x).argmax(1) == y).double().mean())


def loss(state: State, data: Data) -> float:
    """The loss on the held-out images."""
    import torch

    x, y = data.held_out
    return float(torch.nn.functional.cross_entropy(outputs(state.weights, x), y))


def curve(wire: str, seed: int, data: Data) -> dict:
    """Steps, sums of rates and accuracies at POINTS places of a run."""
    state, points = begun(seed), []
    every = EPOCHS * (len(data.train[0]) // BATCH) // POINTS
    for k in range(POINTS * every):
        step(state, wire, data, seed, RATE * (1 - k / (POINTS * every)) ** 2, 0.0)
        if (k + 1) % every == 0:
            points.append((state.steps, state.rates, accuracy(state, data.test)))
    steps, rates, reached = zip(*points, strict=True)
    return {"wire": wire, "seed": seed, "steps": steps, "rates": rates, "accuracy": reached}


def errors(recorded: list[dict]) -> dict[str, list[float]]:
    """The absolute errors of the ends of curves, predicted from their first halves, by predictor. The network gets all
    curves at once, with their wires as features."""
    from kernels.learning import bayesian

    half, wires = len(recorded[0]["accuracy"]) // 2, sorted({one["wire"] for one in recorded})
    features = [[float(one["wire"] == wire) for wire in wires] for one in recorded]
    ends = [one["accuracy"][-1] for one in recorded]
    found = {"last value": [one["accuracy"][half - 1] for one in recorded]}
    for name in ("steps", "rates"):
        begun = [(one[name][:half], one["accuracy"][:half]) for one in recorded]
        at = [one[name][-1] for one in recorded]
        found[name] = [predict(*curve, end).mean for curve, end in zip(begun, at, strict=True)]
        found[f"network and {name}"] = [p.mean for p in bayesian.predict(features, begun, max(at))]
    return {name: np.abs(np.subtract(means, ends)).tolist() for name, means in found.items()}


def curve_rows(options) -> list[dict]:
    """Errors of predictions, over all curves and over those of each wire."""
    if options.recorded:
        recorded = json.loads(options.recorded.read_text())["curves"]
    else:
        data = read(options.data)
        tasks = {
            (w, s): partial(curve, w, s, data) for w in ("float32", "fp8", "sign") for s in range(CURVES)
        }
        recorded = each(tasks, options.quiet)
    if options.record:
        options.record.write_text(json.dumps({"curves": recorded}) + "\n")
    rows = []
    for name, away in errors(recorded).items():
        of = {"": away}
        for one, error in zip(recorded, away, strict=True):
            of.setdefault(f"{one['wire']}, ", []).append(error)
        for wire, own in of.items():
            what = f"{wire}mean absolute error of {len(own)} curves, by {name}"
            rows.append(row("curves", what, float(np.mean(own)), own))
    return rows


def seconds_of(wire: str, speed: float) -> float:
    """The seconds of a step over a link of `speed` bytes per second."""
    elements = sum(a * b for a, b in pairwise(SIZES))
    return COMPUTE_S + 2 * elements * BITS[wire] / 8 / speed


def fixed(wire: str, seed: int, speed: float, budget: float, data: Data) -> float:
    """The accuracy of a fixed wire after the budget."""
    state, seconds = begun(seed), seconds_of(wire, speed)
    while state.seconds + seconds <= budget:
        step(state, wire, data, seed, RATE * (1 - state.seconds / budget) ** 2, seconds)
    return accuracy(state, data.test)


def adaptive(name: str, seed: int, speed: float, budget: float, data: Data) -> tuple[float, Trials]:
    """The accuracy after the budget, and the policy with its decisions. A step back does not return the spent time."""
    by_accuracy = name == "adaprec"
    policy: Trials = (
        AdaPrec(tuple(BITS), budget, steps=BUDGET_STEPS // SEGMENTS)
        if by_accuracy
        else Cautious(tuple(BITS), budget)
    )
    kept = {policy.state: begun(seed)}
    while (task := policy.task()) is not None:
        state, begin, measured = kept[task.begin].copy(), policy.spent, []
        state.seconds = begin
        seconds = seconds_of(task.wire, speed)
        count = max(1, min(round(task.seconds / seconds), task.steps or round(task.seconds / seconds)))
        marks = set(np.linspace(0, count, EVALUATED + 1).round().astype(int)[1:].tolist())
        for k in range(count):
            step(state, task.wire, data, seed, RATE * max(0.0, 1 - state.seconds / budget) ** 2, seconds)
            if k + 1 in marks:
                value = accuracy(state, data.held_out) if by_accuracy else loss(state, data)
                measured.append((state.steps if by_accuracy else state.rates, value))
        kept[task.end] = state
        policy.done(state.seconds - begin, *zip(*measured, strict=True))
    return accuracy(kept[policy.state], data.test), policy


def policy_rows(options) -> list[dict]:
    """Accuracies and regret."""
    data, rows, seeds = read(options.data), [], range(options.seeds)
    for link, speed in LINKS.items():
        budget = BUDGET_STEPS * min(seconds_of(wire, speed) for wire in BITS)
        tasks = {(w, s): partial(fixed, w, s, speed, budget, data) for w in BITS for s in seeds}
        reached = dict(zip(tasks, each(tasks, options.quiet), strict=True))
        by_wire = {wire: [reached[wire, seed] for seed in seeds] for wire in BITS}
        for wire, values in by_wire.items():
            rows.append(row("policy", f"{link}, {wire}", spread(values), values))
        for name in POLICIES:
            tasks = {s: partial(adaptive, name, s, speed, budget, data) for s in seeds}
            runs = each(tasks, options.quiet)
            values = [value for value, _ in runs]
            lost = regret(by_wire, values)
            tried = np.mean([policy.tried / policy.spent for _, policy in runs])
            raw = [[decision.wire for decision in policy.decisions] for _, policy in runs]
            figure = f"{lost.mean:.4f} ({lost.low:.4f} to {lost.high:.4f}) of {lost.best}"
            rows += [
                row("policy", f"{link}, {name}", spread(values), raw),
                row("policy", f"{link}, regret, {name}", figure, values),
                row("policy", f"{link}, time of trials, {name}", float(tried)),
            ]
    return rows


def each(tasks: dict, quiet: bool) -> list:
    """Runs the tasks; returns their results."""
    progress = Progress("benchmark", quiet=quiet)
    results = []
    for k, (name, task) in enumerate(tasks.items()):
        progress.show(k / len(tasks), f"{name}")
        results.append(task())
    progress.clear()
    return results


def spread(values: list[float]) -> dict[str, float]:
    """Median, minimum and maximum."""
    return ratio(values, [1.0] * len(values))


PARTS = {"curves": curve_rows, "policy": policy_rows}


def main(argv=None) -> None:
    """Measures the requested parts."""
    parser = parts_parser("learning", __doc__, PARTS, 1)
    parser.add_argument(
        "--data", type=Path, metavar="DIRECTORY", help="directory of Fashion-MNIST; needed without --recorded"
    )
    parser.add_argument("--seeds", type=int, default=3, help="seeds of the part policy (default %(default)s)")
    parser.add_argument("--record", type=Path, metavar="FILE", help="write the curves to this file")
    parser.add_argument("--recorded", type=Path, metavar="FILE", help="predict the curves in this file")
    asked = parser.parse_args(argv)
    if not asked.data and (not asked.recorded or "policy" in (asked.parts or PARTS)):
        parser.error("--data DIRECTORY: give the directory of Fashion-MNIST, or `curves --recorded FILE`")
    run_parts("learning", parser, PARTS, argv)


if __name__ == "__main__":
    main()
