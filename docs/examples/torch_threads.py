"""A training whose bits depend on the number of threads, and the same with a layer norm that adds exactly.

python torch_threads.py RUN THREADS [exact]
"""

import sys

import torch
from torch import nn

import fpna
import fpna.torch


class ExactNorm(nn.LayerNorm):
    """A layer norm whose gradients of weight and bias are sums over all rows, rounded once."""

    def forward(self, x):
        row = torch.zeros(len(x), dtype=torch.long)  # every row of x takes the same weights
        weight, bias = (fpna.torch.embedding(row, p[None]) for p in (self.weight, self.bias))
        return nn.functional.layer_norm(x, self.normalized_shape) * weight + bias


torch.set_num_threads(int(sys.argv[2]))
torch.manual_seed(1)
norm = ExactNorm if "exact" in sys.argv else nn.LayerNorm
model = nn.Sequential(
    nn.Linear(20, 32), nn.GELU(), norm(32), nn.Linear(32, 32), nn.GELU(), norm(32), nn.Linear(32, 4)
)
optimizer = torch.optim.AdamW(model.parameters())
with fpna.record(sys.argv[1]) as r:
    fpna.watch(model, r, optimizer=optimizer)
    for step in range(1, 51):
        r.step(step)
        x = torch.randn(64, 20)
        y = x[:, :4].argmax(1)
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
print(f"loss {loss.item():.4f}")
