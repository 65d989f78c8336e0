"""Modules as users write them, for `fpna partition explain` and `run`."""

import torch
from torch import nn
from torch.nn import functional as F

from fpna import manual


class Residual(nn.Module):
    """Two convolutions and a way past them."""

    def __init__(self, inner, outer, stride):
        super().__init__()
        self.a, self.norm_a = nn.Conv2d(inner, outer, 3, stride, 1, bias=False), nn.BatchNorm2d(outer)
        self.b, self.norm_b = nn.Conv2d(outer, outer, 3, 1, 1, bias=False), nn.BatchNorm2d(outer)
        self.past = nn.Identity() if inner == outer else nn.Conv2d(inner, outer, 1, stride, bias=False)

    def forward(self, x):
        return F.relu(self.norm_b(self.b(F.relu(self.norm_a(self.a(x))))) + self.past(x))


class ResNet(nn.Module):
    """Images to 10 classes."""

    def __init__(self):
        super().__init__()
        self.stem = nn.Sequential(
            nn.Conv2d(3, 4, 7, 2, 3, bias=False), nn.BatchNorm2d(4), nn.ReLU(), nn.MaxPool2d(3, 2, 1)
        )
        self.body = nn.Sequential(Residual(4, 4, 1), Residual(4, 8, 2))
        self.head = nn.Linear(8, 10)

    def forward(self, x):
        return self.head(F.adaptive_avg_pool2d(self.body(self.stem(x)), 1).flatten(1))


class Encoder(nn.Module):
    """torch's own layers of a transformer; the loss is its own."""

    def __init__(self, dropout=0.0, layers=2):
        super().__init__()
        self.embed = nn.Embedding(20, 16)
        layer = nn.TransformerEncoderLayer(16, 4, 32, dropout, batch_first=True)
        self.encoder = nn.TransformerEncoder(layer, layers, enable_nested_tensor=False)
        self.out = nn.Linear(16, 20)

    def forward(self, tokens, targets):
        return F.cross_entropy(self.out(self.encoder(self.embed(tokens))).flatten(0, 1), targets.flatten())


def dropping():
    """With dropout, also inside of attention."""
    return Encoder(0.1, 1)


class Memory(nn.Module):
    """An LSTM and its last state."""

    def __init__(self):
        super().__init__()
        self.lstm, self.out = nn.LSTM(6, 8, batch_first=True), nn.Linear(8, 5)

    def forward(self, x):
        return self.out(self.lstm(x)[0][:, -1])


class Tied(nn.Module):
    """The table of the embedding is the weight of the last layer."""

    def __init__(self):
        super().__init__()
        self.embed, self.inner, self.drop = nn.Embedding(20, 8), nn.Linear(8, 8), nn.Dropout(0.2)
        self.out = nn.Linear(8, 20, bias=False)
        self.out.weight = self.embed.weight

    def forward(self, tokens, targets):
        h = self.drop(torch.tanh(self.inner(self.embed(tokens))))
        return F.cross_entropy(self.out(h).flatten(0, 1), targets.flatten())


class Perceptron(nn.Module):
    """Three linear layers and a batch norm."""

    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(
            nn.Linear(6, 16), nn.ReLU(), nn.BatchNorm1d(16), nn.Linear(16, 16), nn.GELU(), nn.Linear(16, 4)
        )

    def forward(self, x):
        return self.net(x)


MADE = Perceptron()


class Spectral(nn.Module):
    """An operation without a rule between two layers."""

    def __init__(self):
        super().__init__()
        self.a, self.b = nn.Linear(6, 8), nn.Linear(8, 4)

    def forward(self, x):
        return self.b(torch.special.i0e(self.a(x)))


def inputs():
    """Six samples and their classes."""
    generator = torch.Generator().manual_seed(1)
    return torch.randn(6, 6, generator=generator), torch.randint(0, 4, (6,), generator=generator)


# ---- what is refused


class Refused(nn.Module):
    """A layer, and what `change` makes of its result."""

    def __init__(self, change=lambda self, y: y):
        super().__init__()
        self.layer, self.change, self.calls = nn.Linear(6, 4), change, 0

    def forward(self, x):
        return self.change(self, self.layer(x))


class Needy(Refused):
    """Cannot be made without arguments."""

    def __init__(self, width):
        super().__init__()
        self.width = width


class Failing(Refused):
    """Raises when it is made."""

    def __init__(self):
        raise ValueError("no weights")


class Broken(Refused):
    """Raises when it is called."""

    def forward(self, x):
        raise KeyError("weights")


class Branching(Refused):
    """A branch that depends on values."""

    def forward(self, x):
        y = self.layer(x).sum()
        if y > 0:
            y = y * 2
        return y


class Counting(Refused):
    """Changes an attribute."""

    def forward(self, x):
        self.calls += 1
        return self.layer(x).sum() * self.calls


class Drawing(Refused):
    """Draws by Python's generator."""

    def forward(self, x):
        import random

        return self.layer(x).sum() * random.random()


class Quitting(Refused):
    """Ends the process."""

    def forward(self, x):
        raise SystemExit(3)


class Printing(Refused):
    """Says what it does."""

    def forward(self, x):
        print("forward")
        return self.layer(x).sum()


def cyclic():
    """A module that contains itself."""
    found = Refused(lambda self, y: y.sum())
    found.inner = nn.Linear(6, 4)
    found.inner.outer = found
    return found


def constant():
    """A loss without parameters."""
    return Refused(lambda self, y: y.detach().sum())


def nothing():
    """No module."""


def needy_inputs(n):
    """Needs an argument."""


def wrong_inputs():
    """No tensors."""
    return {"x": 1}


# ---- a manual region


@manual("n.., .. -> n..")
def placed(where, x, weight):
    """A layer, and the number of the sample."""
    return torch.tanh(x @ weight) + torch.from_numpy(where["n"]).to(x)[:, None, None]


@manual("nh, h. -> n., nh")
def halves(where, x, weight):
    """A product, which is a sum over h, and the places along it."""
    return x @ weight, x * torch.from_numpy(where["h"]).to(x)


@manual("n., .. -> n.", along="n")
def mixed(where, x, weight):
    """Rows less their mean over all blocks, mixed with all rows."""
    centred = x - where.psum(x.sum(0), "n") / 6
    rows = where.all_gather(centred @ weight, "n")
    return torch.softmax(centred @ rows.T, 1) @ rows


class Talking(nn.Module):
    """A manual region whose blocks send messages, between layers."""

    def __init__(self):
        super().__init__()
        self.a, self.b = nn.Linear(6, 8), nn.Linear(8, 4)
        self.w = nn.Parameter(torch.linspace(-1, 1, 64).reshape(8, 8))

    def forward(self, x):
        return self.b(mixed(self.a(x), self.w))


class Regional(nn.Module):
    """Two manual regions between layers."""

    def __init__(self):
        super().__init__()
        self.a, self.b = nn.Linear(6, 8), nn.Linear(8, 4)
        self.w = nn.Parameter(torch.linspace(-1, 1, 64).reshape(8, 8))
        self.v = nn.Parameter(torch.linspace(-1, 1, 64).reshape(8, 8))

    def forward(self, x):
        h = placed(self.a(x), self.w).mean(1)
        one, two = halves(h, self.v)
        return self.b(one + two)
