"""Reductions by ordering and length, over all ranks and on each rank alone, and exchanges between neighbours.

The time of a rank alone is local work, which the trace of any run on one rank contains; the additional time of ranks
together is the cost of communication. If a rank with one contribution sends it unchanged, a rank with several does
not, so several contributions are a separate case. Before each call a rank reads other memory (BETWEEN, LEAST) and
writes its contributions again, as in a step of training. Else contributions, buffers of messages and the code that
sends them would still be in caches, and a short message would take a fraction of its time in a step.

Beside the time, the trace states the work on the critical path of a schedule (`kernels.allreduce.cost`), within nodes
and between them, here and on other rank counts over the same number of nodes, so that the analysis, which knows no
schedules, can transfer a fitted cost to these counts.

Where the drawn plans have meshes of several axes, a sum along one of them has a part of the ranks, while the other
ranks add among themselves. So the reductions are timed in groups of ranks too, all groups at once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache, partial
from itertools import combinations
from math import prod

import numpy as np
from mpi4py import MPI

from kernels.allreduce import Reduction
from kernels.allreduce.accumulate import order_free
from kernels.allreduce.cost import Cost, cost
from kernels.allreduce.emulation import element_bytes, in_place_of
from kernels.allreduce.execution.placement import nodes_of
from kernels.allreduce.reduction import OVER
from kernels.guarantees import ChoiceError
from kernels.wires import PLAIN
from miniapps.calibrate.beside import beside_cases
from miniapps.calibrate.cases import Case
from miniapps.calibrate.plans import drawn_from, space_of
from miniapps.calibrate.sharing import crowded, places_of
from miniapps.layout.messages import Messages
from miniapps.partition.cuts.steps import STAGE
from miniapps.trace.schema import EXCHANGE

LENGTHS = (1, 16, 256, 4096, 65536, 524288)
SEVERAL = 2  # contributions of a rank
# Bytes that a rank reads between two messages: for each of the vector, and at least, more than a second-level cache.
BETWEEN, LEAST = 8, 1 << 23
# Visits of a case in a round, where ranks of a node share cores: there a message takes many times as long for a while.
VISITS = 3
ENCODED = (1, 2, 4, 8)  # contributions of a rank over a lossy wire, each encoded by itself
ENCODED_LENGTHS = (1, 4096, 524288)
PLANNED = ("library", "direct", "block-tree", "direct in exact")  # reductions of plans, by guarantee
SCATTERED = PLANNED[1:]
EXCHANGED = (8, 512, 8192, 131072, 1048576)  # bytes
OTHER_RANKS = (2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64)  # rank counts whose schedules are also counted


@dataclass(frozen=True)
class Way:
    """Ranks that reduce: those of `comm`, whose ranks are on `nodes`, one for each. `where`: a word for them."""

    where: str
    comm: MPI.Comm
    nodes: tuple[int, ...]

    @property
    def near(self) -> int:
        """The most ranks on one node."""
        return most_near(self.nodes)


def most_near(nodes: Sequence[int]) -> int:
    """How many of some ranks are on one node at most; `nodes`: the node of each."""
    return max(map(nodes.count, nodes))


def collective_cases(ctx) -> list[Case]:
    """All-reduces by every requested ordering, and exchanges; for plans also their reductions, reduce-scatters, wires,
    and messages beside work. With one rank, only the reductions of a rank alone."""
    options = ctx.config.calibrate
    wires = {wire for text in options.plans for wire in getattr(space_of(text), "wires", ())} - {PLAIN}
    planned = (*PLANNED, *(label for wire in sorted(wires) for label in over(wire)))
    labels = (*options.reductions, *(planned if options.plans else ()))
    nodes = nodes_of(ctx.comm)
    ways = [Way("together", ctx.comm, nodes)]
    if ctx.size > 1:
        ways += [*_groups(ctx, nodes), Way("alone", MPI.COMM_SELF, (0,))]
    cases = []
    for label in dict.fromkeys(labels):
        for n in ENCODED_LENGTHS if OVER in label else LENGTHS:
            reduction = Reduction.named(label, (n,))
            for contributions in contributed(reduction):
                cases += _reductions(ctx, ways, label, reduction, contributions)
            if options.plans and label in SCATTERED:
                cases += _reductions(ctx, ways, label, replace(reduction, collective="reduce-scatter"), 1)
    if ctx.size > 1:
        cases += _exchanges(ctx)
        if crowded(places_of(ctx.comm, nodes[ctx.rank])):
            cases = [replace(case, visits=VISITS) if case.together else case for case in cases]
        cases += beside_cases(ctx, PLANNED) if options.plans else []
    return cases


def contributed(reduction: Reduction) -> Sequence[int]:
    """Numbers of contributions of a rank whose times differ beyond the work of adding them: some travel one by one."""
    if reduction.coding is not None:
        return ENCODED if order_free(reduction.accumulation) else (1,)
    return (1, SEVERAL) if reduction.contributions_travel else (1,)


def over(wire: str) -> tuple[str, str]:
    """The reductions of gradients over a lossy wire, without a guarantee and under `layout`."""
    return f"direct over {wire}", f"direct in exact over {wire}"


def _groups(ctx, nodes: tuple[int, ...]) -> list[Way]:
    """The groups of ranks that add along some axes, not all, of the meshes of the drawn plans: one way for each size of
    a group and number of its ranks on a node, in the group with the most. Collective."""
    options = ctx.config.calibrate
    drawn = drawn_from(options.plans, options.programs, ctx.seed)
    meshes = dict.fromkeys(tuple(getattr(one, "mesh", {}).items()) for _, one in drawn)
    ways: dict[tuple[int, int], Way] = {}
    for mesh in meshes:
        if prod(size for _, size in mesh) != ctx.size:
            continue
        for groups in groups_along(dict(mesh)):
            places = max((tuple(nodes[rank] for rank in each) for each in groups), key=most_near)
            kind = len(places), most_near(places)
            if kind not in ways:
                number = next(k for k, each in enumerate(groups) if ctx.rank in each)
                where = "among {}, {} near".format(*kind)
                ways[kind] = Way(where, ctx.comm.Split(number, ctx.rank), places)
    return list(ways.values())


def groups_along(mesh: Mapping[str, int]) -> Iterator[list[tuple[int, ...]]]:
    """For each choice of axes of a mesh along which some ranks add but not all: the groups of ranks that do. No sum is
    along the stages of a pipeline."""
    ranks = np.arange(prod(mesh.values())).reshape(tuple(mesh.values()))
    axes = [k for k, (name, size) in enumerate(mesh.items()) if size > 1 and name != STAGE]
    for count in range(1, len(axes) + 1):
        for along in combinations(axes, count):
            last = tuple(range(ranks.ndim - count, ranks.ndim))
            groups = np.moveaxis(ranks, along, last).reshape(-1, prod(ranks.shape[k] for k in along))
            if len(groups) > 1:
                yield [tuple(each) for each in groups.tolist()]


def _reductions(ctx, ways: Sequence[Way], label: str, reduction: Reduction, contributions: int) -> list[Case]:
    (n,) = reduction.shape
    drawn = np.random.default_rng([ctx.seed, ctx.rank]).standard_normal((contributions, n))
    written = drawn.astype(reduction.dtype)
    values = written.copy()
    prepare = between(values, written, n * reduction.dtype.itemsize)
    scattered = "scattered " * (reduction.collective == "reduce-scatter")
    cases = []
    for way in ways:
        size = way.comm.size
        blocks = range(way.comm.rank * contributions, (way.comm.rank + 1) * contributions)
        reducer = ctx.reducer(
            f"{scattered}{label}:{n}:{contributions}:{way.where}",
            (n,),
            reduction.dtype,
            comm=way.comm,
            blocks=blocks if reduction.takes_sums or reduction.coding is not None else None,
            by=(reduction.ordering, reduction.accumulation),
            collective=reduction.collective,
            wire=reduction.wire,
            watched=False,
        )
        length = n * reduction.dtype.itemsize / 8
        parameters = {"length": length, "ranks": size, "near": way.near, "contributions": contributions}
        parameters |= counts(reduction, size, way.nodes, contributions) or {}
        if way.where == "together" and ctx.rank == 0:
            for other in OTHER_RANKS:
                spread = spread_over(other, len(set(way.nodes)))
                others = counts(reduction, other, spread, contributions) or {}
                parameters |= {f"{key}:{other}": x for key, x in others.items()}
        cases.append(
            Case(
                reducer.region,
                partial(reducer, values),
                parameters,
                nbytes=reducer.nbytes,
                traced=True,
                together=size > 1,
                prepare=prepare,
            )
        )
    return cases


@cache
def other_memory(nbytes: int) -> np.ndarray:
    """Memory that is read between messages, one array for all cases of a length."""
    return np.ones(nbytes, np.uint8)


def between(values: np.ndarray, written: np.ndarray, nbytes: int) -> Callable[[], None]:
    """What a rank does between two messages of a vector of `nbytes`: reads other memory, and writes the `values` to
    send."""
    other = other_memory(max(BETWEEN * nbytes, LEAST))

    def work() -> None:
        other.max()
        np.copyto(values, written)

    return work


def spread_over(size: int, nodes: int) -> tuple[int, ...]:
    """The node of each of `size` ranks on `nodes` nodes (at most one per rank), in contiguous, nearly equal parts."""
    nodes = min(nodes, size)
    return tuple(rank * nodes // size for rank in range(size))


def counts(
    reduction: Reduction, size: int, nodes: Sequence[int] | None = None, contributions: int = 1
) -> dict[str, float] | None:
    """Messages, bytes and additions on the critical path of a reduction on `size` ranks with `contributions` each, and
    separately the messages and bytes between `nodes` (of each rank; one node for all by default). None if it has no
    schedule on that number of ranks. For a reduction by the MPI library, they are those of its most likely
    algorithm."""
    stands, nodes = in_place_of(reduction), (0,) * size if nodes is None else tuple(nodes)
    try:
        schedule = stands.schedule(size, nodes=nodes, owners=tuple(range(size)))
    except ChoiceError:
        return None
    n = int(np.prod(stands.shape))
    once: Cost = cost(schedule, n, element_bytes(stands, contributions), stands.total_element_bytes, nodes)
    # To agree on the format of the words, ranks use recursive doubling, in which some rounds are between nodes.
    agreed = size.bit_length() if order_free(reduction.accumulation) else 0
    across = min(agreed, (len(set(nodes)) - 1).bit_length())
    return {
        "messages": once.critical_messages + agreed - across,
        "bytes": once.critical_bytes,
        "additions": once.critical_additions,
        "crossing_messages": once.crossing_messages + across,
        "crossing_bytes": once.crossing_bytes,
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

        written = np.ones_like(messages.outgoing)
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
                together=True,
                prepare=between(messages.outgoing, written, messages.outgoing.nbytes),
            )
        )
    return cases
