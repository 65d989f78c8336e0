"""Checks and completes the options of every learner before a run creates anything."""

from __future__ import annotations

import importlib.util
from typing import Any

from kernels.guarantees import ChoiceError
from miniapps.errors import UsageError
from miniapps.learning.course.options import AUTO, Steps
from miniapps.runner.faults import Fault, Struck

WORDS = 32  # bits of a float32


def complete_seeds(seeds: Any, seed: int) -> None:
    """Set missing seeds to the seed of the run."""
    for name, value in vars(seeds).items():
        if value is None:
            setattr(seeds, name, seed)


def complete_data(data: Any, usual: str) -> None:
    """Set `auto` data to `usual`, which comes with this suite."""
    if data.name == AUTO:
        data.name = usual


def complete_batch(training: Any, count: int) -> None:
    """Reduce the default batch to whole micro-batches if there are fewer samples, `count`."""
    if training.batch == Steps().batch > count >= training.micro:
        training.batch = count // training.micro * training.micro


def calls(config: Any, options: Any) -> str:
    """The calls of the network: one per "rank" or per "block". Raises ChoiceError if this is below the guarantee, or
    follows the processor in spite of --processor any."""
    asked, policy, anywhere = config.training.calls, options.policy, options.processor == "any"
    if asked == "rank" and anywhere:
        raise ChoiceError(
            "--processor any: with training.calls = rank torch computes the network, and chooses its kernels by the "
            "processor; use training.calls = block"
        )
    if asked == "rank" and policy.per_block:
        raise ChoiceError(
            f"training.calls = rank meets guarantee run, below {policy.level}: the rounding of a gradient depends on "
            "the number of samples in its batch; use training.calls = block"
        )
    return asked if asked != "auto" else ("block" if policy.per_block or anywhere else "rank")


def validate(config: Any, options: Any, name: str) -> None:
    """Raise UsageError for impossible steps, and without torch; `name`: of the application."""
    training = config.training
    if importlib.util.find_spec("torch") is None:
        raise UsageError(f"{name} needs torch, which is not installed; pip install torch")
    if training.last > training.steps:
        raise UsageError(
            f"--until {training.last}: this problem has {training.steps} steps (training.steps); choose 0 to "
            f"{training.steps}, or raise --steps"
        )


def require_cut(training: Any) -> None:
    """Raise UsageError unless micro-batches divide the batch."""
    if training.batch % training.micro:
        raise UsageError(
            f"training.batch = {training.batch} samples cannot be cut into micro-batches of {training.micro}; choose a "
            "multiple of training.micro"
        )


def require_samples(config: Any, count: int) -> None:
    """Raise UsageError for a batch of more than `count` samples."""
    if config.training.batch > count:
        raise UsageError(
            f"training.batch = {config.training.batch}: {config.data.name} has {count} samples to learn from; choose a "
            "smaller batch"
        )


def require_blocks(training: Any, size: int) -> None:
    """Raise UsageError for more ranks than micro-batches."""
    if size > training.blocks:
        raise UsageError(
            f"{size} ranks for {training.blocks} micro-batches of {training.micro} samples: every rank needs at least "
            f"one; start at most {training.blocks} ranks, or choose a smaller training.micro or a larger --batch"
        )


def require_clock(options: Any, option: str, name: str) -> None:
    """Raise ChoiceError if `option` lets a clock decide under a guarantee, and UsageError if a replayed run lacks its
    choices, called `name`."""
    from miniapps.runner import replay

    if options.replay is None:
        if options.guarantee != "none":
            raise ChoiceError(
                f"{option} decides by a clock and so meets only guarantee none, below {options.guarantee}; record a "
                "run with --guarantee none, and repeat its choices with --replay RUN"
            )
    elif not any(key[2] == name for key in replay.read(options.replay).choices):
        raise UsageError(
            f"--replay {options.replay}: it has no choices {name!r}; replay a run with the same {option.split()[0]}"
        )


def tensors_struck(fault: Fault, sizes: list[int]) -> Struck:
    """The targets of a fault in tensors with these numbers of elements; none for faults outside the state."""
    return Struck(0) if fault.kind not in ("nan", "bitflip") else Struck(len(sizes), sizes.__getitem__, WORDS)
