"""`direct` in `exact` under MPI: every way in which contributions may go.

Run by tests/mpi/test_order_free_mpi.py as `mpirun -n P python order_free_properties.py`.
"""

from contextlib import ExitStack, contextmanager
from unittest.mock import patch

import ml_dtypes
import numpy as np
from sections import COMM, labelled, report, section

from kernels import exact
from kernels.allreduce.execution import expansion, order_free
from tests.order_free import defined

RANK, SIZE = COMM.rank, COMM.size
DTYPES = ("float64", "float32", "float16", "bfloat16")
COUNTS = {  # contributions of the ranks
    "one each": [1] * SIZE,
    "one or none": [rank % 2 for rank in range(SIZE)],
    "none": [0] * SIZE,
    "several on one": [3 if rank == SIZE - 1 else 1 for rank in range(SIZE)],
    "any": [(66, 0, 1, 2, 5, 1, 0, 3)[rank] for rank in range(SIZE)],
}
# Bytes of records of all ranks, at most, and elements of those with room for sums.
WAYS = {
    "as planned": (order_free.RECORD_BYTES, order_free.RECORD_ELEMENTS),
    "records": (1 << 40, 1 << 40),
    "ones": (1 << 40, -1),
    "owners": (-1, -1),
}
SHAPES = {
    "as planned": [(0,), (2,), (300,), (9001,)],
    "records": [(), (5, 3), (700,)],
    "ones": [(), (5, 3), (700,)],
    "owners": [(), (SIZE - 1,), (5, 3)],
}
if SIZE > 4:  # there the machine is mostly too small for the ranks, and every message takes its time
    SHAPES = {"as planned": [(9001,)], "records": [(2,)], "ones": [(2,)], "owners": [(5, 3)]}
LARGEST = np.finfo(float).max
SPECIAL = [(np.nan,), (np.inf,), (np.inf, -np.inf), (LARGEST, LARGEST), (-0.0,)]


@contextmanager
def going(way):
    """Plans made meanwhile take that way whatever the length."""
    limits = dict(zip(("RECORD_BYTES", "RECORD_ELEMENTS"), WAYS[way], strict=True))
    with patch.multiple(order_free, **limits):
        yield


def contributions(seed, counts, shape, dtype, decades):
    """Those of every rank; magnitudes span twice as many powers of ten, and some cancel."""
    result = []
    for rank, k in enumerate(counts):
        rng = np.random.default_rng([seed, rank])
        x = rng.standard_normal((k, *shape)) * 10.0 ** rng.integers(-decades, decades + 1, (k, *shape))
        if k > 2:
            x[2] = -x[0]
        result.append(x.astype(dtype))
    return result


def expected(xs):
    return defined(np.concatenate(xs)).tobytes()


def cases(shape, dtype):
    """Of contributions: how many, how wide, and what special numbers."""
    far = {"float64": 100, "float16": 4}.get(dtype.name, 15)
    for what, counts in COUNTS.items():
        for decades in (3, far):
            yield f"{what}, {decades} decades", contributions(decades, counts, shape, dtype, decades)
        if what not in ("one each", "any"):
            continue
        for special in SPECIAL:
            xs = contributions(1, counts, shape, dtype, 0)
            for i, value in enumerate(special):
                x = xs[(SIZE - 1 + i) % SIZE]
                if x.size:
                    x.reshape(-1)[-1] = value if abs(value) != LARGEST else ml_dtypes.finfo(dtype).max
            yield f"{what}, with {special}", xs


@section
def every_way_gives_the_bits_of_the_definition():
    for way in WAYS:
        for dtype in DTYPES if way == "ones" else DTYPES[:2]:
            for shape in SHAPES[way]:
                with going(way), labelled("direct in exact", shape, dtype) as reducer:
                    for what, xs in cases(shape, reducer.dtype):
                        total = reducer(xs[RANK])
                        if total.tobytes() != expected(xs) or total.shape != shape:
                            yield f"{way} {dtype} {shape} {what}: {total}"


@section
def the_total_goes_where_it_is_wanted():
    for way, shape in (("records", (2,)), ("ones", (150,)), ("owners", (150,)), ("owners", (9001,))):
        for decades in (3, 100):
            with going(way), labelled("direct in exact", shape) as reducer:
                for what, counts in COUNTS.items():
                    xs = contributions(1, counts, shape, "float64", decades)
                    out, want = np.empty(shape), expected(xs)
                    if reducer(xs[RANK], out) is not out or out.tobytes() != want:
                        yield f"{way} {shape} {what}: not in out"
                    reducer.start(xs[RANK])
                    if reducer.finish().tobytes() != want:
                        yield f"{way} {shape} {what}: start and finish"
                    place = xs[RANK][0] if counts[RANK] else out
                    if reducer(xs[RANK], place).tobytes() != want:
                        yield f"{way} {shape} {what}: in place"


@section
def the_way_taken_is_the_one_that_the_contributions_allow():
    for way, counts, decades, expect in (
        ("records", "one each", 100, "records"),
        ("records", "several on one", 0, "records"),
        ("records", "many", 100, "records words"),
        ("ones", "one each", 100, "ones"),
        ("ones", "several on one", 0, "ones sums"),
        ("ones", "many", 100, "ones sums words"),
        ("owners", "one each", 100, "direct"),
        ("owners", "several on one", 0, "sums"),
        ("owners", "many", 100, "sums words"),
    ):
        xs = contributions(1, COUNTS.get(counts, [30] * SIZE), (300,), "float64", decades)
        with going(way), labelled("direct in exact", (300,)) as reducer, ExitStack() as stack:
            steps = {}
            for step in ("_direct", "_add_sums"):
                if hasattr(reducer, step):
                    steps[step] = stack.enter_context(
                        patch.object(reducer, step, wraps=getattr(reducer, step))
                    )
            settled = stack.enter_context(patch.object(order_free, "settle", wraps=order_free.settle))
            steps["_words"] = stack.enter_context(patch.object(expansion, "_added", wraps=expansion._added))
            reducer(xs[RANK])
            taken = " ".join(step.split("_")[-1] for step, spy in steps.items() if spy.called)
            taken = taken if way == "owners" else f"{way} {taken}".strip()
        if taken != expect or (settled.called and way == "owners" and counts == "one each"):
            yield f"{way} {counts} {decades} decades: {taken}, not {expect}"


@section
def sums_of_words_are_exact_whether_they_fit_into_numbers_or_not():
    for shape in ((), (3, 2), (150,)):
        for decades in (0, 100):
            rng = np.random.default_rng(decades)
            a = rng.standard_normal((SIZE, 6, *shape)) * 10.0 ** rng.integers(
                -decades, decades + 1, (SIZE, 6, *shape)
            )
            words = exact.zeros(shape)
            exact.add(words, a[RANK])
            everything = exact.zeros(shape)
            exact.add(everything, a.reshape(-1, *shape))
            before = words.tobytes()
            for way in WAYS:
                for dtype in DTYPES:
                    with going(way), labelled("direct in exact", shape, dtype, check=True) as reducer:
                        total = reducer.sum_words(words)
                        if total.tobytes() != exact.round(everything, np.empty(shape, dtype)).tobytes():
                            yield f"{way} {shape} {decades} decades, {dtype}"
            if words.tobytes() != before:
                yield f"{shape}: the caller's words were changed"


@section
def sums_of_many_products_go_as_numbers():
    rng = np.random.default_rng(RANK)
    words = exact.zeros((2,))
    for i in range(2):
        exact.add_products(words[i], rng.standard_normal(3000), rng.standard_normal(3000))
    with labelled("direct in exact", (2,)) as reducer:
        with patch.object(expansion, "_added", wraps=expansion._added) as fallback:
            reducer.sum_words(words)
        if fallback.called:
            yield "the sums of 3000 products do not fit into numbers"


if __name__ == "__main__":
    report()
