"""All-reduces by ordering and length, over all ranks and of each rank alone, and exchanges between neighbours.

What a rank alone takes is local work, which the trace of any run on one rank has already; what ranks take together
beyond that is the price of communication. Beside its time the trace states what a schedule does on its critical path
(`kernels.allreduce.cost`), here and on other rank counts, so that the analysis, which knows no schedules, can move a
fitted cost to these.
"""

from __future__ import annotations

from functools import partial

import numpy as np
from mpi4py import MPI

from kernels.allreduce import Reduction
from kernels.allreduce.accumulate import order_free
from kernels.allreduce.cost import Cost, cost
from kernels.allreduce.emulation import in_place_of
from kernels.guarantees import ChoiceError
from miniapps.calibrate.cases import Case
from miniapps.layout.messages import Messages
from miniapps.trace.schema import EXCHANGE

LENGTHS = (1, 16, 256, 4096, 65536)
LONGEST_EXACT = 256  # elements: of a superaccumulator each takes a kilobyte
EXCHANGED = (8, 512, 8192, 131072, 1048576)  # bytes
OTHER_RANKS = (2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64)  # on which schedules are counted, too


def collective_cases(ctx) -> list[Case]:
    """All-reduces by every ordering asked for; without the sums of each rank alone where there is but one."""
    cases = []
    for label in dict.fromkeys(ctx.config.calibrate.reductions):
        for n in LENGTHS:
            if Reduction.named(label, (n,)).accumulation != "exact" or n <= LONGEST_EXACT:
                cases += _allreduces(ctx, label, n)
    return cases + (_exchanges(ctx) if ctx.size > 1 else [])


def _allreduces(ctx, label: str, n: int) -> list[Case]:
    reduction = Reduction.named(label, (n,))
    values = np.random.default_rng([ctx.seed, ctx.rank]).standard_normal((1, n))
    cases = []
    for comm, where in ((ctx.comm, "together"), (MPI.COMM_SELF, "alone")):
        if where == "alone" and ctx.size == 1:
            continue
        reducer = ctx.reducer(
            f"{label}:{n}:{where}",
            (n,),
            comm=comm,
            by=(reduction.ordering, reduction.accumulation),
            watched=False,
        )
        parameters = {"length": n, "ranks": comm.size} | (counts(reduction, comm.size) or {})
        if where == "together" and ctx.rank == 0:
            for size in OTHER_RANKS:
                parameters |= {f"{key}:{size}": x for key, x in (counts(reduction, size) or {}).items()}
        cases.append(
            Case(
                reducer.region,
                partial(reducer, values),
                parameters,
                nbytes=reducer.nbytes,
                traced=True,
            )
        )
    return cases


def counts(reduction: Reduction, size: int) -> dict[str, float] | None:
    """Messages, bytes and additions on the critical path of a reduction on `size` ranks; None where it has no schedule
    on so many. Of what the library adds they are those of the algorithm that it most likely takes."""
    stands = in_place_of(reduction)
    try:
        schedule = stands.schedule(size, nodes=(0,) * size, owners=tuple(range(size)))
    except ChoiceError:
        return None
    n = int(np.prod(stands.shape))
    once: Cost = cost(schedule, n, stands.element_bytes, stands.total_element_bytes)
    agreed = size.bit_length() if order_free(reduction.accumulation) else 0  # on units, or on lengths
    return {
        "messages": once.critical_messages + agreed,
        "bytes": once.critical_bytes,
        "additions": once.critical_additions,
    }


def _exchanges(ctx) -> list[Case]:
    """Messages of one length to and from both neighbours of a rank in a ring."""
    neighbours = sorted({(ctx.rank - 1) % ctx.size, (ctx.rank + 1) % ctx.size})
    cases = []
    for nbytes in EXCHANGED:
        n = nbytes // 8
        parts = {peer: (i * n, (i + 1) * n) for i, peer in enumerate(neighbours)}
        messages = Messages(ctx.comm, parts, parts)

        def call(messages=messages) -> None:
            messages.start()
            messages.finish()

        parameters = {"bytes": float(nbytes * len(neighbours)), "partners": float(len(neighbours))}
        cases.append(
            Case(
                "exchange",
                call,
                parameters,
                EXCHANGE,
                nbytes=messages.nbytes,
                partners=neighbours,
                free=messages.free,
            )
        )
    return cases
