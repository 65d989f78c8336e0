"""A mixture of experts with dense dispatch (GShard, arXiv 2006.16668): tokens in groups, two experts for each token.

An integer scan over its group gives each token its place in the queue of an expert; a full queue drops the token. If
gates are equal, the expert with the lower number wins.
"""

from dataclasses import dataclass
from typing import ClassVar

from miniapps.partition.cuts.axes import Axis, evenly
from miniapps.partition.models import MeshModel, Task, Width
from miniapps.runner.config import option


@dataclass
class Options(Width):
    """The options of a mixture."""

    experts: int = option(4, help="experts, each a block", minimum=2, maximum=1024)


@dataclass(frozen=True)
class Sizes:
    """Sizes, and numbers of blocks. A sample is a group."""

    samples: int = 8
    tokens: int = 16
    features: int = 24
    width: int = 32
    hidden: int = 64
    experts: int = 4
    capacity: int = 8
    classes: int = 10
    batch: int = 8


class MoEModel(MeshModel):
    """A mixture of experts that classifies images; a micro-batch is a group."""

    Deck = Sizes
    RECIPES: ClassVar = {"dp": {"batch": "data"}, "expert": {"batch": "data", "experts": "data"}}
    TOGETHER = (("batch", "experts"),)
    WHOLE = ("experts",)
    OPTIONS = Options

    def refused(self, deck: Sizes) -> str:
        """Each token needs two experts."""
        return f"experts = {deck.experts}: a token needs two; choose 2 or more" if deck.experts < 2 else ""

    def module(self, deck: Sizes):
        """The network with its loss: `forward(x (samples, tokens, features), labels (samples, tokens))`."""
        import torch
        from torch.nn.functional import cross_entropy, gelu, softmax

        class Mixture(torch.nn.Module):
            def __init__(self):
                super().__init__()
                self.enter = torch.nn.Linear(deck.features, deck.width)
                self.norm = torch.nn.LayerNorm(deck.width)
                self.gate = torch.nn.Linear(deck.width, deck.experts, bias=False)
                scale = deck.width**-0.5
                self.up = torch.nn.Parameter(scale * torch.randn(deck.experts, deck.width, deck.hidden))
                self.down = torch.nn.Parameter(scale * torch.randn(deck.experts, deck.hidden, deck.width))
                self.output = torch.nn.Linear(deck.width, deck.classes)

            def forward(self, x, labels):
                h = self.enter(x)
                h = h + self.mix(self.norm(h))
                return cross_entropy(self.output(h).flatten(0, 1), labels.flatten())

            def mix(self, x):
                """The experts' answers to x (groups, tokens, width), weighted by the gates."""
                combine = self.weights(softmax(self.gate(x), -1))
                dispatch = (combine > 0).to(x.dtype)
                sent = torch.einsum("gsec,gsm->egcm", dispatch, x)
                hidden = gelu(torch.einsum("egcm,emh->egch", sent, self.up))
                answers = torch.einsum("egch,ehm->egcm", hidden, self.down)
                return torch.einsum("gsec,egcm->gsm", combine, answers)

            def weights(self, gates):
                """(groups, tokens, experts, capacity): the gate of a token at its place in the queue of an expert."""
                experts = torch.arange(deck.experts, device=gates.device)
                places = torch.arange(deck.capacity, device=gates.device)
                first = (gates.argmax(-1, keepdim=True) == experts).to(gates.dtype)
                second = ((gates * (1 - first)).argmax(-1, keepdim=True) == experts).to(gates.dtype)
                chosen = (first + second).to(torch.int64)
                place = chosen.cumsum(1) - chosen
                here = (place.unsqueeze(-1) == places).to(gates.dtype)
                return (gates * (first + second)).unsqueeze(-1) * here

        return Mixture()

    def inputs(self, deck: Sizes, seed: int = 0):
        """Random features and labels."""
        import torch

        generator = torch.Generator().manual_seed(seed)
        x = torch.randn(deck.samples, deck.tokens, deck.features, generator=generator)
        return x, torch.randint(0, deck.classes, (deck.samples, deck.tokens), generator=generator)

    def axes(self, deck: Sizes) -> tuple[Axis, ...]:
        """batch (groups) and experts."""
        return evenly("batch", deck.samples, deck.batch), evenly("experts", deck.experts, deck.experts)

    def annotations(self, deck: Sizes):
        """Cuts groups and experts; tokens are sent to the owners of their experts."""
        by_expert = ("experts", None, None)
        return {0: ("batch", None, None), 1: ("batch", None), "up": by_expert, "down": by_expert}

    def sized(self, sizes, task: Task) -> Sizes:
        """A micro-batch is a group: one sample, whose tokens are images."""
        groups = task.batch // task.micro
        return Sizes(
            samples=groups, tokens=task.micro, features=task.edge**2, width=sizes.hidden, hidden=4 * sizes.hidden,
            experts=sizes.experts, capacity=max(1, 2 * 2 * task.micro // sizes.experts), classes=task.classes,
            batch=groups,
        )  # fmt: skip

    def batch(self, samples, labels, task: Task, draw):
        groups = len(samples) // task.micro
        return samples.reshape(groups, task.micro, -1), labels.reshape(groups, -1)

    def costs(self, deck: Sizes) -> tuple[int, int]:
        parameters = 2 * deck.experts * deck.width * deck.hidden + deck.width * (deck.features + deck.classes)
        return parameters, 32 * deck.samples * deck.tokens * deck.width * deck.experts


MODEL = MoEModel()
