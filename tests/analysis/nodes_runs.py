"""Runs over several nodes with known traffic, written by the real tracer."""

from miniapps.trace import Tracer
from miniapps.trace.schema import COLLECTIVE, EXCHANGE, rank_file
from tests.analysis.synthetic import attributes, write_result

HALO, CALLS = 1000, 10  # bytes to each neighbour in a ring of ranks, and how often
LENGTH, SUMS = 8000, 3  # of the all-reduce, float64


def reduction(ordering, size, **more):
    """What a run states of the all-reduce `sum`."""
    return {
        "region": "allreduce.sum", "ordering": ordering, "accumulation": "working", "collective": "allreduce",
        "operation": "sum", "shape": [LENGTH], "dtype": "float64", "ranks": size, "calls": SUMS,
    } | more  # fmt: skip


def write_over_nodes(out, hosts, ordering="ring", stated=True, **more):
    """Write a run whose rank r was on `hosts[r]` into the new directory `out`: halos between neighbours of a ring of
    ranks, whose bytes the trace states where `stated`, and an all-reduce."""
    out.mkdir(parents=True)
    size = len(hosts)
    for rank, host in enumerate(hosts):
        environment = {"mpi": "MPICH 4.3", "node": host, "variables": {}}
        own = attributes(rank, size, "run", ordering, environment=environment, run_id=str(out), **more)
        with Tracer(out / rank_file(rank), {**own, "reductions": {}}, size=size) as tracer:
            halo, total = tracer.name("halo", EXCHANGE), tracer.name("allreduce.sum", COLLECTIVE)
            neighbours = {(rank - 1) % size: HALO, (rank + 1) % size: HALO}
            tracer.partners("halo", neighbours)
            counted = tracer.messages("halo", neighbours) if stated else {"calls": 0}
            tracer.reduction("sum", reduction(ordering, size))
            tracer.at(0, 1)
            for _ in range(CALLS):
                begin = tracer.clock()
                counted["calls"] += 1
                tracer.event(halo, begin, sum(neighbours.values()))
            for _ in range(SUMS):
                tracer.event(total, tracer.clock(), 8 * LENGTH)
            if rank == 0:
                tracer.value("energy", 1.0)
    write_result(out)
    return out
