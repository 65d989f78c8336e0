"""An encoder: as GPT, but attention sees all tokens, and some targets alone count: -100 is no target."""

from miniapps.learning.seeds import MASK
from miniapps.partition.models import Task
from miniapps.partition.models.gpt import GPTModel, Sizes

MASKED = 0.15  # of the bytes that it is to tell (Devlin et al. 2019)
DRAWN = 4  # one token in so many is to be told of inputs that are drawn
NO_TARGET = -100  # of torch's cross_entropy


class BERTModel(GPTModel):
    """A transformer, for bytes of a text that it does not see."""

    CAUSAL = False

    def inputs(self, deck: Sizes, seed: int = 0):
        """Tokens, and targets of which three in four are -100."""
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
