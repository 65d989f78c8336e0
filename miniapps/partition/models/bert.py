"""An encoder: like GPT, but attention sees all tokens, and only some tokens have a target (-100: none)."""

from miniapps.learning.seeds import MASK
from miniapps.partition.models import Task
from miniapps.partition.models.gpt import GPTModel, Sizes

MASKED = 0.15  # fraction of masked bytes, which the model predicts (Devlin et al. 2019)
DRAWN = 4  # every fourth token, on average, has a target in random inputs
NO_TARGET = -100  # the value that torch's cross_entropy ignores


class BERTModel(GPTModel):
    """A transformer that predicts masked bytes of a text."""

    CAUSAL = False

    def inputs(self, deck: Sizes, seed: int = 0):
        """Tokens, and targets, three of four of which are -100."""
        import torch

        tokens, targets = super().inputs(deck, seed)
        generator = torch.Generator().manual_seed(seed + 1)
        told = torch.randint(0, DRAWN, targets.shape, generator=generator) == 0
        return tokens, torch.where(told, targets, NO_TARGET)

    def batch(self, samples, labels, task: Task, draw):
        import torch

        tokens = samples[:, :-1].contiguous()
        told = torch.from_numpy(draw(MASK).random(tuple(tokens.shape)) < MASKED)
        return torch.where(told, 0, tokens), torch.where(told, tokens, NO_TARGET)


MODEL = BERTModel()
