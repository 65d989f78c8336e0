"""Times steps of one model on one mesh, for `benchmarks.apps.partition`; rank 0 prints one line of JSON.

    mpirun -n P python -m benchmarks.apps.partition_steps times MODEL SIZES CARRIERS MESH ROUNDS
    mpirun -n P python -m benchmarks.apps.partition_steps waits MODEL SIZES CARRIERS MESH ROUNDS
    mpirun -n P python -m benchmarks.apps.partition_steps early MODEL SIZES CARRIERS MESH ROUNDS
    mpirun -n P python -m benchmarks.apps.partition_steps ring MODEL SIZES CARRIERS MESH ROUNDS
    mpirun -n P python -m benchmarks.apps.partition_steps bytes MODEL SIZES CARRIERS MESH STEPS

SIZES are those of the model's deck (width=256,layers=2). CARRIERS gives the axis of the mesh that carries each axis of
the model (batch=data). MESH is, for example, data=2,model=2. `bytes` counts the bytes that leave each node, with one
rank on each.
"""

import argparse
import json
import time
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import torch
from mpi4py import MPI

from benchmarks.apps.partition import COMMUNICATING, COMPUTING
from benchmarks.harness.results import add_quiet
from benchmarks.harness.turns import in_turn, undisturbed
from jobs.cluster.traffic import HEADERS
from kernels.contract import matmul
from kernels.progress import Progress
from miniapps.calibrate.noise import Quiet
from miniapps.partition.capture.export import export
from miniapps.partition.cuts.mesh import CONTIGUOUS, SCHEDULES, ZIGZAG, Mesh, pairs, parse
from miniapps.partition.cuts.steps import BACKWARD, FORWARD, STAGE, Plan
from miniapps.partition.execution.learn import Learner
from miniapps.partition.execution.run import Program
from miniapps.partition.graphs.flops import PRODUCT, model_flops
from miniapps.partition.graphs.repeat import split
from miniapps.partition.models import model as model_of
from miniapps.partition.planning.early import OFF, OVERLAPS, overlapped
from miniapps.partition.planning.recipes import deck_of, micro_batches, plan_of
from miniapps.partition.planning.smaller.attention import GATHERED, RING
from miniapps.partition.pricing.events import Event, KernelCall, Sent, Summed
from miniapps.partition.pricing.pipeline import bubble, pipeline_of, stage_flops
from miniapps.partition.pricing.rehearse import Rehearsal
from miniapps.partition.showing.explain import explain
from miniapps.system.heap import keep_freed_memory
from miniapps.trace.schema import WAIT

LEVELS = ("none", "layout")  # of the parts overlap and ring
KEYS = "tokens"  # the axis of the ring
PRODUCTS = ("own", "torch")  # whose products at 512^3 give the rate of a core

REHEARSED = 5  # steps of a rank without the others
SETTLED_S = 0.2  # until all sent bytes have left the node


class Case:
    """A model on a mesh: its network, inputs and graph, the plan, and a learner for any guarantee."""

    def __init__(self, comm, name: str, sizes: str, carriers: str, mesh: str):
        torch.set_num_threads(1)
        model, carried = model_of(name), pairs(carriers, "CARRIERS", "batch=data")
        deck = deck_of(model, pairs(sizes, "SIZES", "samples=8"))
        torch.manual_seed(0)
        self.comm, self.network, self.inputs = comm, model.module(deck), model.inputs(deck)
        self.parts = micro_batches(deck)
        exported = export(self.network, self.inputs, micro_batches=self.parts) if comm.rank == 0 else None
        self.graph = comm.bcast(exported)
        self.planned = partial(plan_of, model, deck, self.graph, list(carried))
        self.plan = self.planned()
        self.mesh = parse(mesh, carried, comm.size)

    def learner(
        self, level: str, mesh: Mesh | None = None, timed=None, overlap: str = OFF, plan: Plan | None = None
    ) -> tuple[Program, Learner]:
        """The program of a rank under a guarantee, and the learner that runs its steps; options as for `Program`.
        `overlap`: which messages begin early."""
        plan = overlapped(plan or self.plan, overlap)
        whole = {("parameter", key): x.detach() for key, x in self.network.named_parameters()}
        whole |= {("buffer", key): x for key, x in self.network.named_buffers()}
        whole |= {("input", str(k)): x for k, x in enumerate(split(self.inputs, self.parts))}
        program = Program(self.comm, plan, mesh or self.mesh, level, timed=timed)
        return program, Learner(program, whole)


def in_quiet_turn(comm, ways: dict, rounds: int, quiet: bool) -> tuple[dict[str, list], dict[str, float]]:
    """As `in_turn`, calling each of `ways` again until nothing disturbs it; and the share of undisturbed results."""
    free = Quiet(comm)
    turns = in_turn({way: partial(undisturbed, free, call) for way, call in ways.items()}, rounds, quiet)
    return (
        {way: [value for value, _ in taken] for way, taken in turns.items()},
        {way: sum(good for _, good in taken) / len(taken) for way, taken in turns.items()},
    )


def times(case: Case, rounds: int, quiet: bool) -> dict:
    """Seconds of a step under `none`, under `layout`, and of eager torch on one rank, in turn."""
    comm, ways, programs = case.comm, {}, {}
    for level in ("none", "layout"):
        programs[level], learner = case.learner(level)
        ways[level] = lambda program=programs[level], values=learner.values: program(values)
    parameters = list(case.network.parameters())
    if comm.size == 1:
        ways["eager"] = lambda: torch.autograd.grad(case.network(*case.inputs), parameters)

    def measured(call):
        def both():
            comm.Barrier()
            wall, cpu = time.perf_counter(), time.process_time()
            call()
            cpu = time.process_time() - cpu
            comm.Barrier()
            return cpu, time.perf_counter() - wall

        return both

    a, b = torch.randn(PRODUCT, PRODUCT), torch.randn(PRODUCT, PRODUCT)
    for variant in PRODUCTS:
        ways[variant] = lambda variant=variant: matmul(a, b, variant=variant, threads=1)
    found, shares = in_quiet_turn(comm, {way: measured(call) for way, call in ways.items()}, rounds, quiet)
    rates = {v: 2 * PRODUCT**3 / min(cpu for cpu, _ in found.pop(v)) for v in PRODUCTS}
    crossing = [total.nbytes for total in programs["layout"].totals if total.nbytes]
    exchanged = sum(exchange.nbytes for exchange in programs["layout"].exchanges)
    for program in programs.values():
        program.free()
    return {
        "seconds": {way: [cpu for cpu, _ in taken] for way, taken in found.items()},
        "wall": {way: [wall for _, wall in taken] for way, taken in found.items()},
        "undisturbed": shares,
        "flops": model_flops(case.graph),
        "rates": rates,
        "allreduces": len(crossing),
        "nbytes": sum(crossing) + exchanged,
    }


def waits(case: Case, rounds: int, quiet: bool) -> dict:
    """Seconds of a step of a pipeline by guarantee and schedule, in turn, and the part of them in which ranks wait for
    other stages: measured, the mean over the ranks, and predicted, from the model FLOPs of each stage, and from the
    seconds of each rank's step without the others."""
    comm, ways, programs, predicted, by_seconds = case.comm, {}, [], {}, {}
    waited = [0.0]

    def timed(region: str, kind: str, function, nbytes: int):
        def waiting():
            begin = time.perf_counter()
            result = function()
            waited[0] += time.perf_counter() - begin
            return result

        return waiting if kind == WAIT else function

    for level in ("none", "layout"):
        for schedule in SCHEDULES:
            mesh = replace(case.mesh, schedule=schedule)
            program, learner = case.learner(level, mesh, timed)
            programs.append(program)
            predicted[schedule] = pipeline_of(case.plan, mesh).bubble
            by_seconds[f"{level}, {schedule}"] = bubble_of(case, mesh, level)

            def measured(program=program, values=learner.values):
                comm.Barrier()
                waited[0], begin = 0.0, time.perf_counter()
                program(values)
                ended = time.perf_counter()
                comm.Barrier()  # a rank whose stages have ended waits for the others
                end = time.perf_counter()
                return end - begin, (waited[0] + end - ended) / (end - begin)

            ways[f"{level}, {schedule}"] = measured
    found, undisturbed_shares = in_quiet_turn(comm, ways, rounds, quiet)
    for program in programs:
        program.free()
    shares = {way: np.array([share for _, share in taken]) for way, taken in found.items()}
    return {
        "wall": {way: [seconds for seconds, _ in taken] for way, taken in found.items()},
        "waits": {way: (comm.allreduce(share) / comm.size).tolist() for way, share in shares.items()},
        "predicted": predicted,
        "by_seconds": by_seconds,
        "undisturbed": undisturbed_shares,
    }


def bubble_of(case: Case, mesh: Mesh, level: str) -> float:
    """The predicted bubble from the seconds of each rank's step without the others. Collective."""
    alone = Rehearsal(case.plan, mesh, case.comm.rank, level, split(case.inputs, case.parts))
    alone.run()
    runs = [alone.run() for _ in range(REHEARSED)]
    taken = case.comm.allgather(float(np.median([ran.seconds.sum() + ran.rest for ran in runs])))
    flops, owners = stage_flops(case.plan), mesh.owners(case.plan.axis(STAGE)).tolist()
    of_rank = [
        sum(n for (stage, _), n in flops.items() if owners[stage] == rank) for rank in range(len(taken))
    ]
    forward, backward = (
        [flops[stage, way] * taken[owner] / of_rank[owner] for stage, owner in enumerate(owners)]
        for way in (FORWARD, BACKWARD)
    )
    return bubble(forward, backward, case.parts, owners, mesh.schedule)


def early(case: Case, rounds: int, quiet: bool) -> dict:
    """Seconds by the clock, in turn and under each of LEVELS, of a step by the messages that begin early; of its
    computation on all ranks, whose messages nobody sends; of its reductions and exchanges alone; and of the shortest
    step that the order of messages and work allows."""
    comm, ways, programs = case.comm, {}, []
    inputs = split(case.inputs, case.parts)
    measured = partial(by_clock, comm)
    for level in LEVELS:
        for overlap in OVERLAPS:
            program, learner = case.learner(level, overlap=overlap)
            programs.append(program)
            ways[f"{level}, {overlap}"] = measured(
                lambda program=program, values=learner.values: program(values)
            )
            if overlap == OFF:
                sums = [total.total for total in program.totals if total.nbytes]
                moves = [exchange.messages for exchange in program.exchanges if exchange.waits]
        alone = Rehearsal(case.plan, case.mesh, comm.rank, level, inputs)
        ways[f"{level}, {COMPUTING}"] = measured(alone.run)
        ways[f"{level}, {COMMUNICATING}"] = measured(lambda sums=sums, moves=moves: sent_alone(sums, moves))
    found, shares = in_quiet_turn(comm, ways, rounds, quiet)
    for program in programs:
        program.free()
    least = {}
    for level in LEVELS:
        sending_s = float(np.median(found[f"{level}, {COMMUNICATING}"]))
        for overlap in OVERLAPS:
            least[f"{level}, {overlap}"] = shortest_of(case, level, overlap, sending_s)
    return {"wall": found, "undisturbed": shares, "shortest": least}


def shortest_of(case: Case, level: str, overlap: str, sending_s: float) -> float:
    """The `shortest` seconds of a step whose messages take `sending_s` in all, each in proportion to its elements, by
    rehearsals of each rank. Collective."""
    plan = overlapped(case.plan, overlap)
    alone = Rehearsal(plan, case.mesh, case.comm.rank, level, split(case.inputs, case.parts))
    alone.run()
    runs = [alone.run() for _ in range(REHEARSED)]
    calls = np.median([ran.seconds for ran in runs], axis=0)
    between = float(np.median([ran.rest for ran in runs])) / len(alone.events)
    sums = [event for event in alone.events if isinstance(event, Summed) and event.group]
    of_element = sending_s / max(sum(event.elements for event in sums if event.part != "finish"), 1)
    return case.comm.allreduce(shortest(alone.events, calls.tolist(), between, of_element), MPI.MAX)


def shortest(events: Sequence[Event], calls: Sequence[float], between: float, of_element: float) -> float:
    """Seconds of a step whose messages need no processor: each passes after the one before, from where it begins until
    a rank needs what it brings. `calls`: seconds of each kernel and of the work for each exchange, whose own messages
    do not count; `between`: of work before each event; `of_element`: of the messages of a sum, per element."""
    now = free = 0.0
    ends: dict[str, float] = {}
    left = iter(calls)
    for event in events:
        now += between + (next(left) if isinstance(event, KernelCall | Sent) else 0.0)
        if isinstance(event, Summed) and event.group:
            if event.part != "finish":
                free = ends[event.node] = max(now, free) + of_element * event.elements
            if event.part != "start":
                now = max(now, ends.pop(event.node))
    return now


def ring(case: Case, rounds: int, quiet: bool) -> dict:
    """Seconds of a step by the clock, in turn and under each of LEVELS, with attention that gathers all keys and
    values, and block by block with neighbouring and with early and late tokens on each rank."""
    comm, ways, programs = case.comm, {}, []
    by_block = case.planned(attention=RING)
    early_and_late = replace(case.mesh, zigzag=(KEYS,))
    for level in LEVELS:
        for way, plan, mesh in (
            (GATHERED, case.plan, case.mesh),
            (f"{RING}, {CONTIGUOUS}", by_block, case.mesh),
            (f"{RING}, {ZIGZAG}", by_block, early_and_late),
        ):
            program, learner = case.learner(level, mesh, plan=plan)
            programs.append(program)
            ways[f"{level}, {way}"] = by_clock(
                comm, lambda program=program, values=learner.values: program(values)
            )
    found, shares = in_quiet_turn(comm, ways, rounds, quiet)
    for program in programs:
        program.free()
    return {"wall": found, "undisturbed": shares}


def by_clock(comm, call):
    """A function that returns the seconds of `call` on all ranks, by the clock."""

    def wall():
        comm.Barrier()
        begin = time.perf_counter()
        call()
        comm.Barrier()
        return time.perf_counter() - begin

    return wall


def sent_alone(sums, moves) -> None:
    """All reductions and exchanges of a step, one after the other."""
    for total in sums:
        total()
    for messages in moves:
        messages.start()
        messages.finish()


def crossed(case: Case, steps: int, quiet: bool) -> dict:
    """Bytes that leave each node in a step under `layout`, and those that `explain` counts."""
    comm, progress = case.comm, Progress("benchmark", quiet=quiet)
    program, learner = case.learner("layout")
    learner.step()
    # The bytes of two readings and their barriers are subtracted.
    first, second = settled(comm), settled(comm)
    for k in range(steps):
        progress.show(k / steps, f"step {k + 1} of {steps}")
        learner.step()
    progress.clear()
    last = settled(comm)
    nodes = comm.gather((last - second) - (second - first))
    planned = comm.gather(sum(exchange.nbytes for exchange in program.exchanges))
    program.free()
    if comm.rank:
        return {}
    found = explain(case.plan, case.mesh)
    return {
        "crossed": [nbytes / steps for nbytes in nodes],
        "planned": planned,
        "explained": found["bytes"],
        "collectives": found["collectives"],
    }


def settled(comm) -> int:
    """`sent`, after all ranks are here and all messages have ended."""
    comm.Barrier()
    time.sleep(SETTLED_S)
    found = sent()
    comm.Barrier()
    return found


def sent() -> int:
    """Bytes that have left this node, without headers: the sum over all interfaces except the loopback."""
    total = 0
    for line in Path("/proc/self/net/dev").read_text().splitlines()[2:]:
        name, _, numbers = line.partition(":")
        if name.strip() != "lo":
            nbytes, packets = (int(numbers.split()[k]) for k in (8, 9))
            total += nbytes - HEADERS * packets
    return total


MEASURED = {"times": times, "waits": waits, "early": early, "ring": ring, "bytes": crossed}


def main() -> None:
    """Measures on all ranks."""
    keep_freed_memory()
    parser = argparse.ArgumentParser(prog="python -m benchmarks.apps.partition_steps", description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)  # fmt: skip
    parser.add_argument("what", choices=MEASURED)
    for name in ("model", "sizes", "carriers", "mesh"):
        parser.add_argument(name, metavar=name.upper())
    parser.add_argument("number", type=int, metavar="NUMBER", help="number of rounds, or of steps")
    add_quiet(parser)
    asked = parser.parse_args()
    case = Case(MPI.COMM_WORLD, asked.model, asked.sizes, asked.carriers, asked.mesh)
    found = MEASURED[asked.what](case, asked.number, asked.quiet or case.comm.rank > 0)
    if case.comm.rank == 0:
        print(json.dumps(found))


if __name__ == "__main__":
    main()
