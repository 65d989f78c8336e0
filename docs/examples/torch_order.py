"""In which order does torch add, and does training notice? A script for one process.

python torch_order.py RUN [THREADS]
"""

import sys

import numpy as np
import torch

import fpna

threads = int(sys.argv[2]) if len(sys.argv) > 2 else 1
torch.set_num_threads(threads)


def mean_of(x):
    """The mean of float32 numbers as torch adds them; a unit of the sum is what `discover` counts."""
    return float(torch.from_numpy(x).sum())


order = fpna.discover(mean_of, 300, np.float32)
print(f"the order in which torch.sum adds 300 numbers, {threads} threads:")
print(*fpna.outline(order), sep="\n")

generator = torch.Generator().manual_seed(1)
x = torch.randn(100_000, 8, generator=generator)
y = (x.prod(dim=1, keepdim=True) + 0.1 * torch.randn(100_000, 1, generator=generator)).tanh()
weights = [torch.randn(8, 16, generator=generator) / 4, torch.randn(16, 1, generator=generator) / 4]
weights = [w.requires_grad_() for w in weights]

with fpna.record(sys.argv[1], problem={"samples": 100_000}, method={"threads": threads}) as r:
    for step in range(1, 21):
        r.step(step)
        with r.region("gradient"):
            loss = ((x @ weights[0]).tanh() @ weights[1] - y).square().mean()
            loss.backward()
        with torch.no_grad():
            for number, w in enumerate(weights):
                w -= 0.1 * w.grad
                w.grad = None
                r.fingerprint("weights", w, block=number)
        r.value("loss", loss.item())
print(f"loss {loss.item():.9f}")
