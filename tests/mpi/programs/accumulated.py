"""Trains a model of a user by `fpna.accumulate` and prints a hash of its weights: accumulated.py MODEL"""

import hashlib
import os
import sys

import torch
from torch import nn

import fpna


class Images(nn.Module):
    def __init__(self):
        super().__init__()
        self.stem = nn.Conv2d(1, 8, 3, padding=1)
        blocks = (
            nn.Sequential(nn.Conv2d(8, 8, 3, padding=1), nn.GroupNorm(2, 8), nn.ReLU()) for _ in range(3)
        )
        self.body = nn.ModuleList(blocks)
        self.head = nn.Linear(8, 4)

    def forward(self, x):
        x = self.stem(x.reshape(-1, 1, 8, 8))
        for block in self.body:
            x = x + block(x)
        return self.head(x.mean((2, 3)))


class Tokens(nn.Module):
    def __init__(self):
        super().__init__()
        layer = nn.TransformerEncoderLayer(8, 2, 16, dropout=0.1, batch_first=True)
        self.encoder, self.head = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False), nn.Linear(8, 4)

    def forward(self, x):
        return self.head(self.encoder(x.reshape(-1, 8, 8)).mean(1))


class Recurrent(nn.Module):
    def __init__(self):
        super().__init__()
        self.cell, self.head, self.unused = (
            nn.LSTM(8, 12, batch_first=True),
            nn.Linear(12, 4),
            nn.Linear(2, 2),
        )

    def forward(self, x):
        return self.head(self.cell(x.reshape(-1, 8, 8))[0][:, -1])


class Normed(Images):
    def __init__(self):
        super().__init__()
        self.norm = nn.BatchNorm2d(8)


if "TORCHELASTIC_RUN_ID" in os.environ:
    torch.distributed.init_process_group("gloo")
torch.manual_seed(0)
torch.set_num_threads(1)
model = {"images": Images, "tokens": Tokens, "recurrent": Recurrent, "normed": Normed}[sys.argv[1]]()
optimizer = torch.optim.AdamW(model.parameters(), 1e-2)
whole = fpna.accumulate(model, micro=6)
generator = torch.Generator().manual_seed(1)
for _ in range(4):
    x, y = torch.randn(27, 64, generator=generator), torch.randint(0, 4, (27,), generator=generator)
    optimizer.zero_grad()
    for x_part, y_part in whole.parts(x, y):
        nn.functional.cross_entropy(model(x_part), y_part).backward()
    optimizer.step()
digest = hashlib.sha256(b"".join(p.detach().numpy().tobytes() for p in model.parameters())).hexdigest()[:16]
print(f"weights {digest}")
