"""A decoder: embeddings, causal attention, layer norm before each part, cross entropy of the next byte."""

from dataclasses import dataclass
from typing import ClassVar

from miniapps.errors import UsageError
from miniapps.partition.cuts.axes import Axis, evenly
from miniapps.partition.models import MeshModel, Task, Width, pipeline_refused
from miniapps.runner.config import option


@dataclass
class Options(Width):
    """The options of transformers."""

    layers: int = option(4, help="number of layers", minimum=1, maximum=256, effect="size")
    heads: int = option(4, help="heads of attention, each a block", minimum=1, maximum=256)
    dropout: float = option(
        0.0, help="probability that dropout sets a value to 0: after the embedding, in attention, after each part",
        minimum=0.0, maximum=0.9,
    )  # fmt: skip
    tokens: int = option(128, help="bytes per sample", minimum=2, maximum=2**14, effect="size")


@dataclass(frozen=True)
class Sizes:
    """Sizes, and numbers of blocks. `width` is a multiple of `heads`; each head is a block. `batch`: of the samples of
    a micro-batch. 0 blocks of tokens or of the vocabulary: 4 and 8, or one per element if there are fewer; of stages:
    a layer each."""

    samples: int = 14
    tokens: int = 16
    vocabulary: int = 96
    width: int = 64
    heads: int = 4
    feedforward: int = 128
    layers: int = 2
    batch: int = 7
    ff: int = 8
    stored: int = 8
    token_blocks: int = 0
    vocabulary_blocks: int = 0
    micro_batches: int = 1
    stage: int = 0
    dropout: float = 0.0


class GPTModel(MeshModel):
    """A transformer that predicts the next byte of a text."""

    Deck = Sizes
    RECIPES: ClassVar = {
        "dp": {"batch": "data"},
        "tp": {"heads": "model", "ff": "model"},
        "dp+tp": {"batch": "data", "heads": "model", "ff": "model"},
        "zero": {"batch": "data", "stored": "data"},
        "sp": {"tokens": "sequence"},
        "dp+sp": {"batch": "data", "tokens": "sequence"},
        "tp+sp": {"heads": "model", "ff": "model", "tokens": "sequence"},
        "tp+norms": {"heads": "model", "ff": "model", "norms": "model"},
        "dp+tp+norms": {"batch": "data", "heads": "model", "ff": "model", "norms": "model"},
        "tp+vocabulary": {"heads": "model", "ff": "model", "vocabulary": "model"},
        "dp+tp+vocabulary": {"batch": "data", "heads": "model", "ff": "model", "vocabulary": "model"},
        "pp": {"stage": "stage"},
        "dp+pp": {"batch": "data", "stage": "stage"},
        "tp+pp": {"heads": "model", "ff": "model", "stage": "stage"},
        "dp+tp+pp": {"batch": "data", "heads": "model", "ff": "model", "stage": "stage"},
        "tp+norms+pp": {"heads": "model", "ff": "model", "norms": "model", "stage": "stage"},
        "dp+tp+norms+pp": {
            "batch": "data",
            "heads": "model",
            "ff": "model",
            "norms": "model",
            "stage": "stage",
        },
    }
    BLOCKS: ClassVar = {"tokens": "token_blocks", "norms": "token_blocks", "vocabulary": "vocabulary_blocks"}
    TOGETHER = (("batch", "stored"), ("heads", "ff", "norms"))
    LATER = ("norms",)
    STACK = "blocks"
    WHOLE = ("heads",)
    KEYS = "tokens"
    OPTIONS = Options
    LEARNS = "text"
    CAUSAL = True

    def refused(self, deck: Sizes) -> str:
        """Heads need equal parts of the width; dropout is a probability; a step has whole micro-batches, a stage a
        layer or more."""
        if not 0.0 <= deck.dropout < 1.0:
            return f"dropout = {deck.dropout}: give a probability from 0 on, less than 1"
        if deck.width % deck.heads:
            return f"width = {deck.width} is not a multiple of heads = {deck.heads}; choose a multiple"
        return pipeline_refused(deck, deck.layers)

    def module(self, deck: Sizes):
        """The network with its loss: `forward(tokens (samples, tokens), targets)`."""
        import torch
        from torch.nn.functional import cross_entropy

        from miniapps.partition.models.attention import Block, embeddings

        causal = self.CAUSAL

        class Transformer(torch.nn.Module):
            def __init__(self):
                super().__init__()
                self.embedding, self.position = embeddings(deck)
                self.drop = torch.nn.Dropout(deck.dropout)
                self.blocks = torch.nn.ModuleList(Block(deck, causal) for _ in range(deck.layers))
                self.norm = torch.nn.LayerNorm(deck.width)
                self.logits = torch.nn.Linear(deck.width, deck.vocabulary, bias=False)

            def forward(self, tokens, targets):
                places = torch.arange(tokens.shape[1], device=tokens.device)
                h = self.drop(self.embedding(tokens) + self.position(places))
                for block in self.blocks:
                    h = block(h)
                logits = self.logits(self.norm(h))
                return cross_entropy(logits.flatten(0, 1), targets.flatten())

        return Transformer()

    def inputs(self, deck: Sizes, seed: int = 0):
        """Random tokens and targets."""
        import torch

        generator = torch.Generator().manual_seed(seed)
        drawn = torch.randint(0, deck.vocabulary, (deck.samples, deck.tokens + 1), generator=generator)
        return drawn[:, :-1].contiguous(), drawn[:, 1:].contiguous()

    def axes(self, deck: Sizes) -> tuple[Axis, ...]:
        """batch, heads, ff (inner width of the feed-forward part), stored (rows of weights, for `zero`), tokens, norms
        (tokens where neither heads nor ff are cut), vocabulary (rows of the embedding, and logits) and stage (layers,
        for pipelines)."""
        return (
            evenly("batch", deck.samples // deck.micro_batches, deck.batch),
            evenly("heads", deck.heads, deck.heads),
            evenly("ff", deck.feedforward, deck.ff),
            evenly("stored", deck.width, deck.stored),
            evenly("tokens", deck.tokens, deck.token_blocks or min(4, deck.tokens)),
            evenly("norms", deck.tokens, deck.token_blocks or min(4, deck.tokens)),
            evenly("vocabulary", deck.vocabulary, deck.vocabulary_blocks or min(8, deck.vocabulary)),
            evenly("stage", deck.layers, deck.stage or deck.layers),
        )

    def annotations(self, deck: Sizes):
        """Cuts samples, tokens and, in each block, Megatron's pairs (arXiv 1909.08053): q, k, v and the first layer of
        the feed-forward part by rows, the layers after them by columns; the vocabulary where it is looked up and where
        it is predicted. With `norms`, all between the pairs is cut by tokens (arXiv 2205.05198)."""
        given: dict = {0: ("batch", ("tokens", "norms")), 1: ("batch", ("tokens", "norms"))}
        given |= {"embedding.weight": ("vocabulary", None), "logits.weight": ("vocabulary", None)}
        for layer in range(deck.layers):
            block = f"blocks.{layer}."
            for part in ("q", "k", "v"):
                given |= {f"{block}{part}.weight": ("heads", None), f"{block}{part}.bias": ("heads",)}
            given |= {
                f"{block}out.weight": (None, "heads"),
                f"{block}up.weight": ("ff", None),
                f"{block}up.bias": ("ff",),
                f"{block}down.weight": (None, "ff"),
            }
        return given

    def sized(self, sizes, task: Task) -> Sizes:
        if sizes.hidden % sizes.heads:
            raise UsageError(
                f"model.hidden = {sizes.hidden} is not a multiple of model.heads = {sizes.heads}; choose a multiple"
            )
        return Sizes(
            samples=task.batch, tokens=sizes.tokens, vocabulary=task.vocabulary, width=sizes.hidden, heads=sizes.heads,
            feedforward=4 * sizes.hidden, layers=sizes.layers, batch=task.batch // task.parts // task.micro,
            ff=min(8, 4 * sizes.hidden), stored=min(8, sizes.hidden), dropout=sizes.dropout,
            micro_batches=task.parts,
        )  # fmt: skip

    def batch(self, samples, labels, task: Task, draw):
        return samples[:, :-1].contiguous(), samples[:, 1:].contiguous()

    def costs(self, deck: Sizes) -> tuple[int, int]:
        width, layers = deck.width, deck.layers
        parameters = (12 * width * width + 13 * width) * layers + 2 * width * (deck.vocabulary + deck.tokens)
        scores = (
            8 * deck.heads * deck.tokens if deck.dropout else 0
        )  # in attention, which then is no single kernel
        return parameters, deck.samples * deck.tokens * ((width * 20 + scores) * layers + deck.vocabulary)


MODEL = GPTModel()
