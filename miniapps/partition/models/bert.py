"""An encoder: as GPT, but attention sees all tokens, and some targets alone count: -100 is no target."""

from miniapps.partition.models import gpt
from miniapps.partition.models.gpt import RECIPES, TOGETHER, Deck, annotations, axes, refused

__all__ = ["RECIPES", "TOGETHER", "Deck", "annotations", "axes", "inputs", "module", "refused"]

MASKED = 4  # one token in so many is to be told


def module(deck: Deck):
    """The network with its loss: `forward(tokens (samples, tokens), targets)`."""
    return gpt.network(deck, causal=False)


def inputs(deck: Deck, seed: int = 0):
    """Tokens, and targets of which three in four are -100."""
    import torch

    tokens, targets = gpt.inputs(deck, seed)
    generator = torch.Generator().manual_seed(seed + 1)
    told = torch.randint(0, MASKED, targets.shape, generator=generator) == 0
    return tokens, torch.where(told, targets, -100)
