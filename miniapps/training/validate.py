"""Checks before a run creates anything, the memory of a rank, and the targets of faults."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from math import prod
from typing import Any

import numpy as np

from kernels.allreduce import Reduction
from kernels.allreduce.coding import coding
from miniapps.checkpoints import options as checkpoints
from miniapps.errors import UsageError
from miniapps.learning.course import checks
from miniapps.learning.discovery import require_heard
from miniapps.learning.gradients.buckets import cut
from miniapps.learning.policies import choosing
from miniapps.learning.samples.images import held_out
from miniapps.runner.faults import Fault, Struck, Targets
from miniapps.system.resources import Need
from miniapps.training import models
from miniapps.training.checkpoint import HOLDING

TORCH = 2**27  # bytes of torch in a process


def complete(config: Any, options: Any, size: int) -> None:
    """Fill in the data, a batch that they allow, missing seeds, the calls of the network, by the guarantee unless an
    option decides, the interval of roundings, and the model's own options.
    """
    checkpoints.complete(config.output)
    model = models.model(config.model.name)
    checks.complete_data(config.data, model.USUAL)
    if config.data.name in model.DATA:
        checks.complete_batch(config.training, model.counts(config.data.name)[0])
    if config.training.local_steps and config.training.calls == "auto":
        config.training.calls = "block"
    config.training.calls = checks.calls(config, options)
    model.complete(config)
    checks.complete_seeds(config.seeds, options.seed)


def validate(config: Any, options: Any, size: int) -> None:
    """Raises UsageError or ChoiceError, with the option, its allowed values and the remedy."""
    training, name = config.training, config.data.name
    model = models.model(config.model.name)
    require_heard(config.model, models.every())
    HOLDING.require(config)
    model.validate(config, options)
    checks.validate(config, options, "training")
    count, _ = model.counts(name)
    checks.require_samples(config, count - training.tries * int(held_out(name, count).sum()))
    checks.require_blocks(training, size)
    if config.output.shares == "auto":
        _movable(config, options)
    if training.local_steps:
        _require_apart(config, options)
    choosing.validate(
        config, options, partial(_require_wire, config, options, list(HOLDING.tensors(config).values()))
    )
    model.load(config)
    HOLDING.check(config, options, size)


def _require_wire(config: Any, options: Any, shapes: Sequence[tuple[int, ...]], wire: str) -> None:
    """Raise ChoiceError if a wire conflicts with the ordering, accumulation or guarantee of a bucket."""
    used = coding(wire)
    for bucket in cut(shapes, config.training.bucket, [wire] * len(shapes)):
        ordering, accumulation = options.policy.of(bucket.size, wire)
        own = (bucket.size,), np.dtype("float32")
        reduction = Reduction(ordering, *own, accumulation=accumulation, **bucket.over())
        if used is not None:
            reduction.require(options.policy.level)


def follows(config: Any, options: Any) -> str | None:
    """What follows the processor: a network that torch computes, and calls that share its kernels."""
    fixed = [name for name, model in models.every().items() if model.CHAINED]
    if config.model.name not in fixed:
        return (
            f"--model {config.model.name} computes its network by torch, which chooses its kernels by the processor; "
            f"choose {' or '.join(fixed)}"
        )
    if config.training.policy != "fixed":
        return (
            f"--policy {config.training.policy} decides by a clock, or by linear algebra of NumPy; choose "
            "--policy fixed"
        )
    return None


def _require_apart(config: Any, options: Any) -> None:
    """Raise UsageError for options that workers with weights of their own do not allow."""
    for name, given, reason in (
        (
            "--policy " + config.training.policy,
            config.training.policy != "fixed",
            "compares wires of gradients",
        ),
        ("training.calls = rank", config.training.calls == "rank", "computes several workers in one call"),
        ("--duplicate", options.duplicate, "computes the gradient of the common weights"),
        ("--restart", config.output.restart, "has no weights of workers"),
        ("--checkpoint-every", config.output.checkpoint_every, "keeps no weights of workers"),
    ):
        if given:
            raise UsageError(
                f"--local-steps {config.training.local_steps}: every micro-batch is a worker with weights of its own, "
                f"and {name} {reason}; leave one of them out"
            )


def _movable(config: Any, options: Any) -> None:
    """Raise UsageError for options that keep state per rank, or depend on a rank's number of micro-batches."""
    checkpoints.require_movable(config.output, options)
    used = coding(config.training.wire)
    for name, reason in (
        ("--policy " + config.training.policy, config.training.policy != "fixed"),
        ("--wire " + config.training.wire, used is not None and used.feedback),
        ("training.calls = rank", checks.calls(config, options) == "rank"),
    ):
        if reason:
            raise UsageError(
                f"--shares auto moves micro-batches between ranks, which {name} does not allow; choose --policy "
                "fixed, a wire without feedback, and --set training.calls=block"
            )


def memory(config: Any, options: Any, size: int) -> Need:
    """The memory of a rank with the most micro-batches."""
    training, model = config.training, models.model(config.model.name)
    parameters = sum(map(prod, HOLDING.tensors(config).values()))
    most = -(-training.blocks // size)
    apart = training.calls == "block" and not model.CHAINED
    rows, samples = (most if training.calls == "block" else 1), training.micro * (1 if apart else most)
    states = 2 * (len(choosing.candidates(config)) + 3) * training.tries  # kept by policies that try wires
    workers = 4 * bool(training.local_steps)  # weights, states and gradients of each
    return Need(
        TORCH
        + model.memory(config, max(samples, 250))
        + 4 * (8 + states + (3 + workers) * rows) * parameters,
        f"model.hidden = {config.model.hidden}, training.batch = {training.batch}",
        lambda share: "choose a smaller model, a smaller training.micro, or more nodes",
    )


def targets(config: Any, options: Any, size: int) -> Targets:
    """The targets of faults: tensors of weights, and gradients of micro-batches."""
    sizes = [prod(shape) for shape in HOLDING.tensors(config).values()]

    def blocks(fault: Fault) -> Struck:
        if fault.kind == "kernel-bit":  # strikes the gradient of tensor `call` in a micro-batch
            if fault.call >= len(sizes):
                return Struck(0)
            return Struck(config.training.blocks, lambda block: sizes[fault.call], checks.WORDS)
        return checks.tensors_struck(fault, sizes)

    # Trials do more steps than the problem has.
    return Targets(None if config.training.tries else config.training.last, blocks=blocks)
