"""A multilayer perceptron with two hidden layers and cross entropy."""

from dataclasses import dataclass
from typing import ClassVar

from miniapps.partition.cuts.axes import Axis, evenly
from miniapps.partition.models import MeshModel, Task, pipeline_refused

LAYERS = ("first", "second", "output")


@dataclass(frozen=True)
class Sizes:
    """Sizes, and numbers of blocks. `batch`: of the samples of a micro-batch."""

    samples: int = 14
    features: int = 24
    width: int = 32
    classes: int = 10
    batch: int = 7
    hidden: int = 8
    stored: int = 8
    micro_batches: int = 1
    stage: int = 3


class MLPModel(MeshModel):
    """Two hidden layers that classify images."""

    Deck = Sizes
    RECIPES: ClassVar = {
        "dp": {"batch": "data"},
        "tp": {"hidden": "model"},
        "dp+tp": {"batch": "data", "hidden": "model"},
        "zero": {"batch": "data", "stored": "data"},
        "pp": {"stage": "stage"},
        "dp+pp": {"batch": "data", "stage": "stage"},
        "tp+pp": {"hidden": "model", "stage": "stage"},
    }
    TOGETHER = (("batch", "stored"),)

    def refused(self, deck: Sizes) -> str:
        """Micro-batches need equal parts of the samples, stages a layer each."""
        return pipeline_refused(deck, len(LAYERS))

    def module(self, deck: Sizes):
        """The network with its loss: `forward(x (samples, features), labels)`."""
        import torch
        from torch.nn.functional import cross_entropy, relu

        class MLP(torch.nn.Module):
            def __init__(self):
                super().__init__()
                self.first = torch.nn.Linear(deck.features, deck.width)
                self.second = torch.nn.Linear(deck.width, deck.width)
                self.output = torch.nn.Linear(deck.width, deck.classes)

            def forward(self, x, labels):
                h = relu(self.second(relu(self.first(x))))
                return cross_entropy(self.output(h), labels)

        return MLP()

    def inputs(self, deck: Sizes, seed: int = 0):
        """Random images and labels."""
        import torch

        generator = torch.Generator().manual_seed(seed)
        x = torch.randn(deck.samples, deck.features, generator=generator)
        return x, torch.randint(0, deck.classes, (deck.samples,), generator=generator)

    def axes(self, deck: Sizes) -> tuple[Axis, ...]:
        """batch, hidden (of both hidden layers), stored (rows of weights, for `zero`) and stage (layers, for
        pipelines)."""
        return (
            evenly("batch", deck.samples // deck.micro_batches, deck.batch),
            evenly("hidden", deck.width, deck.hidden),
            evenly("stored", deck.width, deck.stored),
            evenly("stage", len(LAYERS), deck.stage),
        )

    def layers(self, deck: Sizes) -> tuple[str, ...]:
        """All three layers."""
        return LAYERS

    def annotations(self, deck: Sizes):
        """Cuts samples and Megatron's pair: the first layer by its rows, the second by its columns."""
        return {
            0: ("batch", None),
            1: ("batch",),
            "first.weight": ("hidden", None),
            "first.bias": ("hidden",),
            "second.weight": (None, "hidden"),
        }

    def sized(self, sizes, task: Task) -> Sizes:
        blocks = min(8, sizes.hidden)
        return Sizes(
            samples=task.batch, features=task.edge**2, width=sizes.hidden, classes=task.classes,
            batch=task.batch // task.parts // task.micro, hidden=blocks, stored=blocks, micro_batches=task.parts,
        )  # fmt: skip

    def batch(self, samples, labels, task: Task, draw):
        return samples.flatten(1), labels

    def costs(self, deck: Sizes) -> tuple[int, int]:
        return deck.width * (deck.features + deck.width + deck.classes), 16 * deck.samples * deck.width


MODEL = MLPModel()
