"""Runs of a small made-up application, written by the real tracer, in which every bit is known.

The state is `blocks` blocks of 8 float64, a pure function of the step, so that runs on any number of ranks
agree unless a test changes it: `change(repeat, step, field)` may write into `field` (blocks, 8) before it is
recorded.
"""

from unittest import mock

import numpy as np

from miniapps.trace import Tracer, fingerprint, trace_files
from miniapps.trace.schema import COLLECTIVE, COMPUTE, EXCHANGE, WAIT, rank_file
from miniapps.untrusted.result import written
from miniapps.untrusted.sealed import sealed
from tests.analysis.stated import AROUND, options

BLOCKS = 12
STEPS = 6
METHOD = {"run.device": "cpu", "run.threads": 1, "run.shuffle_blocks": 0, "run.fault": []}
CONFIG = {"run": {"seed": 1, "out": None}, "grid": {"n": 128}}
NAMES = ("vorticity", "streamfunction")
MS = 1_000_000


def field_at(step, blocks=BLOCKS):
    """The unchanged state after `step`: float64 (blocks, 8)."""
    base = np.random.default_rng(7).normal(size=(blocks, 8))
    return np.sin(base * (1 + 0.1 * step))


def flip_bit(field, block, element=0, bit=0):
    """Flip one bit of one float64, in place."""
    field[block].view(np.uint64)[element] ^= np.uint64(1 << bit)


def owners(blocks, size, shuffle=0):
    """The rank that owns each block: contiguous pieces, or dealt by the seed `shuffle`."""
    owner = np.arange(blocks) * size // blocks
    return np.random.default_rng(shuffle).permutation(owner) if shuffle else owner


def attributes(rank, size, guarantee, ordering, **more):
    """Attributes of the root group as miniapps.runner.main writes them."""
    known = {
        "app": "coupled", "problem": "p0", "config": CONFIG, "rank": rank, "guarantee": guarantee,
        "seed": 1, "repeats": 1, "allocation_id": "",
        "started": "2026-01-01T00:00:00+00:00",
        "method": METHOD | {"run.guarantee": guarantee}, "reductions": reductions(ordering, guarantee),
        "environment": {"mpi": "MPICH 4.3", "node": "n1", "variables": {}},
    }  # fmt: skip
    known |= more
    return {"options": options(known["method"], known["config"])} | known


def reductions(ordering, guarantee):
    """What a run states of its reductions that adds by `ordering`, or by several with a comma between them."""
    named = zip(("scalars", "vectors"), ordering.split(","), strict=False)
    return {
        name: {"ordering": each, "region": f"allreduce.{name}", "guarantee": guarantee}
        for name, each in named
    }


def region(tracer, name, halo=EXCHANGE):
    """The number of a region, of the kind that it had in the applications when names told kinds."""
    if name.startswith("allreduce."):
        return tracer.name(name, COLLECTIVE)
    if name == "halo":
        return tracer.name(name, halo)
    return tracer.name(name, AROUND.get(name, COMPUTE))


def write_run(
    out, size=2, guarantee="none", ordering="arrival", *, blocks=BLOCKS, steps=STEPS, first_step=0, repeats=1,
    change=None, orders=None, choices=None, method=None, shuffle=0, complete=True, stop=None, result=True,
    names=NAMES, stated=None, decisions=None, **more,
):  # fmt: skip
    """Write a run into the new directory `out` and return it.

    `orders(repeat, step)` gives the arrival orders of that step, `choices(repeat, step)` what it chose from a clock;
    `decisions(repeat, step)` gives (name, block, outcome, margin) of the decisions of that step;
    `stop` {rank: steps it recorded, over all repeats} makes ranks end early, without marking their trace complete;
    `stated`: what the trace of rank 0 says of result.json; `more` replaces attributes.
    """
    out.mkdir(parents=True)
    more = {"run_id": str(out), "repeats": repeats, **more}
    if method:
        more["method"] = METHOD | {"run.guarantee": guarantee, "run.shuffle_blocks": shuffle} | method
    owner = owners(blocks, size, shuffle)
    states = []
    tracers = [
        Tracer(out / rank_file(rank), attributes(rank, size, guarantee, ordering, **more), size=size)
        for rank in range(size)
    ]
    for repeat in range(repeats):
        for step in range(first_step, steps):
            field = field_at(step, blocks)
            if change:
                change(repeat, step, field)
            for rank, tracer in enumerate(tracers):
                if stop and repeat * (steps - first_step) + step - first_step >= stop.get(rank, 10**9):
                    continue
                tracer.at(repeat, step)
                begin = tracer.clock()
                record(tracer, np.flatnonzero(owner == rank), field, names)
                if rank == 0:
                    tracer.value("energy", float((field**2).sum()))
                    if orders:
                        tracer.order("scalars", orders(repeat, step))
                    for name, block, outcome, margin in decisions(repeat, step) if decisions else ():
                        tracer.decision(name, outcome, margin, block)
                    if choices:
                        tracer.choice("wire", -1, choices(repeat, step), 0.5)
                tracer.usage("cpu_time", step, 0.1 * rank + step)
                tracer.event(region(tracer, "step"), begin)
        states.append(fingerprint(field).hex())
    if stated:
        tracers[0].attributes(result=stated)
    for rank, tracer in enumerate(tracers):
        tracer.close(complete=complete and not (stop and rank in stop))
    if result and complete and not stop:  # a run that is killed writes none
        write_result(out, fingerprints=states)
    return out


def record(tracer, own, field, names=NAMES):
    """Fingerprints of the blocks `own` under the given names, and one value of each."""
    for scale, name in enumerate(names, start=1):
        for block in own:
            tracer.array(name, int(block), field[block] * scale)
    tracer.values("sample", own, field[own, 0])


def write_result(out, **content):
    """result.json as miniapps.runner.main writes it."""
    traces = {path.name: sealed(path.read_bytes(), path.name) for path in trace_files(out)}
    failed = any(not check["passed"] for check in content.get("checks", []))
    known = {"status": "done", "exit_code": 3 * failed, "checks": [], "fingerprints": [], "traces": traces}
    known["exit_code"] += content.get("status") == "failed"
    (out / "result.json").write_text(written(known | content))


class Clock:
    """Stands for time.perf_counter_ns: time passes when told to."""

    def __init__(self):
        self.now = 10**9

    def __call__(self):
        return self.now

    def spend(self, milliseconds):
        """Let time pass."""
        self.now += round(milliseconds * MS)


def write_timed(out, regions, size=2, guarantee="none", ordering="arrival", steps=1, sizes=None, **more):
    """A run whose regions take known times: `regions(rank, step)` is a list of (name, own milliseconds,
    inner), with `inner` a list of the same kind that happens inside it, before its own time is spent; `sizes`
    {name: bytes that it sends}."""
    out.mkdir(parents=True)

    halo = WAIT if "'spmv'" in str([regions(rank, 0) for rank in range(size)]) else EXCHANGE

    def spend(tracer, clock, tree):
        for name, milliseconds, inner in tree:
            begin = clock.now
            spend(tracer, clock, inner)
            clock.spend(milliseconds)
            tracer.event(region(tracer, name, halo), begin, (sizes or {}).get(name, 0))

    for rank in range(size):
        clock = Clock()
        with mock.patch("time.perf_counter_ns", clock):
            given = attributes(rank, size, guarantee, ordering, **{"run_id": str(out), **more})
            tracer = Tracer(out / rank_file(rank), given, size=size)
            for step in range(steps):
                tracer.at(0, step)
                spend(tracer, clock, regions(rank, step))
            tracer.close()
    return out
