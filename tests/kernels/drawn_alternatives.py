"""Operators of `fpna.torch` with drawn arguments beside torch's own: both refuse, or shape, type and value agree.

    .venv/bin/python -m tests.kernels.drawn_alternatives --cases 20000 [--seed 1]

Where torch says that an index is out of range ours do, too, and beside it where nothing is added, and torch does not
look; where it raises another error, ours raise TypeError, ValueError or IndexError. Values, and gradients of
the first argument, lie within the error bound of sums in either order.
"""

import argparse
import random
import sys
import warnings
from collections import Counter

import torch

import fpna.torch as ours

TYPES = (torch.float32, torch.float32, torch.float64, torch.float16, torch.bfloat16)
REFUSED = (IndexError, TypeError, ValueError, RuntimeError, AssertionError)
ORDERS = ("exact", "sorted", "atomic")


def shape(draw, most=3):
    return tuple(draw.choice((0, 1, 2, 3, 5)) for _ in range(draw.randint(0, most)))


def tensor(draw, given, dtype):
    # Multiples of 1/8 with few digits: their sums are exact in float32.
    return (torch.randint(-16, 16, given, generator=draw.generator) / 8).to(dtype)


def integers(draw, given, bins, wraps=False):
    low = -bins - 1 if wraps and draw.random() < 0.3 else 0
    high = bins + (draw.random() < 0.1)
    kind = draw.choice((torch.int64, torch.int64, torch.int32))
    return torch.randint(low, max(high, low + 1), given, generator=draw.generator).to(kind)


def dim_of(draw, x):
    most = max(x.ndim, 1)
    return draw.choice(
        (draw.randrange(most), draw.randrange(-most, most), draw.randrange(-most - 1, most + 1))
    )


def index_add(draw, x, order):
    dim = dim_of(draw, x)
    n = draw.choice((0, 1, 4))
    bins = x.shape[dim] if x.ndim and -x.ndim <= dim < x.ndim else 1
    source = list(x.shape)
    if source and -x.ndim <= dim < x.ndim:
        source[dim] = n
    if draw.random() < 0.05:
        source = [*source, 2]
    y, index, alpha = tensor(draw, source, x.dtype), integers(draw, (n,), bins), draw.choice((1, 1, 2, -0.5))
    return (lambda: ours.index_add(x, dim, index, y, alpha=alpha, order=order)), (
        lambda: torch.index_add(x, dim, index, y, alpha=alpha)
    )


def index_select(draw, x, order):
    dim = dim_of(draw, x)
    bins = x.shape[dim] if x.ndim and -x.ndim <= dim < x.ndim else 1
    index = integers(draw, (draw.choice((0, 1, 4)),), bins)
    return (lambda: ours.index_select(x, dim, index, order=order)), (
        lambda: torch.index_select(x, dim, index)
    )


def _elementwise(draw, x):
    dim = dim_of(draw, x)
    inside = x.ndim and -x.ndim <= dim < x.ndim
    wanted = [draw.randint(0, n) if draw.random() < 0.3 else n for n in x.shape]
    if inside:
        wanted[dim] = draw.choice((0, 1, 4))
    return dim, integers(draw, tuple(wanted), x.shape[dim] if inside else 1).to(torch.int64)


def scatter_add(draw, x, order):
    dim, index = _elementwise(draw, x)
    y = tensor(draw, tuple(n + draw.choice((0, 0, 1)) for n in index.shape), x.dtype)
    return (lambda: ours.scatter_add(x, dim, index, y, order=order)), (
        lambda: torch.scatter_add(x, dim, index, y)
    )


def gather(draw, x, order):
    dim, index = _elementwise(draw, x)
    return (lambda: ours.gather(x, dim, index, order=order)), (lambda: torch.gather(x, dim, index))


def embedding(draw, x, order):
    bins = x.shape[0] if x.ndim else 1
    index, padding = (
        integers(draw, shape(draw, 2), bins),
        draw.choice((None, None, 0, -1, bins - 1, bins, -bins - 1)),
    )
    return (lambda: ours.embedding(index, x, padding_idx=padding, order=order)), (
        lambda: torch.nn.functional.embedding(index, x, padding_idx=padding)
    )


def index_put(draw, x, order):
    indices, common = [], shape(draw, 2)
    x = x if x.ndim else x.reshape(1)
    for n in x.shape[: draw.randint(1, x.ndim)]:
        given = common if draw.random() < 0.8 else (1,) * len(common)
        indices.append(integers(draw, given, n, wraps=True).to(torch.int64))
    if indices and draw.random() < 0.15:  # a mask, of which sometimes nothing is true
        mask = torch.rand(x.shape, generator=draw.generator) < draw.choice((0, 0.5))
        indices = list(mask.nonzero(as_tuple=True))
    try:
        like = x[tuple(indices)].shape if indices else ()
    except (IndexError, RuntimeError):
        like = common
    y = tensor(draw, draw.choice((like, like, ())), x.dtype)
    return (lambda: ours.index_put(x, indices, y, order=order)), (
        lambda: torch.index_put(x, indices, y, accumulate=True)
    )


def total(draw, x, order):
    keep = draw.random() < 0.3
    dim = draw.choice(
        (None, (), dim_of(draw, x), tuple({dim_of(draw, x) for _ in range(draw.randint(1, 3))}))
    )
    return (lambda: ours.sum(x, dim, keep, order=order)), (lambda: torch.sum(x, dim, keep))


OPERATORS = {
    "index_add": index_add, "index_select": index_select, "scatter_add": scatter_add, "gather": gather,
    "embedding": embedding, "index_put": index_put, "sum": total,
}  # fmt: skip


def outcome(function, x):
    """(value, gradient) or the error."""
    x.grad = None
    try:
        value = function()
        if value.requires_grad:
            value.sum().backward()
    except REFUSED as error:
        return error
    return value.detach(), x.grad


def different(mine, theirs, x):
    """What is wrong; "" where nothing is."""
    if isinstance(theirs, Exception):
        if not isinstance(mine, Exception):
            return f"torch refuses: {type(theirs).__name__}: {theirs}"
        if isinstance(theirs, IndexError) and "out of range" in str(theirs) and type(mine) is not IndexError:
            return f"{type(mine).__name__}, not IndexError: {mine} | {theirs}"
        return (
            "" if isinstance(mine, (IndexError, TypeError, ValueError)) else f"{type(mine).__name__}: {mine}"
        )
    if isinstance(mine, Exception):
        nothing = not x.numel() or torch.equal(theirs[0], x)  # was added
        return "" if nothing and type(mine) is IndexError else f"refused: {type(mine).__name__}: {mine}"
    for what, a, b in (("value", mine[0], theirs[0]), ("gradient", mine[1], theirs[1])):
        if (a is None) != (b is None):
            return f"{what} of one alone"
        if a is None:
            continue
        if a.shape != b.shape or a.dtype != b.dtype:
            return f"{what}: {a.dtype} {tuple(a.shape)}, not {b.dtype} {tuple(b.shape)}"
        # At most some 30 terms below 4: torch adds narrow types term by term, ours in float32.
        bound = 64 * torch.finfo(a.dtype).eps * 4
        if a.numel() and not (a.double() - b.double()).abs().max() <= bound:
            return f"{what}: {(a.double() - b.double()).abs().max()} apart"
    return ""


def case(seed, number):
    draw = random.Random(f"{seed} {number}")
    draw.generator = torch.Generator().manual_seed(draw.randrange(2**40))
    name = draw.choice(list(OPERATORS))
    most = 2 if name == "embedding" and draw.random() < 0.9 else 3
    given = shape(draw, most)
    if name == "embedding" and draw.random() < 0.9:
        given = tuple(draw.choice((0, 1, 2, 5)) for _ in range(2))
    x = tensor(draw, given, draw.choice(TYPES)).requires_grad_(draw.random() < 0.7)
    mine, theirs = OPERATORS[name](draw, x, draw.choice(ORDERS))
    found = different(outcome(mine, x), outcome(theirs, x), x.detach())
    return name, f"{name} of {x.dtype} {tuple(x.shape)}: {found}" if found else ""


def main(argv=None):
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--cases", type=int, default=20_000)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args(argv)
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    counted, failed = Counter(), Counter()
    for number in range(options.cases):
        name, found = case(options.seed, number)
        counted[name] += 1
        if found:
            failed[name] += 1
            if failed[name] <= 6:
                print(f"case {number}: {found}")
    print(dict(counted), "failed:", dict(failed))
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
