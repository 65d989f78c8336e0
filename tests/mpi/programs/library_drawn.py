"""Drawn calls of the library for C (kernels/library), beside kernels.sums, kernels.scatter and fpna.wrap, bit by bit.

Run by tests/mpi/test_library_mpi.py; by hand for as long as wanted:

    PYTHONPATH=. mpirun -n 3 python tests/mpi/programs/library_drawn.py LIBFPNA.SO --cases 10000 --seed 7

A case is a call with drawn arguments: its type, guarantee, fields, strides of both signs, masks, weights, threads and
numbers; every rank may have none. Under `layout` and `exact` elements are dealt to ranks one by one, in a drawn order.
What a stride steps over, and what a mask leaves out, may be NaN. Every rank draws the numbers of all, makes its part of
the call, and computes the expected bits of its share of the cases.
"""

import argparse
import ctypes
import json
import random
import sys
import time
from itertools import pairwise
from types import SimpleNamespace

import numpy as np
from library_interface import (
    EXACT,
    HANDLE,
    IN_PLACE,
    LAYOUT,
    LETTERS,
    LIBRARY,
    RANK,
    RUN,
    SIZE,
    Report,
    bits,
    call,
    pointer,
    sentence,
)  # fmt: skip
from sections import COMM, MPI

import fpna
from kernels import registry, scatter, sums  # noqa: F401  (registers the variants)
from kernels.sums.norm import norm_by

BLOCK, BATCH = 4096, 100
NAMES = {RUN: "block-tree", LAYOUT: "binned", EXACT: "exact"}
VARIANTS = {
    (operation, guarantee): registry.get(operation, name, "native")
    for operation in ("sum", "dot", "norm")
    for guarantee, name in NAMES.items()
}
SCATTERED = registry.get("scatter_add", "exact", "native")
KINDS = ("plain", "wide", "subnormal", "near overflow", "special", "zeros", "ties", "cancelling", "any bits")
SHORT = (0, 1, 2, 3, 17, 63, 64, 65, 255, 256, 257, 700)
LONG = (2000, 4095, 4096, 4097, 9001, 20000, 40000)  # the longest for several threads


def drawn_numbers(rng, kind, shape, dtype):
    """Numbers of a kind; of a complex type from as many parts."""
    real = np.empty(0, dtype).real.dtype
    limit = np.finfo(real)
    decades = 250 if real == np.float64 else 25
    x = rng.standard_normal(shape)
    if kind == "wide":
        x = x * 10.0 ** rng.integers(-decades, decades, shape)
    elif kind == "subnormal":
        x = rng.integers(-9, 10, shape) * float(limit.smallest_subnormal)
    elif kind == "near overflow":
        x = rng.choice([-1, 1, 0.5], shape) * float(limit.max)
    elif kind == "special":
        chance = max(2e-3, 0.5 / max(np.prod(shape), 1))
        x = np.where(rng.random(shape) < chance, rng.choice([np.inf, -np.inf, np.nan], shape), x)
    elif kind == "zeros":
        x = rng.choice([0.0, -0.0], shape)
    elif kind == "ties":  # sums half way between two numbers, and beside that
        half = 2.0 ** -(limit.nmant + 1)
        x = rng.choice([1, 1 + 2 * half, half, -half, half * half / 16, -half * half / 16, 0.0], shape)
    elif kind == "cancelling":
        x = np.round(x, 1) * 2.0 ** rng.integers(0, 3 * decades, shape)
        flat = x.reshape(-1)
        flat[: len(flat) // 2] = -flat[len(flat) - len(flat) // 2 :]
    elif kind == "any bits":
        whole = f"u{real.itemsize}"
        return rng.integers(0, np.iinfo(whole).max, shape, whole, endpoint=True).view(dtype)
    with np.errstate(all="ignore"):
        return x.astype(real).view(dtype)


def tree(values):
    """The sum of numbers by a balanced tree: neighbours first."""
    values = list(values)
    while len(values) > 1:
        values = [a + b for a, b in zip(values[::2], values[1::2], strict=False)] + values[len(values) & ~1 :]
    return values[0]


def total_of(guarantee, pairs, cuts):
    """The sum of x, or of products x y, of all ranks by kernels.sums. `pairs`: (x, y or None), several for a sum of
    several parts, such as the real part of a product of complex numbers. `cuts`: where the elements of ranks begin."""
    operation = "sum" if pairs[0][1] is None else "dot"
    variant = VARIANTS[operation, guarantee]
    pairs = [tuple(np.ascontiguousarray(v) for v in pair if v is not None) for pair in pairs]
    if guarantee == RUN:
        return tree(of_a_rank(variant, pairs, *ends) for ends in pairwise(cuts))
    return variant(*(np.concatenate(column) for column in zip(*pairs, strict=True)))


def of_a_rank(variant, pairs, begin, end):
    step = BLOCK if len(pairs) > 1 else max(end - begin, 1)
    blocks = [
        sum_of_parts(variant(*(v[from_ : min(from_ + step, end)] for v in pair)) for pair in pairs)
        for from_ in range(begin, max(end, begin + 1), step)
    ]
    return tree(blocks)


def sum_of_parts(values):
    first, *others = values
    for value in others:
        first = first + value
    return first


def expected_field(of, guarantee, x, y, weights, mask, cuts):
    """The total of one field by kernels.sums, of the elements of all ranks."""
    real = x.real.dtype

    def masked(v):
        return v if mask is None else np.where(mask != 0, v, real.type(0))

    parts = [x.real, x.imag] if np.iscomplexobj(x) else [x]
    if of == "sum":
        factors = None if weights is None else masked(weights)
        values = [total_of(guarantee, [(masked(p), factors)], cuts) for p in parts]
    elif of == "dot":
        parts = [masked(p if weights is None else p * weights) for p in parts]
        if not np.iscomplexobj(x):
            values = [total_of(guarantee, [(parts[0], masked(y))], cuts)]
        else:
            a, b, c, d = *parts, masked(y.real), masked(y.imag)
            values = [
                total_of(guarantee, [(a, c), (b, d)], cuts),
                total_of(guarantee, [(a, d), (masked(-b), c)], cuts),
            ]
    else:

        def squares(v, _):
            return total_of(guarantee, [(part, part) for part in np.split(v, len(parts))], cuts)

        norm = norm_by(SimpleNamespace(function=squares, name="squares"))
        values = [norm(np.concatenate([masked(p) for p in parts]))]
    return np.array(values, real).view(real if of == "norm2" else x.dtype)


def stored(draw, values, junk):
    """(flat array, (stride, field stride, first element)) of values[element, field], in a drawn order with strides of
    both signs; `junk` between them."""
    n, fields = values.shape
    step = draw.choice([1, 1, 2, 3])
    by_element = draw.random() < 0.5
    stride, field_stride = (step * fields, 1) if by_element else (step, n * step)
    cells = np.full(max(n * fields * step, 1), junk, values.dtype)
    first = 0
    if draw.random() < 0.3:
        first, stride = first + max(n - 1, 0) * stride, -stride
    if draw.random() < 0.2:
        first, field_stride = first + (fields - 1) * field_stride, -field_stride
    cells[first + np.arange(n)[:, None] * stride + np.arange(fields)[None, :] * field_stride] = values
    return cells, (stride, field_stride, first)


def dealt(rng, n, guarantee):
    """(numbers of this rank's elements in their order, where ranks begin): of contiguous parts under `run`."""
    if guarantee == RUN:
        cuts = [0, *np.sort(rng.integers(0, n + 1, SIZE - 1)).tolist(), n]
        return np.arange(cuts[RANK], cuts[RANK + 1]), cuts
    order = rng.permutation(n)
    owners = rng.integers(0, SIZE, n) if rng.random() < 0.8 else np.full(n, rng.integers(0, SIZE))
    return order[owners[order] == RANK], [0, n]


def length_of(draw):
    return draw.choice(SHORT) if draw.random() < 0.8 else draw.choice(LONG)


def a_sum(draw, rng):
    """fpna_sum, fpna_dot and fpna_norm2."""
    of, guarantee = draw.choice(["sum", "sum", "dot", "norm2"]), draw.choice([RUN, LAYOUT, EXACT])
    dtype, kind = np.dtype(draw.choice([*LETTERS])), draw.choice(KINDS)
    fields, n = draw.choice([1, 1, 2, 5, 0]), length_of(draw)
    real = np.empty(0, dtype).real.dtype
    shape = n, max(fields, 1) * (dtype.itemsize // real.itemsize)
    x = drawn_numbers(rng, kind, shape, dtype)
    y = drawn_numbers(rng, draw.choice(["plain", kind]), shape, dtype)
    weights = drawn_numbers(rng, "plain", n, real) if draw.random() < 0.3 and of != "norm2" else None
    mask = None
    if draw.random() < 0.3:
        mask = (rng.integers(0, 3, n) * rng.integers(1, 128, n)).astype(np.uint8)
        x[mask == 0] = draw.choice([np.nan, np.inf, 1e30])
    own, cuts = dealt(rng, n, guarantee)
    junk = draw.choice([np.nan, 1e9])
    cells, layout = stored(draw, x[own], junk)
    others, of_y = stored(draw, y[own], junk)
    given = Report() if draw.random() < 0.1 else None
    options = {"threads": draw.choice([0, 1, 2, 4])}
    if given:
        options["report"] = ctypes.pointer(given)
    for name, values in (("weights", weights), ("mask", mask)):
        if values is not None:
            options[name] = np.ascontiguousarray(values[own])
    code, total = call(
        of, guarantee, cells, others, n=len(own), layout=layout, of_y=of_y, fields=fields, **options
    )

    def expected():
        totals = [expected_field(of, guarantee, x[:, f], y[:, f], weights, mask, cuts) for f in range(fields)]
        return np.concatenate(totals) if totals else total[:0]

    return (
        f"{of}, guarantee {guarantee}, {dtype}, {kind}, n {n}, {fields} fields, {layout}",
        code,
        total,
        expected,
    )


def by_cells(draw, rng):
    """fpna_scatter_add."""
    dtype, n, cells = draw.choice(["float32", "float64"]), length_of(draw), draw.choice([1, 2, 7, 39, 200])
    kind = draw.choice(KINDS)
    x, cell = drawn_numbers(rng, kind, n, dtype), rng.integers(0, cells, n)
    own, _ = dealt(rng, n, EXACT)
    total = np.full(cells, 7, dtype)
    code = getattr(LIBRARY, f"fpna_scatter_add_{LETTERS[dtype]}")(
        HANDLE(COMM.handle), ctypes.c_size_t(len(own)), pointer(np.ascontiguousarray(cell[own])),
        pointer(np.ascontiguousarray(x[own])), ctypes.c_size_t(cells), pointer(total), draw.choice([0, 1, 2]),
    )  # fmt: skip
    return f"scatter, {dtype}, {kind}, n {n}, {cells} cells", code, total, lambda: SCATTERED(x, cell, cells)


def a_place(draw, rng):
    """fpna_minloc and fpna_maxloc; the total is (value, number)."""
    dtype, n, kind = draw.choice(["float32", "float64"]), length_of(draw), draw.choice(KINDS)
    which, best = draw.choice([("min", np.nanmin), ("max", np.nanmax)])
    x = drawn_numbers(rng, kind, n, dtype)
    if draw.random() < 0.3:
        x = np.round(x)
    numbers = rng.permutation(3 * n + 1)[:n]
    own, _ = dealt(rng, n, EXACT)
    cells, (stride, _, first) = stored(draw, x[own][:, None], np.nan)
    value, number = np.zeros(1, dtype), np.zeros(1, np.int64)
    code = getattr(LIBRARY, f"fpna_{which}loc_{LETTERS[dtype]}")(
        HANDLE(COMM.handle), ctypes.c_size_t(len(own)), ctypes.c_void_p(cells.ctypes.data + first * cells.itemsize),
        ctypes.c_ssize_t(stride), pointer(np.ascontiguousarray(numbers[own])), pointer(value), pointer(number),
    )  # fmt: skip

    def expected():
        if n == 0:
            return np.array([np.nan, -1.0])
        wanted = np.isnan(x) if np.isnan(x).any() else x == best(x)
        at = np.flatnonzero(wanted)[np.argmin(numbers[wanted])]
        return np.array([float(x[at]), float(numbers[at])])

    found = np.array([float(value[0]), float(number[0])])
    return f"{which}loc, {dtype}, {kind}, n {n}, stride {stride}", code, found, expected


def accumulated(draw, rng):
    """Accumulators, filled in pieces, merged and sent: values and words."""
    dtype, n, kind = draw.choice(["float32", "float64"]), length_of(draw), draw.choice(KINDS)
    letter = LETTERS[dtype]
    x, a, b = (drawn_numbers(rng, kind_, n, dtype) for kind_ in (kind, kind, "plain"))
    own, _ = dealt(rng, n, EXACT)
    cells, (stride, _, first) = stored(draw, x[own][:, None], np.nan)
    size, step = ctypes.c_size_t, ctypes.c_ssize_t
    add, dot = (getattr(LIBRARY, f"fpna_acc_{name}_{letter}") for name in ("add", "dot"))

    def filled(own, parts, x, stride=1, first=0):
        """The accumulators of the numbers of this rank, in so many pieces."""
        left, right = (np.ascontiguousarray(v[own]) for v in (a, b))
        cuts = [len(own) * k // parts for k in range(parts + 1)]
        pieces = np.zeros((parts, 70), np.int64)
        for piece, (begin, end) in zip(pieces, pairwise(cuts), strict=True):
            start = ctypes.c_void_p(x.ctypes.data + (first + begin * stride) * x.itemsize)
            add(pointer(piece), size(end - begin), start, step(stride))
            dot(
                pointer(piece),
                size(end - begin),
                pointer(left[begin:]),
                step(1),
                pointer(right[begin:]),
                step(1),
            )
        return pieces

    pieces = filled(own, 3, cells, stride, first)
    once = filled(own, 1, np.ascontiguousarray(x[own]))[0]
    for piece in pieces[:0:-1]:
        LIBRARY.fpna_acc_merge(pointer(pieces[0]), pointer(piece))
    words = [pieces[0].tobytes() == once.tobytes()]
    code = LIBRARY.fpna_acc_allreduce(pointer(pieces[0]), size(1), HANDLE(COMM.handle))
    whole = filled(np.arange(n), 1, x)[0]
    words.append(pieces[0].tobytes() == whole.tobytes())
    value = getattr(LIBRARY, f"fpna_acc_value_{letter}")
    value.restype = ctypes.c_float if dtype == "float32" else ctypes.c_double
    ones = np.ones(n, dtype)

    def expected():
        return VARIANTS["dot", EXACT](np.concatenate([x, a]), np.concatenate([ones, b]))

    what = f"accumulator, {dtype}, {kind}, n {n}, equal words {words}"
    return what, code or -(not all(words)), np.array([value(pointer(pieces[0]))], dtype), expected


WRAPPED: dict = {}


def reduced(draw, rng):
    """fpna_allreduce and its kin, beside fpna.wrap."""
    guarantee, dtype = draw.choice([RUN, EXACT]), np.dtype(draw.choice([*LETTERS]))
    real = np.empty(0, dtype).real.dtype
    each = dtype.itemsize // real.itemsize
    way = draw.choice(
        ["allreduce", "reduce", "reduce_scatter", "reduce_scatter_block", "iallreduce", "persistent"]
    )
    kind = draw.choice(KINDS)
    counts = [draw.choice([0, 1, 5, 40, draw.choice([600, 3000])]) for _ in range(SIZE)]
    if way == "reduce_scatter_block":
        counts = counts[:1] * SIZE
    length, root, in_place = sum(counts), draw.randrange(SIZE), draw.random() < 0.4
    x = drawn_numbers(rng, kind, (SIZE, length * each), dtype)[RANK].copy()
    if not WRAPPED:
        WRAPPED[RUN] = fpna.wrap(COMM, guarantee="run", ordering="binomial")
        WRAPPED[EXACT] = fpna.wrap(COMM, guarantee="exact")
    wanted = np.empty(length * each, real)
    WRAPPED[guarantee].Allreduce(x.view(real), wanted, blocks=RANK)
    wanted = wanted.view(dtype)
    mpi = {"s": MPI.FLOAT, "d": MPI.DOUBLE, "c": MPI.C_FLOAT_COMPLEX, "z": MPI.C_DOUBLE_COMPLEX}
    tail = HANDLE(MPI._handleof(mpi[LETTERS[dtype.name]]))
    comm = HANDLE(COMM.handle)
    begin = sum(counts[:RANK])
    share = slice(begin, begin + counts[RANK])
    total = x.copy() if in_place else np.full(length, 7, dtype)
    given = IN_PLACE if in_place else pointer(x)
    if way == "reduce" and root != RANK:
        given = pointer(x)
    if way == "allreduce":
        code = LIBRARY.fpna_allreduce(guarantee, given, pointer(total), length, tail, comm)
    elif way == "reduce":
        code = LIBRARY.fpna_reduce(guarantee, given, pointer(total), length, tail, root, comm)
        total = total if root == RANK else wanted
    elif way.startswith("reduce_scatter"):
        block = way == "reduce_scatter_block"
        count = counts[0] if block else (ctypes.c_int * SIZE)(*counts)
        code = getattr(LIBRARY, f"fpna_{way}")(guarantee, given, pointer(total), count, tail, comm)
        tail_kept = (
            total[counts[RANK] :],
            x[counts[RANK] :] if in_place else np.full_like(x, 7)[counts[RANK] :],
        )
        if bits(tail_kept[0]) != bits(tail_kept[1]):
            code = -1
        total, wanted = total[: counts[RANK]], wanted[share]
    else:
        request = ctypes.c_void_p()
        made = LIBRARY.fpna_iallreduce if way == "iallreduce" else LIBRARY.fpna_allreduce_init
        code = made(guarantee, given, pointer(total), length, tail, comm, ctypes.byref(request))
        if way == "persistent":
            code |= LIBRARY.fpna_start(request)
        code |= LIBRARY.fpna_wait(ctypes.byref(request))
        if way == "persistent":
            code |= LIBRARY.fpna_request_free(ctypes.byref(request))
        code |= bool(request)
    differs = bits(total) != bits(wanted)
    what = f"{way}, guarantee {guarantee}, {dtype}, {kind}, counts {counts}, in place {in_place}"
    return what, code, np.array([float(differs)]), lambda: np.zeros(1)


CALLS = (a_sum,) * 7 + (by_cells, a_place, accumulated, reduced)


def batch(seed, cases):
    """The failures of some cases, on all ranks."""
    made = []
    for case in cases:
        draw = random.Random(f"{seed} {SIZE} {case}")
        rng = np.random.default_rng([seed, SIZE, case])
        made.append(draw.choice(CALLS)(draw, rng))
    said = [(code, sentence() if code else "", bits(total)) for _, code, total, _ in made]
    by_rank = COMM.allgather(said)
    failures = []
    for k in range(RANK, len(made), SIZE):
        what, _, _, expected = made[k]
        wanted = bits(expected())
        for rank, ranks_own in enumerate(by_rank):
            code, told, found = ranks_own[k]
            if code or found != wanted:
                failures.append(
                    f"seed {seed}, case {cases[k]}, rank {rank} of {SIZE}: {what}: code {code} {told}, "
                    f"{found[:64].hex()}, expected {wanted[:64].hex()}"
                )
    return [failure for part in COMM.allgather(failures) for failure in part]


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("library", help="the path of libfpna.so")
    parser.add_argument("--cases", type=int, required=True)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    begin, failures = time.monotonic(), []
    with np.errstate(all="ignore"):
        for first in range(0, options.cases, BATCH):
            failures += batch(options.seed, range(first, min(first + BATCH, options.cases)))
    if RANK == 0:
        answer = {"ranks": SIZE, "cases": options.cases, "seed": options.seed, "failed": len(failures)}
        print(json.dumps(answer | {"seconds": time.monotonic() - begin, "failures": failures[:20]}))
    return 0


if __name__ == "__main__":
    sys.exit(main())
