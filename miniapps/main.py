"""The one entry of all applications: from the command line to the exit code."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from miniapps import console, environment, interrupts, outcome
from miniapps.config import UsageError
from miniapps.context import Context
from miniapps.failure import BAD_USAGE, DONE, NOT_VERIFIED, USAGE, fail
from miniapps.launch import Launch, prepare
from miniapps.options import RunOptions
from miniapps.outcome import Check, Outcome, RunError
from miniapps.received.text import tell
from miniapps.trace import Tracer
from miniapps.trace.clocks import Clocks
from miniapps.trace.node import pack_node
from miniapps.trace.schema import rank_file
from miniapps.world import speaks, world

__all__ = ["App", "Check", "Context", "Outcome", "RunError", "main"]


@dataclass(frozen=True)
class App:
    """One application: `run(ctx) -> Outcome` is called once per repeat on every rank.

    `validate(config, options, size)` is called on rank 0 before anything is created and raises UsageError,
    ChoiceError or BlocksError for what cannot be run. `complete(config, size)`, before it, writes into the
    configuration what the number of ranks decides, so that the recorded one is complete. `package` holds the folder
    `decks` and is what `python -m` is given.
    """

    name: str
    config: type
    run: Callable[[Context], Outcome]
    summary: str
    validate: Callable[[Any, RunOptions, int], None] | None = None
    complete: Callable[[Any, int], None] | None = None
    package: str = ""

    def __post_init__(self):
        object.__setattr__(self, "package", self.package or f"miniapps.{self.name}")


@dataclass
class _State:
    """How far this rank has come: what a failure can still speak of."""

    launch: Launch | None = None
    ctx: Context | None = None


def main(app: App, argv: list[str] | None = None, comm: Any = None) -> int:
    """Run `app` as the command line `argv` (default: sys.argv) asks, on `comm` (default: all ranks).

    Returns the exit code: 0 done; 1 failure; 2 usage or configuration; 3 done, but a check failed; 130 SIGINT;
    143 SIGTERM. With several ranks, a failure of any of them ends the whole job through MPI_Abort and does not
    return.
    """
    argv = sys.argv[1:] if argv is None else argv
    try:
        comm = world() if comm is None else comm
    except UsageError as error:
        if speaks():
            tell(f"{app.name}: {error}", sys.stderr)
        return BAD_USAGE
    state = _State()
    try:
        with interrupts.raising():
            code, state.launch = _agree(app, argv, comm)
            return code if state.launch is None else _run(app, comm, state)
    except BaseException as error:
        return fail(error, app.name, comm, state.launch, state.ctx)


def _agree(app: App, argv: list[str], comm: Any) -> tuple[int, Launch | None]:
    """(exit code, launch or None), the same on all ranks; bad usage is printed once."""
    answer = None
    if comm.rank == 0:
        try:
            answer = (DONE, prepare(app, argv, comm.size))
        except USAGE as error:
            tell(f"{app.name}: {error}", sys.stderr)
            answer = (BAD_USAGE, None)
        except SystemExit as end:  # --help
            sys.stdout.flush()
            answer = (end.code or DONE, None)
    return comm.bcast(answer, root=0)


def _run(app: App, comm: Any, state: _State) -> int:
    """Set up, run the repeats, agree on the verdict, and write it down."""
    launch, options, rank = state.launch, state.launch.options, comm.rank
    log_file = launch.out / f"rank-{rank:05d}.log" if options.log_all_ranks else None
    log = console.logger(app.name, rank, options.log_level, log_file)
    ranks = "1 rank" if comm.size == 1 else f"{comm.size} ranks"
    log.info("%s, guarantee %s, run %s", ranks, options.guarantee, launch.out)
    environment.set_threads(options.threads)
    clocks = Clocks(comm)
    device = "cpu" if options.device == "cpu" else environment.cuda_device(clocks.node.rank)
    offset, _ = clocks.offset()
    own = launch.environment | environment.own(options.threads, device)
    attributes = launch.attributes() | {"rank": rank, "environment": own, "clock_offset_ns": offset}
    state.ctx = ctx = Context(
        comm=comm,
        config=launch.config,
        options=options,
        tracer=Tracer(launch.out / rank_file(rank), attributes, size=comm.size, level=options.trace),
        log=log,
        out=launch.out,
        faults=launch.faults,
        replay=launch.replay,
        progress=console.progress(rank, options.progress, options.repeats),
    )
    outcomes = []
    begin = time.perf_counter()
    for repeat in range(options.repeats):
        ctx.begin_repeat(repeat)
        outcomes.append(app.run(ctx))
        ctx.end_repeat()
        if repeat == 0:  # by now all libraries that it needs are loaded
            ctx.tracer.attributes(environment=own | {"arithmetic": environment.arithmetic()})
    wall = time.perf_counter() - begin
    ctx.progress.clear()
    later, _ = clocks.offset()
    checks = comm.bcast(outcome.all_checks(outcomes, options.guarantee), root=0)
    code = DONE if all(check["passed"] for check in checks) else NOT_VERIFIED
    ctx.tracer.attributes(clock_drift=(later - offset) / wall)
    seals = {rank_file(rank): ctx.tracer.close(complete=True)}
    if options.trace_files == "node":
        seals, trouble = pack_node(launch.out, clocks.node, rank, seals)
        if trouble:
            log.warning("%s", trouble)
    seals = comm.gather(seals)
    clocks.free()
    struck = set().union(*comm.allgather(ctx.struck)) if launch.faults else ()
    if rank == 0:
        for fault in launch.faults:
            if fault.spec not in struck:
                log.warning("--fault %s never struck: %s", fault.spec, fault.nowhere)
        result = launch.result("done", code) | {
            "fom": outcome.figures(outcomes),
            "checks": checks,
            "fingerprints": [repeat.fingerprint for repeat in outcomes],
            "reducers": ctx.orderings,
            "traces": {name: seal for own in seals for name, seal in own.items()},
            "wall_s": wall,
        }
        outcome.write(launch.out, result)
        for line in outcome.lines(result):
            tell(line)
    console.close(log)
    comm.Barrier()  # no rank ends, which may end the job, before rank 0 has spoken
    return code
