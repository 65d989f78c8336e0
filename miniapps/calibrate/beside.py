"""Messages beside work: how much of their time passes while a rank computes.

A reduction, and an exchange, alone; products that take longer; and both, the messages begun before the products, and
advanced after each of them, as a step of a plan does. What both take less than one after the other is hidden. On the
ranks of one machine the cores copy the messages themselves, so little is hidden unless some cores are free.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from math import ceil

import numpy as np

from kernels.allreduce import Reduction, plan
from kernels.contract import matmul
from miniapps.calibrate.cases import Case
from miniapps.layout.messages import Messages
from miniapps.trace.writer import Tracer

LENGTHS = (4096, 65536, 524288)  # elements of float64
EDGE = 96  # of the products
TURNS = 3  # in one round
MORE = 1.5  # time of the products over that of the messages
MOST = 500  # products
Parts = tuple[Callable[[], object], Callable[[], object], Callable[[], object]]  # start, progress, finish


def beside_cases(ctx, labels: Sequence[str]) -> list[Case]:
    """A case per reduction, or exchange, and length."""
    cases = []
    for n in LENGTHS:
        for label in labels:
            reduction = Reduction.named(label, (n,))
            blocks = (ctx.rank,) if reduction.takes_sums else None
            reducer = plan(ctx.comm, reduction, name=f"{label}, {n} elements beside work", blocks=blocks)
            values = np.random.default_rng([ctx.seed, ctx.rank]).standard_normal((1, n))
            parts = partial(reducer.start, values), reducer.progress, reducer.finish
            cases.append(_case(ctx, label, n, parts, reducer.free))
        cases.append(_exchange(ctx, n))
    return cases


def _exchange(ctx, n: int) -> Case:
    """An exchange of `n` elements with both neighbours of a rank in a ring."""
    neighbours = sorted({(ctx.rank - 1) % ctx.size, (ctx.rank + 1) % ctx.size})
    each = n // len(neighbours)
    ranges = {peer: (k * each, (k + 1) * each) for k, peer in enumerate(neighbours)}
    messages = Messages(ctx.comm, ranges, ranges)
    return _case(ctx, "exchange", n, (messages.start, messages.progress, messages.finish), messages.free)


def _case(ctx, label: str, n: int, parts: Parts, free: Callable[[], None]) -> Case:
    values = {"length": float(n), "ranks": float(ctx.size)}
    a, b = np.random.default_rng(ctx.seed).standard_normal((2, EDGE, EDGE)).astype(np.float32)
    product = partial(matmul, a, b, variant="own", threads=1)
    record = partial(_record, label=label, comm=ctx.comm, parts=parts, product=product, values=values)
    return Case(f"beside {label}", partial(_both, parts, product, 1), values, record=record, free=free)


def _both(parts: Parts, product: Callable[[], object], count: int) -> None:
    start, progress, finish = parts
    start()
    for _ in range(count):
        product()
        progress()
    finish()


def _record(tracer: Tracer, label: str, comm, parts: Parts, product: Callable, values: dict) -> None:
    """Times the messages, so many products that they take longer, and both, in turn."""
    for name, value in values.items():
        tracer.value(name, value)
    clock = tracer.clock

    def timed(call: Callable[[], object]) -> int:
        comm.Barrier()
        begin = clock()
        call()
        return clock() - begin

    one = min(timed(product) for _ in range(TURNS))
    messages = min(timed(partial(_both, parts, product, 0)) for _ in range(TURNS))
    count = comm.bcast(min(ceil(MORE * messages / max(one, 1)), MOST))
    for _ in range(TURNS):
        ways: dict[str, Callable[[], object]] = {
            "messages": partial(_both, parts, product, 0),
            "work": lambda: [product() for _ in range(count)],
            "both": partial(_both, parts, product, count),
        }
        for what, call in ways.items():
            taken = timed(call)
            end = clock()
            tracer.interval(tracer.name(f"beside {what} {label}"), end - max(taken, 1), end, 0, 0)
