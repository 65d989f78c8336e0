"""The same network on any number of processes.

mpirun -n 4 python torch_any_ranks.py RUN
"""

import sys

import torch
from torch import nn

import fpna

torch.manual_seed(1)
torch.set_num_threads(1)
model = nn.Sequential(nn.Linear(64, 128), nn.GELU(), nn.Dropout(0.1), nn.Linear(128, 10))
optimizer = torch.optim.AdamW(model.parameters())
whole = fpna.accumulate(model, micro=8)  # a batch has 8 micro-batches, on 1 to 8 processes
with fpna.record(sys.argv[1]) as r:
    for step in range(1, 51):
        r.step(step)
        x, y = torch.randn(256, 64), torch.randint(0, 10, (256,))  # the whole batch, on every process
        optimizer.zero_grad()
        for x_part, y_part in whole.parts(x, y):
            nn.functional.cross_entropy(model(x_part), y_part).backward()
        optimizer.step()
    for number, parameter in enumerate(model.parameters()):
        r.fingerprint("weights", parameter, block=number)
