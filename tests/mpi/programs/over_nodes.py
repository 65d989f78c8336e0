"""Orderings over several nodes: every section returns what failed on this rank; rank 0 prints all of it as JSON.

Run by tests/mpi/test_over_nodes_mpi.py on ranks in network namespaces, as `python over_nodes.py`.
"""

import socket

import numpy as np
from sections import COMM, pairs, report, section

from kernels.allreduce import Reduction, orderings, plan
from kernels.allreduce.accumulate import ACCUMULATIONS
from kernels.allreduce.execution.placement import nodes_of
from kernels.allreduce.instruments.properties import assigned_blocks
from kernels.allreduce.simulator import simulate
from tests.order_free import defined

RANK, SIZE = COMM.rank, COMM.size
NODES = nodes_of(COMM)
SCHEDULED = [o.name for o in orderings() if o.scheduled and "owners" not in o.needs]
WITH_PARAMETERS = (
    "k-nomial:k=2,tree=levels",
    "k-nomial:k=3,tree=depth",
    "permuted:seed=3",
    "rabenseifner:k=3",
    "recursive-multiplying:k=3,fold=neighbours",
    "ring:start=1,cut=full",
    "segmented-ring:segments=3",
)
LENGTHS = sorted({1, SIZE - 1, SIZE, 13, 1000, 30_011})
BLOCKS = 24


def numbers(seed, rows, n, dtype):
    """The same on every rank; of near magnitudes, where another order most often has other bits."""
    rng = np.random.default_rng([seed, n])
    return (rng.standard_normal((rows, n)) * 10.0 ** rng.integers(-1, 2, (rows, n))).astype(dtype)


def differing(totals, expected, what):
    """What to yield on rank 0, which alone knows what is expected, where any rank holds other bits."""
    held = COMM.gather(totals.tobytes(), 0)
    if RANK == 0:
        other = [rank for rank, own in enumerate(held) if own != expected.tobytes()]
        if other:
            yield f"{what}: other bits on ranks {other}"


@section
def ranks_share_memory_where_they_have_one_host_name():
    hosts = COMM.allgather(socket.gethostname())
    if [hosts.index(host) for host in hosts] != list(NODES):
        yield f"nodes {NODES}, hosts {hosts}"


@section
def every_ordering_has_the_bits_of_its_schedule_over_these_nodes():
    for name, dtype, n in pairs([*SCHEDULED, *WITH_PARAMETERS], ("float64", "float32"), LENGTHS):
        xs = numbers(1, SIZE, n, dtype)
        with plan(COMM, name, n, dtype) as reducer:
            for call in range(2):
                total = reducer(xs[RANK : RANK + 1])
                expected = simulate(name, xs[:, None], nodes=NODES)[0] if RANK == 0 else None
                yield from differing(total, expected, f"{name} {dtype} {n}, call {call}")


@section
def every_accumulation_has_them_too():
    for name, accumulation, n in pairs(SCHEDULED, tuple(ACCUMULATIONS), (1, 1000)):
        xs = numbers(2, SIZE, n, "float64")
        with plan(COMM, name, n, accumulation=accumulation) as reducer:
            total = reducer(xs[RANK : RANK + 1])
        expected = None
        if RANK == 0:
            expected = simulate(name, xs[:, None], accumulation=accumulation, nodes=NODES)[0]
        yield from differing(total, expected, f"{name} in {accumulation}, {n}")


@section
def blocks_have_one_sum_whoever_owns_them():
    """That of one rank which has all blocks."""
    for n in (1, 1000):
        blocks = numbers(3, BLOCKS, n, "float64")
        alone = simulate("block-tree", [blocks], owners=(0,) * BLOCKS)[0]
        for seed in (None, 1):
            own = assigned_blocks(BLOCKS, SIZE, seed)[RANK]
            with plan(COMM, "block-tree", n, blocks=own) as reducer:
                yield from differing(reducer(blocks[own]), alone, f"block-tree {n}")
            reduction = Reduction("direct", n, "float64", accumulation="exact")
            with plan(COMM, reduction, blocks=own) as reducer:
                yield from differing(reducer(blocks[own]), defined(blocks), f"exact {n}")


@section
def an_order_of_arrival_is_logged_and_replayed():
    calls = 6
    for n in (1, 1000):
        xs = [numbers(seed, SIZE, n, "float64") for seed in range(calls)]
        with plan(COMM, "arrival", n) as reducer:
            totals = [reducer(x[RANK : RANK + 1]).copy() for x in xs]
            orders = COMM.bcast(reducer.drain_orders(), 0)
        turned = [np.concatenate([order[:1], order[:0:-1]]) for order in orders]
        for x, total, order in zip(xs, totals, orders, strict=True):
            expected = simulate("arrival", x[:, None], order)[0]
            yield from differing(total, expected, f"arrival {n}, {order}")
        for replayed in (orders, turned):  # turned: a replay that adds as messages come cannot pass
            with plan(COMM, "arrival", n, replay=iter(replayed)) as reducer:
                for x, order in zip(xs, replayed, strict=True):
                    expected = simulate("arrival", x[:, None], order)[0]
                    yield from differing(reducer(x[RANK : RANK + 1]), expected, f"replay {n}, {order}")


@section
def the_library_agrees_across_nodes():
    for n in LENGTHS:
        xs = numbers(4, SIZE, n, "float64")
        total = np.empty(n)
        COMM.Allreduce(xs[RANK], total)
        if len(set(COMM.allgather(total.tobytes()))) > 1:
            yield f"{n}: ranks hold different bits"
        if not np.allclose(total, xs.sum(axis=0), rtol=1e-12, atol=1e-12 * np.abs(xs).sum()):
            yield f"{n}: not a sum"


if __name__ == "__main__":
    report()
