"""Models of at most ten layers, drawn, trained three steps under plain DDP and under the hook in `exact`.

The gradients of the hook must be the exact mean of what the ranks' own models give, rounded once; those of DDP must lie
within the error bound of a sum in their type; or the hook is refused where it is registered, and then by one sentence.

Run by tests/mpi/test_ddp_mpi.py, and by hand with other cases:

    mpirun -n 2 python tests/mpi/programs/drawn_models.py --cases 1000 --seed 5
"""

import argparse
import contextlib
import copy
import gc
import random
import sys
from collections import Counter

import ml_dtypes
import numpy as np
import torch
from sections import COMM, report_over_gloo, section
from torch import nn
from torch.nn.parallel import DistributedDataParallel

import fpna
from kernels import _native

parser = argparse.ArgumentParser()
parser.add_argument("--cases", type=int, default=8)
parser.add_argument("--seed", type=int, default=1)
OPTIONS = parser.parse_args()
RANK, SIZE, STEPS = COMM.rank, COMM.size, 3
TYPES = [torch.float32] * 4 + [torch.float64, torch.bfloat16, torch.float16]
COUNTED = Counter()


class Mixed(nn.Module):
    """A layer in a type of its own, between casts."""

    def __init__(self, inner, dtype, outer):
        super().__init__()
        self.inner, self.dtype, self.outer = inner.to(dtype), dtype, outer

    def forward(self, x):
        return self.inner(x.to(self.dtype)).to(self.outer)


class Sum(nn.Module):
    """x + f(x)."""

    def __init__(self, inner):
        super().__init__()
        self.inner = inner

    def forward(self, x):
        return x + self.inner(x)


class Scale(nn.Module):
    """By a number, or a vector, of its own."""

    def __init__(self, n, number):
        super().__init__()
        self.by = nn.Parameter(torch.tensor(1.1) if number else torch.ones(n))

    def forward(self, x):
        return x * self.by


class Looked(nn.Module):
    """Rows of a table, by integers made from x."""

    def __init__(self, n, sparse, bag):
        super().__init__()
        self.table = nn.EmbeddingBag(11, n, sparse=sparse) if bag else nn.Embedding(11, n, sparse=sparse)
        self.bag = bag

    def forward(self, x):
        index = (x.detach().float().abs().nan_to_num(1, 1, 1) * 7).long() % 11
        found = self.table(index) if self.bag else self.table(index).mean(1)
        return x + found.to(x.dtype)


class Complex(nn.Module):
    """A product with a complex matrix."""

    def __init__(self, n):
        super().__init__()
        self.by = nn.Parameter(torch.randn(n, n, dtype=torch.complex64) / n)

    def forward(self, x):
        return (x.to(torch.complex64) @ self.by).abs().to(x.dtype)


class Convolved(nn.Module):
    """A convolution over the features."""

    def __init__(self, kernel):
        super().__init__()
        self.inner = nn.Conv1d(1, 1, kernel, padding=kernel // 2)

    def forward(self, x):
        return self.inner(x[:, None]).squeeze(1)


class Network(nn.Module):
    """Layers one behind the other; some that are never used; some used twice."""

    def __init__(self, layers, unused, twice):
        super().__init__()
        self.layers, self.unused, self.twice = nn.ModuleList(layers), nn.ModuleList(unused), twice

    def forward(self, x):
        for i, layer in enumerate(self.layers):
            x = layer(x)
            if i in self.twice:
                x = layer(x)
        return x


def layer(draw, n, dtype):
    kind = draw.choice(
        ("linear", "linear", "linear", "no bias", "norm", "activation", "residual", "scale", "number", "mixed",
         "embedding", "bag", "sparse", "convolution", "complex", "batch norm", "dropout 0")
    )  # fmt: skip
    COUNTED[kind] += 1
    linear = nn.Linear(n, n, bias=kind != "no bias")
    made = {
        "norm": lambda: nn.LayerNorm(n),
        "activation": lambda: draw.choice((nn.ReLU, nn.Tanh, nn.GELU, nn.Sigmoid))(),
        "residual": lambda: Sum(nn.Sequential(linear, nn.Tanh())),
        "scale": lambda: Scale(n, False),
        "number": lambda: Scale(n, True),
        "mixed": lambda: Mixed(linear, draw.choice((torch.float64, torch.bfloat16)), dtype),
        "embedding": lambda: Looked(n, False, False),
        "bag": lambda: Looked(n, False, True),
        "sparse": lambda: Looked(n, draw.random() < 0.2, draw.random() < 0.5),
        "convolution": lambda: Convolved(draw.choice((1, 3))),
        "complex": lambda: Complex(n),
        "batch norm": lambda: nn.BatchNorm1d(n),
        "dropout 0": lambda: nn.Dropout(0.0),
    }
    result = made.get(kind, lambda: linear)()
    return result if kind in ("mixed", "complex") else result.to(dtype)


def drawn(draw):
    n, dtype = draw.choice((1, 2, 5, 16, 40)), draw.choice(TYPES)
    torch.manual_seed(draw.randrange(10**6))
    layers = [layer(draw, n, dtype) for _ in range(draw.randint(1, 10))]
    unused = [nn.Linear(n, n).to(dtype)] if draw.random() < 0.15 else []
    twice = {i for i in range(len(layers)) if draw.random() < 0.08}
    network = Network(layers, unused, twice)
    parameters = list(network.parameters())
    for parameter in parameters[1:]:
        if draw.random() < 0.08:
            parameter.requires_grad_(False)
    if not any(p.requires_grad for p in network.layers.parameters()):  # else no loss has a gradient
        network.layers.append(nn.Linear(n, n).to(dtype))
    about = {
        "bucket_cap_mb": draw.choice((1e-6, 0.001, 0.005, 25)),
        "gradient_as_bucket_view": draw.random() < 0.4,
        "find_unused_parameters": bool(unused) or draw.random() < 0.15,
        "static_graph": draw.random() < 0.15,
    }
    return network, n, dtype, about


def backward(model, batches):
    """Gradients of batches, all but the last without a sum over ranks."""
    for parameter in model.parameters():
        parameter.grad = None
    for i, x in enumerate(batches):
        last = i == len(batches) - 1
        alone = contextlib.nullcontext() if last or not hasattr(model, "no_sync") else model.no_sync()
        with alone:
            model(x).float().square().mean().backward()
    return [None if p.grad is None else p.grad.detach().clone() for p in model.parameters()]


def array(tensor):
    """As NumPy has it, real."""
    real = torch.view_as_real(tensor) if tensor.is_complex() else tensor
    real = real.contiguous()
    if real.dtype == torch.bfloat16:
        return real.view(torch.int16).numpy().view(ml_dtypes.bfloat16).reshape(-1)
    return real.numpy().reshape(-1)


def exact_mean(rows):
    out = np.empty(rows.shape[1], rows.dtype)
    _native.exact_mean(list(np.ascontiguousarray(rows)), len(rows), out)
    return out


def compared(step, names, own, plain, hooked):
    """What is wrong with the gradients of the two, given those of the ranks' own models."""
    for name, mine, ddp, ours in zip(names, own, plain, hooked, strict=True):
        there = COMM.allgather(mine is not None)
        if not any(there) or ours is None:
            if (ddp is None) != (ours is None):
                yield f"step {step}, {name}: a gradient of one alone"
            continue
        mine = torch.zeros_like(ours) if mine is None else mine
        rows = np.stack(COMM.allgather(array(mine)))
        wanted, seen, other = exact_mean(rows), array(ours), array(ddp)
        same = (wanted == seen) | (np.isnan(wanted.astype(np.float64)) & np.isnan(seen.astype(np.float64)))
        if not same.all():
            i = int(np.argmin(same))
            yield f"step {step}, {name}: {seen[i]} in place of {wanted[i]}, the mean of {rows[:, i]}"
        info = ml_dtypes.finfo(rows.dtype)
        bound = 2 * SIZE * float(info.eps) * np.abs(rows.astype(np.float64)).mean(0) + 2 * SIZE * float(
            info.smallest_subnormal
        )
        with np.errstate(all="ignore"):
            apart = np.abs(seen.astype(np.float64) - other.astype(np.float64))
        if not ((apart <= bound) | ~np.isfinite(apart)).all():
            yield f"step {step}, {name}: DDP's lie {np.nanmax(apart)} apart"


def trained(case, draw):
    network, n, dtype, about = drawn(draw)
    own, accumulate = copy.deepcopy(network), draw.choice((1, 1, 1, 2))
    if about["static_graph"]:  # with which DDP itself cannot accumulate
        accumulate = 1
    local_is_mean = not any(isinstance(m, nn.BatchNorm1d) for m in network.modules())
    hooked = DistributedDataParallel(copy.deepcopy(network), **about)
    try:
        hooked.register_comm_hook(None, fpna.ddp_hook(accumulate="exact"))
    except (TypeError, ValueError) as error:
        if not str(error).startswith("fpna.ddp_hook: ") or "sparse" not in str(error):
            yield f"refused without a reason: {error}"
        COUNTED["refused"] += 1
        return
    plain = DistributedDataParallel(copy.deepcopy(network), **about)
    names = [name for name, _ in network.named_parameters()]
    largest = draw.choice((1.0, 1.0, 1e-20, 1e4))
    for step in range(STEPS):
        generator = torch.Generator().manual_seed(1000 * case + 10 * step + RANK)
        batches = [(torch.randn(6, n, generator=generator) * largest).to(dtype) for _ in range(accumulate)]
        own.load_state_dict(plain.module.state_dict())
        hooked.module.load_state_dict(plain.module.state_dict())
        results = [backward(model, batches) for model in (own, plain, hooked)]
        yield from compared(step, names, *results)
        with torch.no_grad():
            for parameter, gradient in zip(plain.module.parameters(), results[1], strict=True):
                if gradient is not None:
                    parameter -= (0.01 * gradient.nan_to_num(0, 0, 0)).to(parameter.dtype)
    COUNTED["trained" if local_is_mean else "trained with batch norm"] += 1


@section
def drawn_models_have_the_mean():
    for case in range(OPTIONS.cases):
        draw = random.Random(f"{OPTIONS.seed} {case}")
        state = draw.getstate()
        for failure in trained(case, draw):
            draw.setstate(state)
            yield f"case {case}: {failure}"
        gc.collect() if case % 50 == 0 else None
    if OPTIONS.cases > 100 and RANK == 0:
        print(dict(COUNTED), file=sys.stderr, flush=True)


if __name__ == "__main__":
    report_over_gloo()
