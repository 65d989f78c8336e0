"""A model of `miniapps.partition.models` as a problem of training: its sizes, its blocks, its inputs at a step."""

from __future__ import annotations

from dataclasses import fields, replace

import numpy as np

from kernels.guarantees import known
from miniapps.errors import UsageError
from miniapps.partition import models
from miniapps.partition.cuts.mesh import number, pairs
from miniapps.training import text
from miniapps.training.batches import Batches
from miniapps.training.data import COUNTS, EDGE
from miniapps.training.models import CLASSES
from miniapps.training.seeds import MASK, NOISE, generator

TEXT = ("gpt", "bert")
MASKED = 0.15  # of the bytes that bert is to tell (Devlin et al. 2019)
NO_TARGET = -100  # of torch's cross_entropy
NOISE_LEVEL = 0.5  # of images that unet is to clean, of the range of a pixel


def counts(config) -> tuple[int, int]:
    """Samples to learn from, and to test."""
    if config.data.name == "text":
        learned, tested = text.windows(config.model.tokens)
        return len(learned), len(tested)
    return COUNTS[config.data.name]


def deck(config):
    """The sizes of the model, and the blocks into which its axes are cut. Raises UsageError, ChoiceError."""
    model, options = models.model(config.model.name), config.model
    batch, micro = config.training.batch, config.training.micro
    known_sizes = dict(
        samples=batch, batch=batch // micro, width=options.hidden, heads=options.heads, layers=options.layers,
        tokens=options.tokens, vocabulary=text.VOCABULARY, feedforward=4 * options.hidden, classes=CLASSES,
        experts=options.experts, hidden=min(8, options.hidden), ff=min(8, 4 * options.hidden),
        stored=min(8, options.hidden),
    )  # fmt: skip
    if config.model.name not in TEXT:
        edge = EDGE[config.data.name]
        known_sizes |= dict(features=edge * edge)
    if config.model.name == "unet":
        cut = next(blocks for blocks in (7, 4, 2, 1) if edge % (2 * blocks) == 0)
        known_sizes |= dict(
            channels=1, height=edge, width=edge, filters=options.channels, rows=cut, columns=cut
        )
    if config.model.name == "moe":  # a micro-batch is a group: one sample, whose tokens are images
        known_sizes |= dict(
            samples=batch // micro, tokens=micro, hidden=4 * options.hidden,
            capacity=max(1, 2 * 2 * micro // options.experts),
        )  # fmt: skip
    names = {field.name for field in fields(model.Deck)}
    found = replace(model.Deck(), **{name: n for name, n in known_sizes.items() if name in names})
    there = tuple(axis.name for axis in model.axes(found))
    given = pairs(config.mesh.blocks, "--blocks", "batch=8,heads=4")
    for axis, count in given.items():
        known("axis of --blocks", axis, there)
        if axis in ("heads", "experts"):
            raise UsageError(f"--blocks {axis}={count}: each of the {axis} is a block; choose model.{axis}")
    found = replace(found, **{axis: number(n, f"--blocks {axis}={n}") for axis, n in given.items()})
    if reason := model.refused(found):
        raise UsageError(f"model.{reason}")
    return found


class Inputs:
    """The inputs of each step, whole, the same on all ranks: by the seeds and the step alone."""

    def __init__(self, config, data):
        self.config, self.data = config, data
        training = config.training
        self.count = len(data.images)
        self.batches = Batches(self.count, training.batch, training.batch, config.seeds.data)

    def at(self, step: int):
        """Tensors of torch, in the order of the model's inputs."""
        chosen = self.batches.images(step, 0)
        return self._of(self.data.images[chosen], self.data.labels[chosen], (step, 0))

    def test(self, number: int):
        """The same of the test samples: batch `number`."""
        batch = self.config.training.batch
        chosen = np.arange(number * batch, (number + 1) * batch) % len(self.data.test_images)
        return self._of(self.data.test_images[chosen], self.data.test_labels[chosen], (number, 1))

    def _of(self, samples: np.ndarray, labels: np.ndarray, when: tuple[int, int]):
        import torch

        config, name = self.config, self.config.model.name
        if name in TEXT:
            tokens = torch.from_numpy(samples.astype(np.int64))
            if name == "gpt":
                return tokens[:, :-1].contiguous(), tokens[:, 1:].contiguous()
            tokens = tokens[:, :-1].contiguous()
            drawn = generator(config.seeds.data, MASK, *when).random(tuple(tokens.shape))
            told = torch.from_numpy(drawn < MASKED)
            return torch.where(told, 0, tokens), torch.where(told, tokens, NO_TARGET)
        images = samples.astype(np.float32) / np.float32(self.data.largest)
        if name == "unet":
            noise = generator(config.seeds.data, NOISE, *when).standard_normal(images.shape, np.float32)
            noisy = images + np.float32(NOISE_LEVEL) * noise
            return torch.from_numpy(noisy[:, None]), torch.from_numpy(images[:, None])
        flat, classes = (
            torch.from_numpy(images.reshape(len(images), -1)),
            torch.from_numpy(labels.astype(np.int64)),
        )
        if name == "moe":
            groups = len(images) // config.training.micro
            return flat.reshape(groups, -1, flat.shape[1]), classes.reshape(groups, -1)
        return flat, classes
