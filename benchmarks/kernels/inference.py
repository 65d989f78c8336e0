"""Times networks by the backends of `kernels.inference`, against torch eager.

    python -m benchmarks.kernels.inference --json benchmarks/results/inference.json

Networks: `mlp` and `cnn` of `miniapps.training` (decks S and M) and the closure of `miniapps.coupled`, random weights.
All backends of a network and batch run in turn, in rotating order, in one process. `to eager`: the ratio of the time to
that of torch eager in the same round, median with extremes. `CPU ms`: the least processor time of a call, which a busy
machine disturbs least. `CPU to eager`: the ratio of processor times.
"""

import argparse
import os
import time
from collections.abc import Iterable
from functools import partial
from importlib.metadata import distributions, version
from types import SimpleNamespace

import numpy as np

import kernels.inference  # noqa: F401 - registers its variants
from benchmarks.harness.results import add_quiet, machine, report
from benchmarks.harness.turns import in_turn, ratio, timed
from kernels.registry import variants

LEAST = 5e-3  # seconds of a sample, at least
NETWORKS = ("mlp", "cnn", "closure")


def main(argv=None) -> None:
    """Measures and prints the table."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.kernels.inference", description=__doc__.splitlines()[0]
    )
    parser.add_argument("--networks", nargs="+", default=NETWORKS, choices=NETWORKS)
    parser.add_argument("--batches", type=int, nargs="+", default=[1, 64], help="samples of a call")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--json", help="write table and raw values to this file")
    add_quiet(parser)
    asked = parser.parse_args(argv)
    rows = [row for name in asked.networks for row in measured(name, asked)]
    where = machine()
    where["packages"] |= _versions(v.backend for v in variants("inference"))
    where["niceness"] = os.nice(0)
    report("networks by backend", rows, where, asked.json)


def _versions(backends: Iterable[str]) -> dict[str, str]:
    """{wheel: version} of the installed wheels of these backends."""
    return {name: version(name) for name in sorted({*backends} & {d.name for d in distributions()})}


def network(name: str):
    """(forward, weights, shape of a sample) of a network of the applications."""
    from miniapps.coupled.network import INPUTS, shapes
    from miniapps.training.models import of_images

    if name == "closure":
        from torch import sigmoid
        from torch.nn.functional import conv2d, relu

        def closure(tensors, x):  # as in miniapps.coupled.surrogate
            w1, b1, w2, b2, w3, b3 = tensors
            x = relu(conv2d(x, w1, b1))
            x = relu(conv2d(x, w2, b2))
            return 0.5 * sigmoid(conv2d(x, w3, b3))

        of = dict(zip(("w1", "b1", "w2", "b2", "w3", "b3"), shapes(8), strict=True))
        return closure, drawn(of), (INPUTS, 38, 38)
    model = SimpleNamespace(channels=8, hidden=128 if name == "mlp" else 64)
    module = of_images()[name]
    return module.forward, drawn(module.shapes(model, 28)), (28, 28)


def drawn(shapes: dict) -> dict[str, np.ndarray]:
    """Normal weights, scaled so that activations keep their size."""
    rng = np.random.default_rng(0)
    return {
        name: (rng.standard_normal(shape) / np.sqrt(max(1, int(np.prod(shape[1:]))))).astype(np.float32)
        for name, shape in shapes.items()
    }


def measured(name: str, asked: argparse.Namespace) -> list[dict]:
    """Rows of one network."""
    forward, weights, sample = network(name)
    there = [v for v in variants("inference") if v.unavailable() is None]
    made = {v.name: v(forward, weights, sample, threads=asked.threads) for v in there}
    flops = made["static"].schedule.cost()["flops"]
    rows = []
    for batch in asked.batches:
        x = np.random.default_rng(1).standard_normal((batch, *sample)).astype(np.float32)
        calls = {backend: partial(one, x) for backend, one in made.items()}
        repeats = {backend: max(1, round(LEAST / timed(call, 2))) for backend, call in calls.items()}
        both = in_turn(
            {backend: partial(clocked, calls[backend], repeats[backend]) for backend in calls},
            asked.rounds,
            asked.quiet,
        )
        wall = {backend: [w for w, _ in of] for backend, of in both.items()}
        work = {backend: [c for _, c in of] for backend, of in both.items()}
        expected = calls["eager"]()
        rows += [
            {
                "network": name,
                "backend": backend,
                "batch": batch,
                "threads": asked.threads,
                "ms": float(np.median(wall[backend])) * 1e3,
                "to eager": ratio(wall[backend], wall["eager"]),
                "CPU ms": min(work[backend]) * 1e3,
                "CPU to eager": ratio(work[backend], work["eager"]),
                "GFLOP/s": flops * batch / min(wall[backend]) / 1e9,
                "difference": float(np.abs(calls[backend]() - expected).max()),
                "raw": both[backend],
            }
            for backend in calls
        ]
    return rows


def clocked(call, repeats: int) -> tuple[float, float]:
    """Wall and processor seconds per call, over `repeats` calls."""
    begin = time.process_time()
    wall = timed(call, repeats)
    return wall, (time.process_time() - begin) / repeats


if __name__ == "__main__":
    main()
