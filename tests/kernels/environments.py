"""Kernels called in floating-point environments drawn at random, and whether one of them gave other bits than in the
default environment, or left the environment otherwise.

    .venv/bin/python -m tests.kernels.environments --cases 20000 [--seed 1]
"""

import argparse
import random
import time
import warnings

import ml_dtypes
import numpy as np
import torch

import fpna.torch
import kernels.scatter
import kernels.sums  # noqa: F401
from kernels import contract, exact, sparse, vectors, wires
from kernels.inference.lower import plan
from kernels.inference.static import Static
from kernels.registry import variants
from tests import floating
from tests.kernels.inference_cases import mlp

TYPES = {"float64": np.float64, "float32": np.float32, "float16": np.float16, "bfloat16": ml_dtypes.bfloat16}
LENGTHS = (0, 1, 2, 3, 5, 64, 100, 1000, 5000)
LONG = 70000  # elements that threads share


def numbers(draw, dtype, *shape):
    """Of a kind that an environment decides: subnormal, tied, cancelling, too large for the type, of all sizes."""
    rng = np.random.default_rng(draw.getrandbits(64))
    info = ml_dtypes.finfo(dtype)
    low, high = np.log2(float(info.smallest_subnormal)), np.log2(float(info.max))
    x = rng.standard_normal(shape)
    match draw.randrange(7):
        case 0:
            x = rng.integers(-9, 10, shape) * float(info.smallest_subnormal)
        case 1:
            x = x * 2.0 ** rng.uniform(low, low + 40, shape)
        case 2:
            x = x * 2.0 ** rng.uniform(low, high - 4, shape)
        case 3:
            x = np.where(rng.random(shape) < 0.5, 1.0, rng.choice((-1.0, 1.0), shape) * 2.0 ** (low / 2))
        case 4:
            x = rng.choice((-1.0, 1.0), shape) * float(info.max)
        case 5:
            x = rng.integers(-100, 101, shape) * (1 + float(info.eps) / 2 * rng.integers(0, 3, shape))
    if draw.random() < 0.15 and x.size:
        x.reshape(-1)[rng.integers(0, x.size, 2)] = draw.choice((np.inf, -np.inf, np.nan))
    with np.errstate(all="ignore"):
        return x.astype(dtype)


def _variant(draw, *operations):
    """(a variant that promises something and runs here, whose threads are ours, and a number of threads)."""
    some = [
        v for operation in operations for v in variants(operation)
        if v.guarantee != "none" and v.backend in ("native", "numpy", "reference", "scipy") and not v.unavailable()
    ]  # fmt: skip
    chosen = draw.choice(some)
    return chosen, ({"threads": draw.choice((1, 2, 3))} if "threads" in chosen.parameters else {})


def a_sum(draw):
    name, dtype = draw.choice(list(TYPES.items()))
    of, options = _variant(draw, draw.choice(("sum", "dot", "norm")))
    n = (
        LONG
        if options and draw.random() < 0.1
        else draw.choice(LENGTHS[:7] if of.backend == "reference" else LENGTHS)
    )
    x, y = numbers(draw, dtype, n), numbers(draw, dtype, n)
    return f"{of.operation} {of.name} {of.backend} {name} {n}", lambda: of(
        x, *((y,) if of.operation == "dot" else ()), **options
    )


def a_scatter(draw):
    name, dtype = draw.choice(list(TYPES.items()))
    of, options = _variant(draw, "scatter_add")
    n, bins = draw.choice((0, 1, 10, 500)), draw.choice((1, 3, 200))
    shape = (n, draw.choice((1, 5))) if draw.random() < 0.5 else (n,)
    x = numbers(draw, dtype, *shape)
    index = np.random.default_rng(draw.getrandbits(64)).integers(0, bins, n)
    wide = np.float64 if dtype is np.float64 else np.float32
    begun = draw.random() < 0.5 and "start" in of.parameters
    options |= {"start": numbers(draw, wide, bins, *shape[1:])} if begun else {}
    return f"scatter_add {of.name} {of.backend} {name} {shape}", lambda: of(x, index, bins, **options)


def a_contraction(draw):
    dtype = draw.choice((np.float64, np.float32))
    threads = draw.choice((1, 2))
    match draw.randrange(4):
        case 0:
            m, k, n = (draw.choice((1, 2, 7, 40)) for _ in range(3))
            a, b = numbers(draw, dtype, m, k), numbers(draw, dtype, k, n)
            return f"matmul {m} {k} {n}", lambda: contract.matmul(a, b, threads=threads)
        case 1:
            x = numbers(draw, dtype, draw.choice((1, 3, 300)), draw.choice((1, 5)))
            return f"rowsum {x.shape}", lambda: contract.rowsum(x, 0, threads=threads)
        case 2:
            x, w = numbers(draw, dtype, 1, 2, 6, 6), numbers(draw, dtype, 2, 2, 3, 3)
            return "conv", lambda: contract.conv(x, w, padding=1, threads=threads)
        case _:
            q, k, v = (numbers(draw, dtype, 1, 1, 4, 3) for _ in range(3))
            return "attention", lambda: contract.attention(q, k, v, threads=threads)


def a_product(draw):
    dtype = draw.choice((np.float64, np.float32))
    rng = np.random.default_rng(draw.getrandbits(64))
    m, columns = draw.choice((1, 7, 300)), draw.choice((1, 9))
    indptr = np.concatenate([[0], np.cumsum(rng.integers(0, 6, m))]).astype(np.int64)
    nnz = int(indptr[-1])
    matrix = sparse.Csr(
        indptr, rng.integers(0, columns, nnz).astype(np.int32), numbers(draw, dtype, nnz), columns
    )
    of, options = _variant(draw, "spmv")
    product, x, y = of(matrix, **options), numbers(draw, dtype, columns), np.zeros(m, dtype)

    def multiply():
        product(x, y)
        return y.copy()

    return f"spmv {of.name} {of.backend}", multiply


def an_update(draw):
    dtype, n = draw.choice((np.float64, np.float32)), draw.choice((1, 9, 700, LONG))
    x, y = numbers(draw, dtype, n), numbers(draw, dtype, n)
    scale, starts, sums = draw.uniform(-2, 2), np.array([0, n // 2, n]), np.zeros((2, 1))
    z = np.zeros(n, dtype)
    planned = vectors.backend("native").fuse(
        {"x": x, "y": y, "z": z}, "z = x + a*y", "z.z", starts, draw.choice((1, 2))
    )

    def update():
        planned(sums, a=scale)
        return [z.copy(), sums.copy()]

    return f"update {n}", update


def a_message(draw):
    text = draw.choice(("float16", "bfloat16", "e4m3", "e5m2", "fp8", "int8", "int16", "table:n=4", "sign",
                        "fp8:scale=tensor", "int8:scale=match", "sign:scale=match"))  # fmt: skip
    x = numbers(draw, np.float32, draw.choice((1, 7, 600)))
    x = np.nan_to_num(x) if text != "float16" else x
    of, cells = wires.codec(text), wires.cells_of(len(x))
    return f"wire {text}", lambda: of.over(x, cells)


def words(draw):
    dtype = draw.choice((np.float64, np.float32, np.float16))
    x, y, rows = numbers(draw, dtype, 20), numbers(draw, dtype, 20), numbers(draw, np.float32, 20, 2)

    def added():
        sums = exact.zeros(2)
        exact.add(sums[0], x)
        exact.add_products(sums[1], x, y)
        held = exact.Limbs.of(exact.range_of(rows, len(rows)))
        limbs = held.rounded(held.added(rows, np.arange(len(rows)) % 3, 3))
        return [exact.round(sums), exact.round(sums, np.empty(2, np.float32)), limbs]

    return "words", added


def an_operator(draw):
    dtype = draw.choice((torch.float64, torch.float32, torch.float16, torch.bfloat16))
    order, kind = draw.choice(("sorted", "exact")), draw.randrange(10)
    name = {torch.float64: np.float64}.get(dtype, np.float32)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        rows, table, grad = (
            torch.from_numpy(numbers(draw, name, *shape)).to(dtype) for shape in ((30, 2), (5, 2), (5, 2))
        )
    index = torch.randint(0, 5, (30,), generator=torch.Generator().manual_seed(draw.getrandbits(32)))
    alpha, taken = draw.choice((1, 1, -0.3)), torch.zeros(30, 2, dtype=dtype) + grad[index]

    def operate():
        a, b = table.clone().requires_grad_(), rows.clone().requires_grad_()
        if kind == 0:
            fpna.torch.index_add(a, 0, index, b, alpha=alpha, order=order).backward(grad)
        elif kind == 1:
            fpna.torch.scatter_add(a, 0, index[:, None].expand(30, 2), b, order=order).backward(grad)
        elif kind == 2:
            fpna.torch.embedding(index, a, order=order).backward(taken)
        elif kind == 3:
            fpna.torch.sum(b, 0, order=order).backward(grad[0])
        elif kind == 4:
            fpna.torch.mean(b, 0, order=order).backward(grad[0])
        elif kind == 5:
            fpna.torch.amax(b, 0, order=order).backward(grad[0])
        elif kind == 6:
            fpna.torch.cumsum(b, 0, order=order).backward(taken)
        else:
            mode = ("sum", "mean", "max")[kind - 7]
            fpna.torch.embedding_bag(index, a, index[:1] * 0, mode=mode, order=order).backward(grad[:1])
        return [g.detach().view(torch.uint8).numpy().copy() for g in (a.grad, b.grad) if g is not None]

    return f"operator {kind} {dtype} {order}", operate


_networks: list = []


def a_network(draw):
    if not _networks:
        _networks.append(Static(plan(mlp((784, 20, 10))), threads=2))
    x = numbers(draw, np.float32, draw.choice((1, 3)), 28, 28)
    return "network", lambda: np.asarray(_networks[0](x))


CARRIERS = (
    a_sum,
    a_sum,
    a_sum,
    a_scatter,
    a_contraction,
    a_product,
    an_update,
    a_message,
    words,
    an_operator,
    a_network,
)
# Traps that Python itself bears, and torch outside our operators: int("4") of Python raises INEXACT.
BORNE = {an_operator: floating.LOUD}


def bits(result) -> bytes:
    """The bits of all arrays of a result."""
    if isinstance(result, list | tuple):
        return b"|".join(map(bits, result))
    return np.ascontiguousarray(result).tobytes()


def tried(seed):
    """What is wrong in the case of that seed."""
    draw = random.Random(seed)
    make = draw.choice(CARRIERS)
    what, call = make(draw)
    with np.errstate(all="ignore"), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        expected = bits(call())
        environment = floating.drawn(draw, BORNE.get(make, floating.LOUD | floating.UNDERFLOW))
        with environment.chosen() as left:
            result = call()
    found = [] if bits(result) == expected else ["other bits"]
    return [
        f"seed {seed}, {what}, {environment}: {trouble}"
        for trouble in found + floating.troubles(environment, left, floating.INEXACT)
    ]


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--cases", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=0, help="of the first case; the others follow")
    options = parser.parse_args()
    begin, failed = time.monotonic(), 0
    for seed in range(options.seed, options.seed + options.cases):
        for trouble in tried(seed):
            failed += 1
            print(trouble, flush=True)
    print(f"{options.cases} cases, {failed} failures, {time.monotonic() - begin:.0f} s")
    return int(failed > 0)


if __name__ == "__main__":
    raise SystemExit(main())
