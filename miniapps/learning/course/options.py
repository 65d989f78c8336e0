"""The options that all learners have: steps, seeds, evaluations; and those of learners that are data-parallel."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from miniapps.runner.config import HUGE, INT32, SEEDS, option

Choices = tuple[str, ...] | Callable[[], list[str]]

SAMPLES = 2**20  # of a batch, at most


@dataclass
class Steps:
    """Momentum SGD, rate (1 - t/T)^2 at step t of T; or Adam, at one rate."""

    steps: int = option(468, help="steps", minimum=0, maximum=INT32 - 1, flag="--steps")
    until: int | None = option(
        None,
        help="step after which this run stops, of those of the problem; none: after the last",
        role="control",
        flag="--until",
        effect="until",
        minimum=0,
        maximum=INT32 - 1,
    )
    batch: int = option(
        256,
        help="samples of a step",
        unit="samples",
        minimum=1,
        maximum=SAMPLES,
        effect="size",
        flag="--batch",
    )
    micro: int = option(
        32,
        help="samples of a logical micro-batch: a block, whose gradient has one shape on any number of ranks",
        unit="samples",
        minimum=1,
        maximum=SAMPLES,
    )
    rate: float = option(
        0.05, help="learning rate of the first step", minimum=0.0, maximum=HUGE, flag="--rate"
    )
    optimiser: str = option(
        "momentum", help="momentum SGD, or Adam", choices=("momentum", "adam"), flag="--optimiser"
    )
    momentum: float = option(0.9, help="momentum", minimum=0.0, maximum=1.0)
    decay: float = option(
        0.0, help="decay of weights: so much of each is added to its gradient", minimum=0.0, maximum=1.0
    )

    @property
    def last(self) -> int:
        """The step after which the run stops."""
        return self.steps if self.until is None else self.until

    @property
    def blocks(self) -> int:
        """Micro-batches of a step."""
        return self.batch // self.micro


@dataclass
class ParallelSteps(Steps):
    """Steps of gradients that are added over all ranks."""

    bucket: int = option(
        2**20,
        help="bytes of gradient that travel together, cut between tensors",
        unit="B",
        minimum=1,
        maximum=2**40,
    )
    divide: str = option(
        "after",
        help="by the number of samples: the sum, or every contribution before it is encoded",
        choices=("after", "before"),
        role="method",
        effect="reduction",
        flag="--divide",
    )
    seconds: float = option(
        0.0,
        help="seconds of training after which the run ends, evaluations on test samples left out; 0: after its steps",
        unit="s",
        role="method",
        effect="until",
        flag="--seconds",
        minimum=0.0,
        maximum=HUGE,
    )
    overlap: bool = option(
        True,
        help="buckets travel while the layers before them are still computed",
        role="method",
        effect="cost",
        flag="--overlap",
    )
    calls: str = option(
        "auto",
        help="network calls: one per micro-batch, or one per rank (bits then follow the layout); auto: per rank under "
        "guarantees none and run, per micro-batch under layout and exact",
        choices=("auto", "block", "rank"),
        role="method",
        effect="guarantee",
    )


@dataclass
class Seeds:
    """Seeds of what is drawn at random, each on its own; none: that of the run."""

    init: int | None = option(None, help="initial weights; none: --seed", minimum=0, maximum=SEEDS)
    data: int | None = option(
        None, help="order of the samples, and those that are drawn; none: --seed", minimum=0, maximum=SEEDS
    )


IMAGES_SAID = (
    "images: digits (1,438 + 359 of 8 x 8), which come with this suite; blobs, drawn at random (2,048 + 512 of 8 x 8); "
    "Fashion-MNIST (60,000 + 10,000 of 28 x 28) or MNIST-5000 (4,000 + 1,000), of files"
)


AUTO = "auto"


def samples(choices: Choices, said: str = IMAGES_SAID, default: str = AUTO) -> Any:
    """The option that says what is learned from; `said`: which sets there are. The model says what `auto` is."""
    if default == AUTO:
        said = f"auto: what comes with this suite and the model can learn; {said}"

    def every() -> list[str]:
        return list(dict.fromkeys([default, *(choices() if callable(choices) else choices)]))

    return option(default, help=said, choices=every, flag="--data", effect="source")


def directory() -> Any:
    """The option that says where the files of samples are."""
    return option(
        "",
        role="control",
        flag="--data-dir",
        help="directory of the files; none: where packages install them",
    )


def evaluations(*records: str) -> Any:
    """The option that says how often the test samples are looked at; `records`: the rows that it decides on."""
    return option(
        100,
        help="steps between evaluations; 0: after the last step only",
        role="control",
        flag="--evaluate-every",
        records=records,
        minimum=0,
        maximum=INT32,
    )


def target() -> Any:
    """The option of an accuracy to be reached."""
    return option(
        0.0,
        help="accuracy whose time is reported as time_to_accuracy; 0: none",
        role="control",
        flag="--target",
        minimum=0.0,
        maximum=1.0,
    )
