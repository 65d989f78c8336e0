"""Vectors and programs for the tests of fused vector updates."""

import numpy as np

CG = "p = u + beta*p; s = w + beta*s; x = x + alpha*p; r = r - alpha*s"
CG_DOTS = "r.u w.u r.r"
NAMES = "puswxr"
GHOSTS = 5  # elements beyond the last block


def vectors(n, dtype=np.float64, names=NAMES, seed=0):
    """Named vectors of numbers whose sizes differ widely, with ghosts."""
    rng = np.random.default_rng((seed, n))
    sizes = np.exp2(rng.integers(-20, 20, (len(names), n + GHOSTS)))
    values = rng.standard_normal(sizes.shape) * sizes
    return dict(zip(names, values.astype(dtype), strict=True))


def starts(n):
    """Blocks of uneven sizes, some empty."""
    return np.array([0, 0, n // 7, n // 3, n // 3, n], np.int64)


def same_bits(a, b):
    """Whether two arrays are the same bits; the sign and payload of a NaN are the processor's choice."""
    if a.dtype != b.dtype or a.shape != b.shape:
        return False
    a, b = (np.where(np.isnan(x), np.array(np.nan, x.dtype), x) for x in (a, b))
    return a.tobytes() == b.tobytes()


def outcome(module, given, steps, dots="", blocks=None, threads=1, **scalars):
    """What steps and dots leave: every vector and the partial sums, as arrays of the host; `given` is not touched."""
    held = {name: module.xp.asarray(array.copy()) for name, array in given.items()}
    planned = module.fuse(held, steps, dots, blocks, threads)
    partials = module.xp.asarray(np.full(planned.shape, -1.0))
    planned(partials, **scalars)
    back = [array if isinstance(array, np.ndarray) else array.get() for array in (*held.values(), partials)]
    return dict(zip([*held, "partials"], back, strict=True))


def same(a, b):
    """Whether two outcomes have the same bits."""
    return a.keys() == b.keys() and all(same_bits(a[name], b[name]) for name in a)
