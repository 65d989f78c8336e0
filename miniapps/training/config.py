"""Options of the training mini-app."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from miniapps.checkpoints.options import Output
from miniapps.learning.course.options import (
    IMAGES_SAID,
    ParallelSteps,
    Seeds,
    directory,
    evaluations,
    samples,
    target,
    wire,
)
from miniapps.learning.discovery import elsewhere, section_of
from miniapps.learning.samples.images import IMAGES
from miniapps.runner.config import SEEDS, option, section
from miniapps.training import models

POLICIES = ("fixed", "fastest", "lgreco", "adaprec", "adaprec-poster")


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
class Training(ParallelSteps):
    """Steps, and the encoding of gradients in messages."""

    wire: str = wire()
    policy: str = option(
        "fixed",
        help="choice of the wire: fixed, --wire; fastest, the wire with the least measured time for each kind of "
        "tensor; lgreco, wires per tensor that minimise bytes subject to --wire's error; adaprec, adaprec-poster, the "
        "wire with the largest gain per time",
        choices=POLICIES,
        role="method",
        effect="reduction",
        flag="--policy",
    )
    candidates: str = option(
        "float32 fp8 table:n=2 sign",
        help="wires from which a policy chooses, separated by spaces",
        role="method",
        effect="reduction",
        flag="--candidates",
    )
    depth: int = option(
        0,
        help="graphs: micro-batches whose fields a thread gathers ahead",
        role="method",
        effect="cost",
        minimum=0,
        maximum=1024,
    )

    @property
    def tries(self) -> bool:
        """Whether the policy trains with several wires from one state."""
        return self.policy.startswith("adaprec")


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
