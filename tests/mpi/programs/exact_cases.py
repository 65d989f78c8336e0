"""Sums under guarantee `layout` beside rational arithmetic, drawn: types, lengths, numbers of every kind, and carriers.

Run by tests/mpi/test_exact_cases_mpi.py; by hand for as long as wanted:

    PYTHONPATH=. mpirun -n 3 python tests/mpi/programs/exact_cases.py --cases 1000 --seed 7

One case is one sum, of which up to 200 elements are checked against rational arithmetic and all others against the
superaccumulator, bit for bit. Then all elements but one are drawn anew: the bits of that one must stay.
"""

import argparse
import faulthandler
import json
import sys
import traceback
import warnings

import ml_dtypes
import numpy as np
from mpi4py import MPI

import fpna
from kernels.allreduce import plan
from kernels.allreduce.execution.order_free import RECORD_BYTES
from kernels.allreduce.schedule import evenly
from miniapps.runner.policy import resolve
from tests.order_free import defined
from tests.rational import rational_sum

COMM = MPI.COMM_WORLD
RANK, SIZE = COMM.rank, COMM.size
TYPES = [np.dtype(t) for t in ("float64", "float32", "float16", ml_dtypes.bfloat16)]
CHECKED = 200  # elements
WORKING = resolve("layout", None, None)
WRAPPED = {}  # by guarantee


def lengths(dtype, rng):
    """Short ones, and those at which another way is taken."""
    edge = RECORD_BYTES // (dtype.itemsize * SIZE)
    return int(
        rng.choice([0, 1, 2, 15, 16, 17, 63, 64, 65, 100, 1000, max(edge - 1, 1), edge, edge + 1, 2 * edge])
        if rng.random() < 0.7
        else rng.integers(1, 3000)
    )


def wide(k, n, dtype, rng):
    decades = {"float64": 300, "float16": 4}.get(dtype.name, 36)
    decades = int(rng.integers(0, decades))
    return rng.standard_normal((k, n)) * 10.0 ** rng.integers(-decades, decades + 1, (k, n))


def any_bits(k, n, dtype, rng):
    """All patterns of bits: subnormal and huge numbers, infinities and NaN."""
    unsigned = f"u{dtype.itemsize}"
    bits = rng.integers(0, np.iinfo(unsigned).max, (k, n), dtype=unsigned, endpoint=True)
    return bits.view(dtype)


def finite_bits(k, n, dtype, rng):
    x = any_bits(k, n, dtype, rng)
    return np.where(np.isfinite(x.astype(np.float64)), x, dtype.type(1))


def subnormal(k, n, dtype, rng):
    least = float(ml_dtypes.finfo(dtype).smallest_subnormal)
    return rng.integers(-9, 10, (k, n)) * least


def cancelling(k, n, dtype, rng):
    """All but a little is gone in the end."""
    x = wide(k, n, dtype, rng)
    half = k // 2
    x[half : 2 * half] = -x[:half]
    return x[rng.permutation(k)]


def alternating(k, n, dtype, rng):
    x = np.abs(wide(k, n, dtype, rng))
    x[1::2] *= -1
    return x


def one_large(k, n, dtype, rng):
    """One contribution is far above all others, as one rank's may be."""
    x = rng.standard_normal((k, n))
    if k:
        x[rng.integers(k)] *= float(ml_dtypes.finfo(dtype).max) ** rng.random()
    return x


def near_overflow(k, n, dtype, rng):
    """Sums that overflow on the way, and are finite or infinite at the end."""
    x = rng.choice([-1, 1], (k, n)) * float(ml_dtypes.finfo(dtype).max)
    return x * rng.choice([1, 0.5, 2.0**-5], (k, n))


def ties(k, n, dtype, rng):
    """A number, half a unit of its last place, and next to nothing."""
    x = np.zeros((k, n))
    eps = float(ml_dtypes.finfo(dtype).eps)
    for row, value in enumerate((1 + eps * rng.integers(0, 4, n), np.full(n, eps / 2))):
        if row < k:
            x[row] = value
    least = float(ml_dtypes.finfo(dtype).smallest_subnormal)
    for row in range(2, k):
        x[row] = rng.choice([0, least, -least, eps * eps], n)
    return x[rng.permutation(k)]


def special(k, n, dtype, rng):
    x = rng.standard_normal((k, n))
    if x.size:
        for _ in range(rng.integers(1, 5)):
            x[rng.integers(k), rng.integers(n)] = rng.choice([np.inf, -np.inf, np.nan, -0.0])
    return x


def zeros(k, n, dtype, rng):
    return rng.choice([0.0, -0.0], (k, n))


KINDS = (
    wide,
    any_bits,
    finite_bits,
    subnormal,
    cancelling,
    alternating,
    one_large,
    near_overflow,
    ties,
    special,
    zeros,
)


def drawn(kind, k, n, dtype, rng):
    with np.errstate(all="ignore"):
        return np.ascontiguousarray(kind(k, n, dtype, rng).astype(dtype))


# Carriers: the total of `blocks` (k, n), of which this rank has `own`; (first element, elements) of what it gets.


def planned(ordering="direct", wire="as is"):
    def carry(blocks, own, rng):
        n, dtype = blocks.shape[1], blocks.dtype
        x = blocks[own]
        axes = {"accumulation": "exact", "wire": wire}
        if wire != "as is":
            axes["nodes"] = [rank // 2 for rank in range(SIZE)]
        with plan(COMM, ordering, (n,), dtype, blocks=own, **axes) as reducer:
            how = rng.integers(5)
            if how == 0:
                total = reducer(x)
            elif how == 1:
                total = reducer(x, np.empty(n, dtype))
            elif how == 2 and min(map(len, COMM.allgather(list(own)))):
                total = reducer(x, x[-1])
            elif how == 3:
                reducer.start(x)
                reducer.progress()
                total = reducer.finish()
            else:
                for block in reversed(own):
                    reducer.add(block, blocks[block])
                total = reducer.finish()
            return 0, total.copy()

    return carry


def reduced(blocks, own, rng):
    root, ordering = int(rng.integers(SIZE)), str(rng.choice(["direct", "binomial", "ring"]))
    axes = {"accumulation": "exact", "collective": "reduce", "root": root}
    with plan(COMM, ordering, blocks.shape[1:], blocks.dtype, **axes) as reducer:
        total = reducer(blocks[own])
        return 0, np.empty(0, blocks.dtype) if total is None else total.copy()


def scattered(blocks, own, rng):
    n, ordering = blocks.shape[1], str(rng.choice(["direct", "ring", "recursive-doubling"]))
    bounds = [0, *np.sort(rng.integers(0, n + 1, SIZE - 1)).tolist(), n]
    axes = {"accumulation": "exact", "collective": "reduce-scatter", "bounds": bounds}
    with plan(COMM, ordering, (n,), blocks.dtype, **axes) as reducer:
        return bounds[RANK], reducer(blocks[own]).copy()


def wrapped(level):
    if level not in WRAPPED:
        WRAPPED[level] = fpna.wrap(COMM, level)
    return WRAPPED[level]


def by_wrap(blocks, own, rng):
    """Rows, of the calls of mpi4py."""
    comm, n = wrapped(str(rng.choice(["layout", "exact"]))), blocks.shape[1]
    out, how = np.empty(n, blocks.dtype), rng.integers(4)
    x = blocks[own]
    if how == 0:
        comm.Allreduce(x, out, axis=0)
        return 0, out
    if how == 1:
        comm.Iallreduce(x, out, axis=0).Wait()
        return 0, out
    if how == 2:
        root = int(rng.integers(SIZE))
        comm.Reduce(x, out if root == RANK else None, root=root, axis=0)
        return 0, out if root == RANK else out[:0]
    counts = [b - a for a, b in (evenly(n, SIZE, rank) for rank in range(SIZE))]
    first, stop = evenly(n, SIZE, RANK)
    comm.Reduce_scatter(x, out[: stop - first], counts, axis=0)
    return first, out[: stop - first]


def by_parts(blocks, own, rng):
    """Complex numbers: the blocks are the real parts, and from the last element on the imaginary ones."""
    dtype = {"float64": np.complex128, "float32": np.complex64}.get(blocks.dtype.name)
    if dtype is None:
        return by_wrap(blocks, own, rng)
    x = np.empty((len(own), blocks.shape[1]), dtype)
    x.real, x.imag = blocks[own], blocks[own][:, ::-1]
    out = np.empty(blocks.shape[1], dtype)
    wrapped("layout").Allreduce(x, out, axis=0)
    imaginary = np.ascontiguousarray(out.imag[::-1])
    real = np.ascontiguousarray(out.real)
    same = real.tobytes() == imaginary.tobytes()
    return 0, real if same else np.full_like(real, 7)


CARRIERS = {
    "direct": planned(), "ring": planned("ring"), "recursive-doubling": planned("recursive-doubling"),
    "two-level packed": planned("two-level", "packed"), "block-tree": planned("block-tree"),
    "double-tree": planned("double-tree"), "rabenseifner": planned("rabenseifner"), "reduce": reduced,
    "reduce-scatter": scattered, "wrap": by_wrap, "complex": by_parts,
}  # fmt: skip


def case(seed):
    """What is wrong with one case, on this rank; "" where nothing is."""
    rng = np.random.default_rng(seed)  # the same on all ranks
    dtype = TYPES[rng.integers(len(TYPES))]
    kind, carrier = KINDS[rng.integers(len(KINDS))], str(rng.choice(list(CARRIERS)))
    one_each = rng.random() < 0.4
    k = SIZE if one_each else int(rng.integers(0, 3 * SIZE + 1))
    if carrier == "block-tree":  # which needs one block
        k = max(k, 1)
    n = lengths(dtype, rng)
    owner = rng.permutation(SIZE) if one_each else rng.integers(0, SIZE, k)
    own = np.flatnonzero(owner == RANK).tolist()
    blocks = drawn(kind, k, n, dtype, rng)
    kept = int(rng.integers(n)) if n else 0
    other = drawn(KINDS[rng.integers(len(KINDS))], k, n, dtype, rng)
    if carrier == "complex" and n:
        kept = n // 2 if n % 2 else kept
    other[:, kept : kept + 1] = blocks[:, kept : kept + 1]
    said = f"seed {seed}: {carrier}, {kind.__name__}, {dtype}, {k} blocks of {n} elements, owners {owner.tolist()}"
    carry = CARRIERS[carrier]
    how = int(rng.integers(2**32))
    before = blocks.tobytes()
    first, total = carry(blocks, own, np.random.default_rng(how))
    changed = blocks.tobytes() != before
    _, again = carry(other, own, np.random.default_rng(how))
    expected = defined(blocks[:, first : first + len(total)])
    if total.tobytes() != expected.tobytes():
        place = next(
            i for i in range(len(total)) if total[i : i + 1].tobytes() != expected[i : i + 1].tobytes()
        )
        return f"{said}: element {first + place} is {total[place]}, not {expected[place]}"
    places = range(len(total)) if len(total) <= CHECKED else rng.choice(len(total), CHECKED, replace=False)
    for place in places:
        if total[place : place + 1].tobytes() != rational_sum(blocks[:, first + place]).tobytes():
            return f"{said}: element {first + place} is {total[place]}, not the rational sum rounded once"
    inside = kept - first
    if (
        0 <= inside < len(total)
        and again[inside : inside + 1].tobytes() != total[inside : inside + 1].tobytes()
    ):
        return f"{said}: element {kept} depends on others"
    return f"{said}: contributions were changed" if changed else ""


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--cases", type=int, default=60)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--limit", type=float, help="seconds, after which it is shown where ranks hang")
    asked = parser.parse_args()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        draw(asked)


def draw(asked):
    if asked.limit:
        faulthandler.dump_traceback_later(asked.limit, exit=True)
    failures = []
    for number in range(asked.cases):
        told = COMM.gather(case([asked.seed, number]), 0)
        failures += [one for one in told or [] if one]
    if RANK == 0:
        print(json.dumps({"cases": asked.cases, "failures": failures}), flush=True)


if __name__ == "__main__":
    try:
        main()
    except BaseException:
        traceback.print_exc()
        sys.stderr.flush()
        COMM.Abort(1)
