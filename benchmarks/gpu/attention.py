"""Attention and its gradients on the device: bits, and time against torch's."""

from statistics import median

import numpy as np

from benchmarks.gpu.sums import on_current_stream
from benchmarks.gpu.timing import against, rounds
from kernels import registry
from kernels.contract import attention, attention_backward
from kernels.threads import cores

# samples, heads, queries, keys, width; causal where there are as many queries as keys
SHAPES = [("training", 4, 8, 512, 512, 64), ("long", 1, 8, 4096, 4096, 64), ("one query", 32, 8, 1, 4096, 64)]
SUMS = {"forward": 2, "both passes": 7}  # chains of `width` products for a query and a key that it sees


def attention_rows(asked) -> list[dict]:
    """One row per shape, type, pass and variant."""
    return [
        row
        for dtype in ("float32", "float64")
        for name, samples, heads, *rows, width in SHAPES
        for row in _rows(name, dtype, samples, heads, *_sizes(rows, asked), width, asked)
    ]


def _sizes(rows: list[int], asked) -> list[int]:
    return [max(1, n // 64) for n in rows] if asked.quick else rows


def _rows(name: str, dtype: str, samples: int, heads: int, queries: int, keys: int, width: int, asked):
    import cupy as xp

    rng = np.random.default_rng(0)
    hosts = [
        rng.standard_normal((samples, heads, rows, width), np.float32).astype(dtype)
        for rows in (queries, queries, keys, keys)  # the gradient of the result, q, k, v
    ]
    arrays = [xp.asarray(host) for host in hosts]
    causal = queries == keys
    forward, backward = (registry.get(what, "own", "cupy") for what in ("attention", "attention_backward"))

    def own(both: bool):
        done = forward(*arrays[1:], causal=causal)
        return (*done, *backward(*arrays, *done, causal=causal)) if both else done

    how = dict(causal=causal, threads=cores())
    expected = attention(*hosts[1:], **how)
    expected += attention_backward(*hosts, *expected, **how)
    found = own(both=True)
    same = all(x.get().tobytes() == y.tobytes() for x, y in zip(found, expected, strict=True))
    seen = queries * (queries + 1) / 2 if causal else queries * keys
    rows = []
    for which, sums in SUMS.items():
        both = which == "both passes"
        times = rounds({"own": lambda both=both: own(both)} | _torch(arrays, causal, both), asked)
        rows += [
            {
                "what": f"{name} ({samples}, {heads}, {queries}, {keys}, {width}), {dtype}, {which}, {variant}",
                "check": ("bits of the CPU" if same else "FAIL: not the bits of the CPU")
                if variant == "own"
                else "-",
                "ms": 1e3 * median(times[variant]),
                "GF/s": 2e-9 * sums * samples * heads * seen * width / median(times[variant]),
                "to own": against(times, variant, "own"),
                "raw": times[variant],
            }
            for variant in times
        ]
    return rows


def _torch(arrays, causal: bool, both: bool) -> dict:
    """torch's own, where torch is built for CUDA: it may compute tiles of keys one after another, in any order."""
    try:
        import torch
    except ImportError:
        return {}
    if not torch.cuda.is_available():
        return {}
    gradient, *operands = map(torch.from_dlpack, arrays)
    for operand in operands:
        operand.requires_grad_(both)

    def run():
        out = torch.nn.functional.scaled_dot_product_attention(*operands, is_causal=causal)
        if both:
            torch.autograd.grad(out, operands, gradient)

    return {"torch": on_current_stream(run)}
