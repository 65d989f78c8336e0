"""Times products whose bits depend on the contracted length alone, beside torch's own.

    python -m benchmarks.kernels.contract --json benchmarks/results/contract.json

| part | shapes |
|---|---|
| matmul | square 512; layers of a GPT block with d = 256 and 512 (1024 tokens); few rows; B as it is and transposed |
| batched | scores and values of attention, 8 heads |
| conv | 3x3, 5x5, 1x1, stride 2: forward, gradient of images, gradient of weights |
| rowsum | bias gradients, sums of rows |
| attention | of GPTs, forward and gradients; causal, except for rows with `all keys` |
| gradients | of weights over blocks of samples: own in one call for all blocks, in one call each (`own-each`), torch |
| blocks | torch on blocks of one shape, beside torch on whole matrices |

GF/s are 2 x products / processor time (sums: 1 x terms), the median of rounds, each the best of some calls. Variants
are called in turn, and `to torch` is the ratio of times within a round (median, least, most). `peak` is the rate of one
core: it multiplies operands that stay in the caches. Processor time is that of all threads.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable

import torch

from benchmarks.harness.results import parts_parser, run_parts
from benchmarks.harness.turns import in_turn, ratio
from kernels.contract import attention, attention_backward, conv, conv_input, conv_weight, matmul, rowsum
from kernels.contract.torch import in_threads

SAMPLES, SAMPLE_S = 5, 0.02

MATRICES = [
    ("square", 512, 512, 512),
    ("d=256 qkv", 1024, 256, 768),
    ("d=256 up", 1024, 256, 1024),
    ("d=256 down", 1024, 1024, 256),
    ("d=512 qkv", 1024, 512, 1536),
    ("d=512 up", 1024, 512, 2048),
    ("d=512 down", 1024, 2048, 512),
    ("1 row", 1, 512, 2048),
    ("8 rows", 8, 512, 2048),
    ("8 rows", 8, 2048, 2048),
    ("32 rows", 32, 512, 2048),
    ("32 rows", 32, 2048, 512),
]  # rows, depth, columns
HEADS = [("scores d=256", 8, 128, 32, 128), ("values d=256", 8, 128, 128, 32), ("scores d=512", 8, 256, 64, 256),
         ("values d=512", 8, 256, 256, 64)]  # fmt: skip
IMAGES = [
    ("3x3", 8, 16, 32, 64, 3, 1),
    ("3x3", 8, 32, 64, 32, 3, 1),
    ("3x3", 8, 64, 64, 32, 3, 1),
    ("3x3", 8, 128, 128, 16, 3, 1),
    ("5x5", 8, 32, 32, 32, 5, 1),
    ("3x3 stride 2", 8, 16, 32, 64, 3, 2),
    ("5x5 stride 2", 8, 32, 64, 32, 5, 2),
    ("1x1", 8, 64, 64, 32, 1, 1),
]  # samples, channels, outputs, points of a side, window, stride
ATTENTION = [
    ("", 8, 4, 128, 32),
    ("", 8, 4, 128, 64),
    ("", 4, 8, 64, 32),
    ("", 2, 4, 512, 64),
    (", all keys", 8, 4, 128, 32),
]
SUMS = [
    ("bias", (1024, 512), 0),
    ("bias of images", (8, 32, 64, 64), (0, 2, 3)),
    ("rows", (1024, 512), 1),
    ("all", (1_000_000,), 0),
]
GRADIENTS = [("MLP", 512, 784, 8, 32), ("MLP", 512, 512, 8, 32), ("d=256 up", 1024, 256, 4, 128),
             ("d=256 qkv", 256, 256, 4, 128)]  # rows, columns, blocks, samples of a block  # fmt: skip
TYPES = ("float32", "float64")


def best(call: Callable, quick: bool) -> float:
    """Processor seconds of a call: the least of SAMPLES samples, each with as many calls as take SAMPLE_S."""

    def seconds(calls: int) -> float:
        begin = time.process_time()
        for _ in range(calls):
            call()
        return (time.process_time() - begin) / calls

    once = max(seconds(1), 1e-6)
    return once if quick else min(seconds(max(1, int(SAMPLE_S / once))) for _ in range(SAMPLES))


def compared(name: str, dtype: str, work: float, calls: dict[str, Callable], options) -> list[dict]:
    """A row for every variant except torch: rates in Gflop/s, and the ratio of times."""
    with in_threads(options.threads):
        times = in_turn(
            {variant: lambda call=call: best(call, options.quick) for variant, call in calls.items()},
            options.rounds,
            options.quiet,
        )
    return [
        {
            "what": name,
            "dtype": dtype,
            "variant": variant,
            "GF/s": 1e-9 * work / statistics.median(times[variant]),
            "torch GF/s": 1e-9 * work / statistics.median(times["torch"]),
            "to torch": ratio(times[variant], times["torch"]),
            "raw": times[variant],
        }
        for variant in times
        if variant != "torch"
    ]


def normal(dtype: str, *shape: int) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(0)).to(getattr(torch, dtype))


def products(a: torch.Tensor, b: torch.Tensor, threads: int) -> dict[str, Callable]:
    """Our product and torch's, into existing memory."""
    out = a.new_empty((*a.shape[:-1], b.shape[-1]))
    return {
        "own": lambda: matmul(a, b, out, threads=threads),
        "torch": lambda: torch.matmul(a, b, out=out),
    }


def matmul_part(options):
    """Matrices."""
    for dtype in TYPES:
        for name, m, k, n in MATRICES:
            a, b = normal(dtype, m, k), normal(dtype, k, n)
            for how, right in (("", b), (", B transposed", b.T.contiguous().T)):
                calls = products(a, right, options.threads)
                yield from compared(f"{name} ({m}, {k}, {n}){how}", dtype, 2.0 * m * k * n, calls, options)


def batched_part(options):
    """Products of attention: heads lie between tokens and features."""
    for dtype in TYPES:
        for name, batch, m, k, n in HEADS:
            a, b = normal(dtype, m, batch, k).permute(1, 0, 2), normal(dtype, n, batch, k).permute(1, 2, 0)
            calls = products(a, b, options.threads)
            yield from compared(
                f"{name} {batch} x ({m}, {k}, {n})", dtype, 2.0 * batch * m * k * n, calls, options
            )


def conv_part(options):
    """Convolutions and both gradients."""
    for name, count, channels, outputs, side, window, stride in IMAGES:
        x, w = (
            normal("float32", count, channels, side, side),
            normal("float32", outputs, channels, window, window),
        )
        moves = dict(stride=stride, padding=window // 2)
        y = conv(x, w, **moves)
        gx, gw = torch.empty_like(x), torch.empty_like(w)
        work = 2.0 * y.numel() * channels * window**2
        more = dict(threads=options.threads, **moves)
        calls = {
            "forward": (
                lambda x=x, w=w, more=more: conv(x, w, **more),
                lambda x=x, w=w, moves=moves: torch.nn.functional.conv2d(x, w, None, **moves),
            ),
            "input": (
                lambda y=y, w=w, gx=gx, more=more: conv_input(y, w, gx.shape[2:], gx, **more),
                lambda x=x, w=w, y=y, moves=moves: backward(x, w, y, [True, False, False], **moves),
            ),
            "weight": (
                lambda x=x, y=y, gw=gw, more=more: conv_weight(x, y, gw.shape[2:], gw, **more),
                lambda x=x, w=w, y=y, moves=moves: backward(x, w, y, [False, True, False], **moves),
            ),
        }
        for which, (own, library) in calls.items():
            what = f"{name} ({count}, {channels}, {side}) to {outputs}, {which}"
            yield from compared(what, "float32", work, {"own": own, "torch": library}, options)


def backward(x, w, y, wanted: list[bool], stride: int, padding: int):
    """torch's gradients that `wanted` selects."""
    sides = [stride] * 2, [padding] * 2, [1, 1], False, [0, 0], 1, wanted
    return torch.ops.aten.convolution_backward(y, x, w, None, *sides)


def rowsum_part(options):
    """Sums over dims."""
    for dtype in TYPES:
        for name, shape, dims in SUMS:
            x = normal(dtype, *shape)
            out = rowsum(x, dims)
            calls = {
                "own": lambda x=x, dims=dims, out=out: rowsum(x, dims, out, threads=options.threads),
                "torch": lambda x=x, dims=dims, out=out: torch.sum(x, dims, out=out),
            }
            yield from compared(f"{name} {shape}", dtype, float(x.numel()), calls, options)


def attention_part(options):
    """Both passes; depth is width, and heads lie between tokens and features."""
    for dtype in TYPES:
        for keys, samples, heads, tokens, width in ATTENTION:
            shape = samples, tokens, heads, width
            operands = [normal(dtype, *shape).transpose(1, 2) for _ in range(4)]
            forward, backward = {}, {}
            for variant in ("own", "torch"):
                how = dict(variant=variant, causal=not keys, threads=options.threads)
                done = attention(*operands[1:], **how)
                forward[variant] = lambda xs=operands, how=how: attention(*xs[1:], **how)
                backward[variant] = lambda xs=operands, done=done, how=how: attention_backward(
                    *xs, *done, **how
                )
            seen = tokens * tokens if keys else tokens * (tokens + 1) / 2
            for name, calls, sums in (("forward", forward, 2), ("backward", backward, 5)):
                what = f"{name} ({samples}, {heads}, {tokens}, {width}){keys}"
                yield from compared(what, dtype, 2.0 * sums * samples * heads * seen * width, calls, options)


def gradients_part(options):
    """Gradients of weights over blocks of samples, added by the tree."""
    for name, m, n, count, length in GRADIENTS:
        a, b = normal("float32", count * length, m).T, normal("float32", count * length, n)
        blocks = [length] * count

        def each(a=a, b=b, length=length):
            parts = [matmul(x, y) for x, y in zip(a.split(length, 1), b.split(length), strict=True)]
            while len(parts) > 1:  # their number is a power of two
                parts = [x.add_(y) for x, y in zip(parts[::2], parts[1::2], strict=True)]
            return parts[0].add_(0)

        calls = {
            "own": lambda a=a, b=b, blocks=blocks: matmul(a, b, blocks=blocks, threads=options.threads),
            "own-each": each,
            "torch": lambda a=a, b=b: torch.mm(a, b),
        }
        what = f"{name} ({m}, {count} x {length}, {n})"
        yield from compared(what, "float32", 2.0 * m * n * count * length, calls, options)


def blocks_part(options):
    """torch on blocks of one shape."""
    for name, m, k, n in MATRICES:
        a, b = normal("float32", m, k), normal("float32", k, n)
        calls = products(a, b, options.threads)
        calls["torch-blocks"] = lambda a=a, b=b: matmul(a, b, variant="torch-blocks")
        rows = compared(f"{name} ({m}, {k}, {n})", "float32", 2.0 * m * k * n, calls, options)
        yield from (row for row in rows if row["variant"] != "own")


def peak_part(options):
    """The rate of tiles without memory traffic: one piece of K and few rows, within the caches."""
    for dtype in TYPES:
        calls = products(normal(dtype, 112, 256), normal(dtype, 256, 256), 1)
        yield from compared("peak (112, 256, 256)", dtype, 2.0 * 112 * 256 * 256, calls, options)


PARTS = {"peak": peak_part, "matmul": matmul_part, "batched": batched_part, "conv": conv_part, "rowsum": rowsum_part,
         "attention": attention_part, "gradients": gradients_part, "blocks": blocks_part}  # fmt: skip


def main(argv=None) -> None:
    """Measures and reports."""
    parser = parts_parser("kernels.contract", __doc__, PARTS, 7)
    parser.add_argument(
        "--threads", type=int, default=1, help="threads of all variants (default %(default)s)"
    )
    parser.add_argument("--quick", action="store_true", help="one call per sample: a smoke test")
    run_parts("kernels.contract", parser, PARTS, argv)


if __name__ == "__main__":
    main()
