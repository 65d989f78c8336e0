"""Options of the training mini-app."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from miniapps.checkpoints.options import Output
from miniapps.learning.course.options import (
    IMAGES_SAID,
    Judging,
    ParallelSteps,
    Seeds,
    directory,
    evaluations,
    policy,
    samples,
    target,
    wire,
    wires_of_policy,
)
from miniapps.learning.discovery import elsewhere, section_of
from miniapps.learning.samples.images import IMAGES
from miniapps.runner.config import HUGE, INT32, SEEDS, option, section
from miniapps.training import models


def _data() -> list[str]:
    found = dict.fromkeys(IMAGES)
    for model in models.every().values():
        found |= dict.fromkeys(model.DATA)
    return list(found)


@dataclass
class Data:
    """The samples: images, or the nodes of a graph."""

    name: str = samples(
        _data, f"{IMAGES_SAID}; or a graph: cora (2,708 papers, 140 to learn from, 1,000 to test)"
    )
    dir: str = directory()
    features: str = option(
        "raw",
        help="cora: raw, the words of a paper as 0 or 1, whose first sum is exact; normalised, each row divided by its "
        "sum",
        choices=("raw", "normalised"),
    )


@dataclass
class Dropout:
    """Dropout in the last hidden layer."""

    dropout: float = option(
        0.0,
        help="probability that an output of the last hidden layer is dropped",
        minimum=0.0,
        maximum=0.9,
    )


if TYPE_CHECKING:
    Model = Any
else:
    Model = section_of(models.every(), __name__, "mlp", Dropout, lambda: elsewhere("training"))


@dataclass
class Training(ParallelSteps, Judging):
    """Steps, and the encoding of gradients in messages."""

    wire: str = wire()
    policy: str = policy()
    candidates: str = wires_of_policy()
    local_steps: int = option(
        0,
        help="steps that every micro-batch learns alone, as a worker with weights of its own, before differences of "
        "weights are added (DiLoCo); 0: gradients are added in each step",
        flag="--local-steps",
        minimum=0,
        maximum=INT32 - 1,
    )
    outer_rate: float = option(
        0.7, help="--local-steps: learning rate for the added differences", minimum=0.0, maximum=HUGE
    )
    outer_momentum: float = option(
        0.9, help="--local-steps: Nesterov's momentum for the added differences", minimum=0.0, maximum=1.0
    )
    depth: int = option(
        0,
        help="graphs: micro-batches whose fields a thread gathers ahead",
        role="method",
        effect="cost",
        minimum=0,
        maximum=1024,
    )


@dataclass
class TrainingSeeds(Seeds):
    """Seeds of random draws, one each; none: the seed of the run."""

    dropout: int | None = option(None, help="seed of dropout; none: --seed", minimum=0, maximum=SEEDS)
    neighbours: int | None = option(
        None, help="seed of the sampled neighbours; none: --seed", minimum=0, maximum=SEEDS
    )
    order: int | None = option(
        None,
        help="seed of the orders of arrival of emulated aggregations; none: --seed",
        role="method",
        minimum=0,
        maximum=SEEDS,
    )


@dataclass
class Evaluation:
    """Accuracy on the test samples, and records of the last outputs."""

    every: int = evaluations("values:accuracy", "values:weights_sample", "values:wire_*")
    target: float = target()
    top: int = option(
        1,
        help="N of the Top-N accuracy: an answer is right if its label is among the N classes with the largest outputs",
        role="control",
        flag="--top",
        minimum=1,
        maximum=1000,
    )
    outputs: str = option(
        "sample",
        help="graphs: log-probabilities of the last evaluation to record as numbers: a sample of 256, or all",
        choices=("sample", "all"),
        role="control",
        records=("values:outputs",),
    )


@dataclass
class TrainingConfig:
    """All options of `python -m miniapps.training` beside the common ones."""

    data: Data = section(Data)
    model: Model = section(Model)
    training: Training = section(Training)
    seeds: TrainingSeeds = section(TrainingSeeds)
    evaluation: Evaluation = section(Evaluation)
    output: Output = section(Output)
