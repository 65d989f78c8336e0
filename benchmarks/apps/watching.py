"""Times a training step on a CPU with `fpna.watch` and without.

    python -m benchmarks.apps.watching --json benchmarks/results/watching.json

A residual network on images of 32 x 32 and a transformer of width 256 train on one rank and one thread. Steps with and
without a watch alternate; the table has the processor time of a step, and the ratio within a round. The last rows
of a model are the time to hash the arrays that a watched step records, or to take their sizes, and nothing else; `MB`
and `records` count these arrays.
"""

from __future__ import annotations

import argparse
import contextlib
import functools
import tempfile
import time
from pathlib import Path

import numpy as np
import torch
from torch import nn

import fpna
from benchmarks.harness.results import add_quiet, machine, report
from benchmarks.harness.turns import in_turn, ratio
from kernels.sizes import sizes
from miniapps.trace.schema import fingerprint_rows
from miniapps.trace.writer import Tracer


class Residual(nn.Module):
    """Two convolutions with batch normalisation, and a skip connection."""

    def __init__(self, channels: int):
        super().__init__()
        self.first, self.second = (nn.Conv2d(channels, channels, 3, padding=1, bias=False) for _ in range(2))
        self.before, self.after = nn.BatchNorm2d(channels), nn.BatchNorm2d(channels)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.relu(x + self.after(self.second(torch.relu(self.before(self.first(x))))))


def images() -> nn.Module:
    """A residual network of nine convolutions, 16 to 64 channels."""
    stages: list[nn.Module] = [nn.Conv2d(3, 16, 3, padding=1)]
    for channels in (16, 32):
        stages += [Residual(channels), nn.Conv2d(channels, 2 * channels, 3, stride=2, padding=1)]
    return nn.Sequential(*stages, Residual(64), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(64, 10))


def tokens() -> nn.Module:
    """A transformer encoder of four layers, width 256."""
    layer = nn.TransformerEncoderLayer(256, 8, 1024, batch_first=True, dropout=0.0)
    return nn.Sequential(nn.TransformerEncoder(layer, 4, enable_nested_tensor=False), nn.Linear(256, 256))


MODELS = {
    "residual network, batch 32": (images, (32, 3, 32, 32)),
    "transformer, 8 x 128 tokens": (tokens, (8, 128, 256)),
}


def step_of(make, shape, out: Path | None, **options):
    """(a function that trains one step, with a watch if there is an `out`; the stack that ends the recording)."""
    torch.manual_seed(1)
    model, x = make(), torch.randn(*shape)
    optimizer = torch.optim.AdamW(model.parameters())
    stack = contextlib.ExitStack()
    recording = stack.enter_context(fpna.record(out)) if out else None
    if recording:
        fpna.watch(model, recording, optimizer=optimizer, **options)
    number = 0

    def step() -> float:
        nonlocal number
        number += 1
        begin = time.process_time()
        if recording:
            recording.step(number)
        optimizer.zero_grad()
        model(x).square().mean().backward()
        optimizer.step()
        return time.process_time() - begin

    return step, stack


def recorded_by(step) -> list[np.ndarray]:
    """Copies of the arrays that a watched step records."""
    arrays: list[np.ndarray] = []
    plain = Tracer.fingerprints

    def kept(self, name, blocks, given, sample=1):
        arrays.append(np.array(given))
        plain(self, name, blocks, given, sample)

    Tracer.fingerprints = kept
    try:
        step()
    finally:
        Tracer.fingerprints = plain
    return arrays


def each_of(call, arrays) -> float:
    begin = time.process_time()
    for array in arrays:
        call(array)
    return time.process_time() - begin


def ten(step) -> float:
    return sum(step() for _ in range(10))


WAYS = {
    "none": None,
    "every step": {"every": 1},
    "every step, sample=16": {"every": 1, "sample": 16},
    "every tenth step": {},
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--json", help="write the rows to this file")
    add_quiet(parser)
    args = parser.parse_args()
    torch.set_num_threads(1)
    where, rows = machine(), []
    for name, (make, shape) in MODELS.items():
        with tempfile.TemporaryDirectory() as scratch:
            made = {
                way: step_of(
                    make, shape, Path(scratch) / way if options is not None else None, **(options or {})
                )
                for way, options in WAYS.items()
            }
            steps = {way: step for way, (step, _) in made.items()}
            for step in steps.values():
                step()
            arrays = recorded_by(steps["every step"])
            steps["only hashes"] = functools.partial(each_of, fingerprint_rows, arrays)
            steps["only sizes"] = functools.partial(each_of, sizes, arrays)
            steps["only sizes, sample=16"] = functools.partial(
                each_of, functools.partial(sizes, sample=16), arrays
            )
            seconds = in_turn({way: functools.partial(ten, step) for way, step in steps.items()}, args.rounds)
            for _, stack in made.values():
                stack.close()
        for way in steps:
            rows.append({"model": name, "watched": way, "ms": sorted(seconds[way])[len(seconds[way]) // 2] * 100,
                         "/ none": ratio(seconds[way], seconds["none"]), "records": len(arrays),
                         "MB": sum(array.nbytes for array in arrays) / 1e6})  # fmt: skip
    report("watching", rows, where, args.json)


if __name__ == "__main__":
    main()
