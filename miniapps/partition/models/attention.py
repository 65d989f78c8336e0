"""Parts that GPT and BERT share: attention, feed-forward part, embeddings."""

import torch
from torch.nn.functional import gelu, scaled_dot_product_attention


def embeddings(deck):
    """The embeddings of tokens and of places."""
    return torch.nn.Embedding(deck.vocabulary, deck.width), torch.nn.Embedding(deck.tokens, deck.width)


class Attention(torch.nn.Module):
    """Attention with separate layers for q, k and v, whose rows are heads x width of a head."""

    def __init__(self, deck, causal: bool):
        super().__init__()
        self.heads, self.causal, self.dropout = deck.heads, causal, deck.dropout
        self.q = torch.nn.Linear(deck.width, deck.width)
        self.k = torch.nn.Linear(deck.width, deck.width)
        self.v = torch.nn.Linear(deck.width, deck.width)
        self.out = torch.nn.Linear(deck.width, deck.width)

    def attend(self, x):
        """Attention of x (samples, tokens, width); returns the same shape."""
        samples, tokens, width = x.shape
        q, k, v = (
            layer(x).view(samples, tokens, self.heads, width // self.heads).transpose(1, 2)
            for layer in (self.q, self.k, self.v)
        )
        mixed = scaled_dot_product_attention(q, k, v, dropout_p=self.dropout, is_causal=self.causal)
        return self.out(mixed.transpose(1, 2).reshape(samples, tokens, width))


class Block(Attention):
    """Attention and a feed-forward part, each with a layer norm before it and added to its input."""

    def __init__(self, deck, causal: bool):
        super().__init__(deck, causal)
        self.norm1, self.norm2 = torch.nn.LayerNorm(deck.width), torch.nn.LayerNorm(deck.width)
        self.up = torch.nn.Linear(deck.width, deck.feedforward)
        self.down = torch.nn.Linear(deck.feedforward, deck.width)
        self.drop = torch.nn.Dropout(deck.dropout)

    def forward(self, x):
        x = x + self.drop(self.attend(self.norm1(x)))
        return x + self.drop(self.down(gelu(self.up(self.norm2(x)))))
