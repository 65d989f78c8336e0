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
)
from miniapps.learning.discovery import elsewhere, section_of
from miniapps.learning.samples.images import IMAGES
from miniapps.runner.config import SEEDS, option, section
from miniapps.training import models

POLICIES = ("fixed", "fastest", "lgreco", "adaprec", "adaprec-poster")


def _wires() -> list[str]:
    from kernels import wires

    return [*wires.SUMMARIES, *wires.LOSSY]


def _data() -> list[str]:
    found = dict.fromkeys(IMAGES)
    for model in models.every().values():
        found |= dict.fromkeys(model.DATA)
    return list(found)


@dataclass
class Data:
    """What is learned: images, or the nodes of a graph."""

    name: str = samples(
        _data, f"{IMAGES_SAID}; or a graph: cora (2,708 papers, 140 to learn from, 1,000 to test)"
    )
    dir: str = directory()
    features: str = option(
        "raw",
        help="cora: the words of a paper as they are, 0 or 1, whose first sum is exact; or each row divided by its sum",
        choices=("raw", "normalised"),
    )


@dataclass
class Dropout:
    """What becomes of the last hidden layer."""

    dropout: float = option(
        0.0,
        help="probability with which an output of the last hidden layer is dropped",
        minimum=0.0,
        maximum=0.9,
    )


if TYPE_CHECKING:
    Model = Any
else:
    Model = section_of(models.every(), __name__, "mlp", Dropout, lambda: elsewhere("training"))


@dataclass
class Training(ParallelSteps):
    """Steps, and what becomes of gradients on their way."""

    wire: str = option(
        "as is",
        help="how gradients are encoded on their way, maybe with parameters (table:n=4)",
        role="method",
        effect="reduction",
        flag="--wire",
        choices=_wires,
        parameters=True,
    )
    policy: str = option(
        "fixed",
        help="fixed: --wire; fastest: for each kind of tensor the wire of the least measured time; lgreco: for each "
        "tensor one, of the fewest bytes in all at no more error than --wire; adaprec, adaprec-poster: what gains most "
        "per time",
        choices=POLICIES,
        role="method",
        effect="reduction",
        flag="--policy",
    )
    candidates: str = option(
        "float32 fp8 table:n=2 sign",
        help="wires that a policy chooses from, with spaces between",
        role="method",
        effect="reduction",
        flag="--candidates",
    )
    depth: int = option(
        0,
        help="of a graph: micro-batches whose fields a thread gathers ahead",
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
    """Seeds of what is drawn at random, each on its own; none: that of the run."""

    dropout: int | None = option(None, help="what is dropped; none: --seed", minimum=0, maximum=SEEDS)
    neighbours: int | None = option(
        None, help="neighbours that are learned from; none: --seed", minimum=0, maximum=SEEDS
    )
    order: int | None = option(
        None,
        help="orders of arrival where an aggregation is emulated; none: --seed",
        role="method",
        minimum=0,
        maximum=SEEDS,
    )


@dataclass
class Evaluation:
    """Accuracy on the test samples, and what is recorded of the last answers."""

    every: int = evaluations("values:accuracy", "values:weights_sample", "values:wire_*")
    target: float = target()
    outputs: str = option(
        "sample",
        help="of a graph: log-probabilities of the last evaluation that are recorded by value: a sample of 256, or all",
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
