"""A model of `miniapps.partition.models` as a problem: its sizes, its blocks, and its inputs at each step."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from kernels.allreduce import Reduction
from kernels.guarantees import known
from miniapps.errors import UsageError
from miniapps.learning.samples import images
from miniapps.learning.samples.batches import Batches
from miniapps.learning.samples.images import CLASSES, COUNTS, EDGE, Labelled
from miniapps.learning.seeds import generator
from miniapps.mesh import text
from miniapps.partition import models
from miniapps.partition.cuts.mesh import Mesh, carriers_of, number, pairs, parse
from miniapps.partition.cuts.steps import Plan
from miniapps.partition.graphs.flops import model_flops
from miniapps.partition.graphs.repeat import split
from miniapps.partition.models import Task
from miniapps.partition.planning.recipes import chosen, plan_of


def counts(config: Any) -> tuple[int, int]:
    """The number of samples for training, and for tests."""
    if config.data.name == "text":
        learned, tested = text.windows(config.model.tokens)
        return len(learned), len(tested)
    return COUNTS[config.data.name]


def load(config: Any) -> Labelled:
    """The samples: images, or windows of text as images of one row. Raises UsageError if files are missing."""
    if config.data.name != "text":
        return images.load(config.data.name, config.data.dir, config.seeds.data)
    learned, tested = text.windows(config.model.tokens)
    return Labelled(255, learned, np.zeros(len(learned), np.uint8), tested, np.zeros(len(tested), np.uint8))


def task(config: Any) -> Task:
    """The task that the model learns."""
    edge = EDGE.get(config.data.name, 0)
    parts = config.mesh.micro_batches
    return Task(config.training.batch, config.training.micro, edge, CLASSES, text.VOCABULARY, parts)


def deck(config: Any) -> Any:
    """The sizes of the model, with the blocks into which its axes are cut. Raises UsageError or ChoiceError."""
    model = models.model(config.model.name)
    require_parts(config, model)
    found = model.sized(config.model, task(config))
    there = tuple(axis.name for axis in model.axes(found))
    given = pairs(config.mesh.blocks, "--blocks", "batch=8,heads=4")
    for axis, count in given.items():
        known("axis of --blocks", axis, there)
        if axis in model.WHOLE:
            raise UsageError(
                f"--blocks {axis}={count}: the number of blocks is the number of {axis}; choose model.{axis}"
            )
    numbers = {axis: number(n, f"--blocks {axis}={n}") for axis, n in given.items()}
    found = replace(found, **model.blocked(numbers))
    if reason := model.refused(found):
        raise UsageError(f"model.{reason}")
    return found


def require_parts(config: Any, model: models.MeshModel) -> None:
    """Raise UsageError for micro-batches that the model does not have, or that are not made of whole blocks."""
    parts, training = config.mesh.micro_batches, config.training
    if parts == 1:
        return
    if not hasattr(model.Deck(), "micro_batches"):
        able = [name for name, other in models.every().items() if hasattr(other.Deck(), "micro_batches")]
        raise UsageError(
            f"--micro-batches {parts}: {config.model.name} computes all samples of a step at once; choose 1, or "
            f"--model {', '.join(able)}"
        )
    if training.batch % (parts * training.micro):
        raise UsageError(
            f"--micro-batches {parts}: training.batch = {training.batch} samples are not {parts} micro-batches of "
            f"whole blocks of training.micro = {training.micro} samples; choose a multiple of "
            f"{parts * training.micro}, fewer micro-batches, or smaller blocks"
        )


class Inputs:
    """The whole inputs of each step, by micro-batch, the same on all ranks; they depend only on the seeds and the
    step."""

    def __init__(self, config: Any, data: Labelled):
        self._data, self._task, self._seed = data, task(config), config.seeds.data
        self._model = models.model(config.model.name)
        batch = config.training.batch
        held = images.held_out(config.data.name, len(data.images)) & config.training.tries
        self._held, self._learned = np.flatnonzero(held), np.flatnonzero(~held)
        self._batches = Batches(len(self._learned), batch, batch, config.seeds.data)

    @property
    def held(self) -> int:
        """The number of samples that a policy keeps from training."""
        return len(self._held)

    def at(self, step: int) -> tuple[Any, ...]:
        """Torch tensors, in the order of the plan's inputs."""
        return self._learning(self._learned[self._batches.images(step, 0)], (step, 0))

    def held_out(self, number: int) -> tuple[Any, ...]:
        """Batch `number` of the samples that a policy keeps from training, in the same form."""
        return self._learning(self._held[self._in_batch(number, self.held)], (number, 2))

    def test(self, number: int) -> tuple[Any, ...]:
        """Batch `number` of the test samples, in the same form."""
        chosen = self._in_batch(number, len(self._data.test_images))
        return self._of(self._data.test_images[chosen], self._data.test_labels[chosen], (number, 1))

    def _in_batch(self, number: int, count: int) -> np.ndarray:
        batch = self._task.batch
        return np.arange(number * batch, (number + 1) * batch) % count

    def _learning(self, chosen: np.ndarray, when: tuple[int, int]) -> tuple[Any, ...]:
        return self._of(self._data.images[chosen], self._data.labels[chosen], when)

    def _of(self, samples: np.ndarray, labels: np.ndarray, when: tuple[int, int]) -> tuple[Any, ...]:
        import torch

        text, white = self._model.LEARNS == "text", np.float32(self._data.largest)
        given: np.ndarray = samples.astype(np.int64) if text else samples.astype(np.float32) / white
        draw = partial(_drawn, self._seed, when)
        targets = torch.from_numpy(labels.astype(np.int64))
        inputs = self._model.batch(torch.from_numpy(given), targets, self._task, draw)
        return split(inputs, self._task.parts)


def _drawn(seed: int, when: tuple[int, int], purpose: int) -> np.random.Generator:
    return generator(seed, purpose, *when)


def ordering_of(options: Any) -> str:
    """The label of the ordering that --allreduce and --accumulate name; "" for the guarantee's own."""
    if options.allreduce is None and options.accumulate is None:
        return ""
    ordering, accumulation = options.policy.vectors
    return Reduction(ordering, (1,), accumulation=accumulation).label


def mesh_of(config, options, size: int) -> Mesh:
    """The mesh, with the axes of the problem that its axes carry. Raises UsageError or ChoiceError."""
    model = models.model(config.model.name)
    axes = chosen(model, deck(config), names(config))
    recipe = model.RECIPES[config.mesh.recipe]
    carriers = carriers_of(config.mesh.map, config.mesh.mesh, axes, recipe)
    return parse(
        config.mesh.mesh, carriers, size, options.shuffle_blocks, config.mesh.schedule, config.mesh.owners
    )


def names(config) -> list[str]:
    """The axes that cut the problem."""
    return [name.strip() for name in config.mesh.axes.split(",")]


def planned(config: Any) -> tuple[Plan, int]:
    """(the plan of the problem, the model FLOPs of a step). It needs an export by torch, which takes seconds."""
    import torch

    from miniapps.partition.capture.export import export

    model, sizes = models.model(config.model.name), deck(config)
    with torch.random.fork_rng(devices=[]):
        graph = export(model.module(sizes), model.inputs(sizes), micro_batches=config.mesh.micro_batches)
    plan = plan_of(
        model, sizes, graph, names(config), config.mesh.fuse, config.mesh.overlap, config.mesh.attention
    )
    return plan, model_flops(graph)
