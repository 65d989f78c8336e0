"""A multilayer perceptron with two hidden layers and cross entropy."""

from dataclasses import dataclass

from miniapps.partition.cuts.axes import Axis, evenly

RECIPES = {
    "dp": {"batch": "data"},
    "tp": {"hidden": "model"},
    "dp+tp": {"batch": "data", "hidden": "model"},
    "zero": {"batch": "data", "stored": "data"},
}
TOGETHER = (("batch", "stored"),)


@dataclass(frozen=True)
class Deck:
    """Sizes, and blocks of the axes."""

    samples: int = 14
    features: int = 24
    width: int = 32
    classes: int = 10
    batch: int = 7
    hidden: int = 8
    stored: int = 8


def refused(deck: Deck) -> str:
    """Every deck is a model."""
    return ""


def module(deck: Deck):
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


def inputs(deck: Deck, seed: int = 0):
    """Images and labels, drawn."""
    import torch

    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(deck.samples, deck.features, generator=generator)
    return x, torch.randint(0, deck.classes, (deck.samples,), generator=generator)


def axes(deck: Deck) -> tuple[Axis, ...]:
    """batch, hidden (of both hidden layers) and stored (rows of weights, for `zero`)."""
    return (
        evenly("batch", deck.samples, deck.batch),
        evenly("hidden", deck.width, deck.hidden),
        evenly("stored", deck.width, deck.stored),
    )


def annotations(deck: Deck):
    """Samples; Megatron's pair: the first layer by its rows, the second by its columns."""
    return {
        0: ("batch", None),
        1: ("batch",),
        "first.weight": ("hidden", None),
        "first.bias": ("hidden",),
        "second.weight": (None, "hidden"),
    }
