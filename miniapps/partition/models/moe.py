"""A mixture of experts with dense dispatch, as in GShard (Lepikhin et al. 2020, arXiv 2006.16668, algorithm 1).

A token goes to the two experts with its largest gates, renormalised to the sum 1. First choices of a group of tokens
queue before its second choices, and a full queue drops a token. A second choice is sent with the probability 2 x its
gate, if `random`. A balancing loss pulls the shares of experts towards each other. If gates are equal, the expert with
the lower number is first.
"""

from dataclasses import dataclass
from math import ceil
from typing import Any, ClassVar, NamedTuple

from miniapps.partition.cuts.axes import Axis, evenly
from miniapps.partition.models import MeshModel, Task, Width
from miniapps.runner.config import option


@dataclass
class Options(Width):
    """The options of a mixture."""

    experts: int = option(4, help="experts, each a block", minimum=2, maximum=1024)
    capacity: float = option(
        2.0, help="capacity factor: places of an expert over 2 x tokens of a group / experts", minimum=0.01,
        maximum=1024.0,
    )  # fmt: skip
    balance: float = option(0.01, help="factor of the balancing loss", minimum=0.0, maximum=1e6)
    random: bool = option(
        True, help="send a second choice with the probability 2 x its gate, drawn with seeds.dropout"
    )


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
    balance: float = 0.01
    random: int = 0


class Routed(NamedTuple):
    """The routing of (groups, tokens). `combine`: (groups, tokens, experts, capacity), the gate of a token at its place
    in the queue of an expert; `balance`: the balancing loss; int64 counts of tokens: `dropped_first` and
    `dropped_second` found the queue of that choice full, `skipped_second` were not sent at random."""

    combine: Any
    balance: Any
    dropped_first: Any
    dropped_second: Any
    skipped_second: Any


def routed(gates, capacity: int, drawn=None) -> Routed:
    """Route tokens by `gates` (groups, tokens, experts), which sum to 1 over experts; `drawn`: uniform numbers
    (groups, tokens) for second choices, None to send all of them."""
    import torch

    tokens, count = gates.shape[1:]
    experts = torch.arange(count, device=gates.device)
    places = torch.arange(capacity, device=gates.device)
    first = gates.argmax(-1, keepdim=True) == experts
    second = gates.masked_fill(first, -1.0).argmax(-1, keepdim=True) == experts
    one, two = ((gates * choice.to(gates.dtype)).sum(-1) for choice in (first, second))
    one, two = one / (one + two), two / (one + two)
    queued, later = first.to(torch.int64), second.to(torch.int64)
    decided = queued.sum(1, keepdim=True)
    place = queued.cumsum(1) - queued
    behind = decided + later.cumsum(1) - later
    balance = (decided.squeeze(1).to(gates.dtype) / tokens * gates.mean(1)).sum(-1).mean() / count
    kept, full = first & (place < capacity), second & (behind >= capacity)
    sent = second & ~full
    skipped = torch.zeros_like(sent) if drawn is None else sent & (2 * two <= drawn).unsqueeze(-1)
    sent = sent & ~skipped

    def at(gate, choice, queue):
        here = (choice.unsqueeze(-1) & (queue.unsqueeze(-1) == places)).to(gates.dtype)
        return gate[..., None, None] * here

    combine = at(one, kept, place) + at(two, sent, behind)
    return Routed(combine, balance, (first & ~kept).sum(), full.sum(), skipped.sum())


class MoEModel(MeshModel):
    """A mixture of experts that classifies images; a micro-batch is a group."""

    Deck = Sizes
    RECIPES: ClassVar = {"dp": {"batch": "data"}, "expert": {"batch": "data", "experts": "data"}}
    TOGETHER = (("batch", "experts"),)
    WHOLE = ("experts",)
    OPTIONS = Options
    RECORDED = ("dropped_first", "dropped_second", "skipped_second")

    def refused(self, deck: Sizes) -> str:
        """Each token needs two experts."""
        if not 0 <= deck.balance < float("inf"):
            return f"balance = {deck.balance}: give a factor from 0 on"
        return f"experts = {deck.experts}: a token needs two; choose 2 or more" if deck.experts < 2 else ""

    def module(self, deck: Sizes):
        """The network with its loss: `forward(x (samples, tokens, features), labels (samples, tokens))`. Its buffers
        are the counts of the last step."""
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
                for name in MoEModel.RECORDED:
                    self.register_buffer(name, torch.zeros((), dtype=torch.int64))

            def forward(self, x, labels):
                h = self.enter(x)
                normal = self.norm(h)
                gates = softmax(self.gate(normal), -1)
                drawn = torch.rand_like(gates[..., 0]) if deck.random else None
                found = routed(gates, deck.capacity, drawn)
                for name in MoEModel.RECORDED:
                    getattr(self, name).copy_(getattr(found, name))
                h = h + self.mix(normal, found.combine)
                loss = cross_entropy(self.output(h).flatten(0, 1), labels.flatten())
                return loss + deck.balance * found.balance

            def mix(self, x, combine):
                """The experts' answers to x (groups, tokens, width), weighted by the gates."""
                dispatch = (combine > 0).to(x.dtype)
                sent = torch.einsum("gsec,gsm->egcm", dispatch, x)
                hidden = gelu(torch.einsum("egcm,emh->egch", sent, self.up))
                answers = torch.einsum("egch,ehm->egcm", hidden, self.down)
                return torch.einsum("gsec,egcm->gsm", combine, answers)

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
            experts=sizes.experts, capacity=ceil(sizes.capacity * 2 * task.micro / sizes.experts),
            classes=task.classes, batch=groups, balance=sizes.balance, random=int(sizes.random),
        )  # fmt: skip

    def batch(self, samples, labels, task: Task, draw):
        groups = len(samples) // task.micro
        return samples.reshape(groups, task.micro, -1), labels.reshape(groups, -1)

    def costs(self, deck: Sizes) -> tuple[int, int]:
        parameters = 2 * deck.experts * deck.width * deck.hidden + deck.width * (deck.features + deck.classes)
        return parameters, 32 * deck.samples * deck.tokens * deck.width * deck.experts


MODEL = MoEModel()
