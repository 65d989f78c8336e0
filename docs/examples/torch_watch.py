"""A training under watch, on a chosen number of threads.

python torch_watch.py RUN THREADS
"""

import sys

import torch
from torch import nn

import fpna

torch.set_num_threads(int(sys.argv[2]))
torch.manual_seed(1)
model = nn.Sequential(nn.Linear(100, 300), nn.GELU(), nn.Linear(300, 10), nn.LayerNorm(10))
optimizer = torch.optim.AdamW(model.parameters())
with fpna.record(sys.argv[1]) as r:
    fpna.watch(model, r, optimizer=optimizer)  # the two lines that are added to a training
    for step in range(1, 21):
        r.step(step)
        x, y = torch.randn(512, 100), torch.randint(0, 10, (512,))
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
print(f"loss {loss.item():.6f}")
