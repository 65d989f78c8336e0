"""Times tracing: two copies of one deck advance in lockstep in one run, one traced, one not.

    mpirun -n 4 python -m benchmarks.apps.tracing --deck M --steps 30 --json benchmarks/results/tracing.json

Both copies compute the same bits, so the difference in the time of a step is due to the trace alone: events, values,
fingerprints and writing. The copies alternate in going first. Also printed: nanoseconds per region, which every tracer
measures at its start.
"""

import argparse
import contextlib
import logging
import tempfile
import time
from pathlib import Path

from mpi4py import MPI

from benchmarks.harness.results import add_quiet, machine, report
from benchmarks.harness.turns import ratio
from miniapps.coupled import APP
from miniapps.coupled.model import Model
from miniapps.runner import config
from miniapps.runner.context import Context
from miniapps.runner.options import RunOptions
from miniapps.trace import Tracer


class Untraced:
    """A tracer that records nothing and hashes nothing."""

    clock = staticmethod(time.perf_counter_ns)

    def name(self, name, kind=""):
        """Any name is number 0."""
        return 0

    def _nothing(self, *arguments):
        return None

    def messages(self, name, sent):
        """A counter that is never read."""
        return {"calls": 0}

    at = event = value = values = fingerprint = fingerprints = order = usage = partners = reduction = _nothing


def main(argv=None) -> None:
    """Measures, and reports on rank 0. Collective."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.apps.tracing",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--deck", default="M", choices=("S", "M", "L"))
    parser.add_argument(
        "--steps", type=int, default=30, help="timed steps, after two untimed ones (default %(default)s)"
    )
    parser.add_argument("--json", help="write table and raw values to this file")
    add_quiet(parser)
    asked = parser.parse_args(argv)
    comm = MPI.COMM_WORLD
    with tempfile.TemporaryDirectory() as scratch, contextlib.ExitStack() as stack:
        path = Path(comm.bcast(scratch)) / f"rank-{comm.rank:05d}.h5"
        tracer = stack.enter_context(Tracer(path, {"rank": comm.rank}, size=comm.size))
        seconds = compare(comm, asked, {"traced": tracer, "untraced": Untraced()})
        per_region = max(comm.allgather(tracer.ns_per_event))
        comm.Barrier()  # the directory goes with rank 0
    if comm.rank == 0:
        rows = [
            {
                "what": "step traced / untraced",
                "figure": ratio(seconds["traced"], seconds["untraced"]),
                "raw": seconds,
            },
            {
                "what": "all steps traced / untraced",
                "figure": sum(seconds["traced"]) / sum(seconds["untraced"]),
                "raw": [],
            },
            {"what": "ns per region, slowest rank", "figure": float(per_region), "raw": []},
        ]
        report(f"tracing, deck {asked.deck}, {comm.size} ranks", rows, machine(), asked.json)


def compare(comm, asked, tracers) -> dict[str, list[float]]:
    """Seconds per step (slowest rank) of one model per tracer, advanced in turn."""
    models = {name: started(comm, asked.deck, tracer) for name, tracer in tracers.items()}
    names = list(models)
    seconds = {name: [] for name in names}
    for step in range(1, asked.steps + 3):
        for name in names if step % 2 else names[::-1]:
            model = models[name]
            comm.Barrier()
            begin = time.perf_counter()
            model.ctx.begin_step(step, asked.steps + 2, model.peek)
            model.advance(step)
            wall = comm.allreduce(time.perf_counter() - begin, op=MPI.MAX)
            if step > 2:
                seconds[name].append(wall)
    for model in models.values():
        model.free()
        model.ctx.end_repeat()
    return seconds


def started(comm, deck: str, tracer) -> Model:
    """A started model of the deck, as the application starts it under `--guarantee layout`."""
    known = config.options(APP.config)
    text = (Path(__file__).parent.parent / "miniapps" / "coupled" / "decks" / f"{deck}.toml").read_text()
    settings = config.build(APP.config, config.from_deck(known, text, deck))
    options = RunOptions(guarantee="layout")
    model = Model(Context(comm, settings, options, tracer, logging.getLogger(), Path(".")))
    model.start()
    model.measure()
    return model


if __name__ == "__main__":
    main()
