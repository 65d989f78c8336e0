"""The main program of all applications, from the command line to the exit code."""

from __future__ import annotations

import contextlib
import sys
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from importlib import import_module
from importlib.util import find_spec
from typing import Any

from kernels import environment as floating_point
from kernels.commands.entry import command_line
from kernels.missing import not_installed
from miniapps.errors import RunError, UsageError
from miniapps.runner import console, outcome, together
from miniapps.runner.chained import Heads
from miniapps.runner.context import Context, keeps_environment
from miniapps.runner.failure import BAD_USAGE, DONE, FAILED, NOT_VERIFIED, USAGE, State, fail
from miniapps.runner.faults import Targets
from miniapps.runner.launch import Launch, prepare
from miniapps.runner.options import RunOptions
from miniapps.runner.outcome import RESULT, Check, Outcome
from miniapps.runner.stall import Watchdog
from miniapps.system import environment, interrupts, kinds, peers
from miniapps.system.heap import HEAP, keep_freed_memory
from miniapps.system.place import Place, PlaceError
from miniapps.system.resources import Need
from miniapps.system.scope import OVER, flatten, holds_over
from miniapps.system.world import speaks, world
from miniapps.trace import Tracer
from miniapps.trace.chain import VERSION, problem_of
from miniapps.trace.clocks import Clocks
from miniapps.trace.node import pack_node
from miniapps.trace.schema import rank_file
from miniapps.untrusted.program import Program
from miniapps.untrusted.text import tell

__all__ = ["App", "Check", "Context", "Outcome", "RunError", "main"]


@dataclass(frozen=True)
class App:
    """One application: `run(ctx) -> Outcome` is called once per repeat on every rank.

    Rank 0 calls four optional functions before the run creates anything, in this order.
    `complete(config, options, size)` fills in options that the guarantee and the number of ranks decide, so that the
    recorded configuration is complete. `validate(config, options, size)` raises UsageError, ChoiceError or BlocksError
    for a configuration that cannot run. `targets(config, options, size)` returns the targets of injected faults;
    without it a fault is checked only when it strikes. `memory(config, options, size)` returns the memory that a rank
    needs. A fifth belongs to applications that serve the option `processor`: `follows(config, options)` returns what of
    a valid configuration follows the processor, with the remedy, or None; it is asked only under --processor any. A
    sixth, `priceable(config, options, size)`, returns what each rank does in a step, which `python -m analysis price`
    prices without a run, and the number of steps; it raises UsageError if there is no such plan. The package's module
    `run` provides `run`, and its module `validate` the others, unless they are given here.

    `package` holds the folder `decks`; `command` starts the application, by default `python -m PACKAGE`. `serves`: the
    options of `miniapps.runner.options.SERVED` that it supports. `first`: the option whose value is a first argument
    without a dash. `example`: arguments of the example in the help.
    """

    name: str
    config: type
    summary: str
    run: Callable[[Context], Outcome] | None = None
    validate: Callable[[Any, RunOptions, int], None] | None = None
    complete: Callable[[Any, RunOptions, int], None] | None = None
    memory: Callable[[Any, RunOptions, int], Need] | None = None
    targets: Callable[[Any, RunOptions, int], Targets] | None = None
    follows: Callable[[Any, RunOptions], str | None] | None = None
    priceable: Callable[[Any, RunOptions, int], tuple[Program, int]] | None = None
    package: str = ""
    command: str = ""
    serves: tuple[str, ...] = ()
    first: str = ""
    example: str = ""

    def __post_init__(self):
        object.__setattr__(self, "package", self.package or f"miniapps.{self.name}")
        object.__setattr__(self, "command", self.command or f"python -m {self.package}")

    def part(self, name: str) -> Callable[..., Any] | None:
        """The function `name` of the application, or None where it has none."""
        given = getattr(self, name)
        module = f"{self.package}.{'run' if name == 'run' else 'validate'}"
        if given is not None or find_spec(module) is None:
            return given
        return getattr(import_module(module), name, None)

    def fill_in(self, config: Any, options: RunOptions, size: int) -> None:
        """Call `complete`, if the application has one."""
        if complete := self.part("complete"):
            complete(config, options, size)


@command_line
def main(app: App, argv: list[str] | None = None, comm: Any = None) -> int:
    """Run `app` as the command line `argv` (default: sys.argv) asks, on `comm` (default: all ranks).

    Returns the exit code: 0 done; 1 failure; 2 usage or configuration; 3 done, but a check failed; 130 SIGINT;
    143 SIGTERM. With several ranks, a failure of any of them ends the whole job through MPI_Abort and does not
    return.
    """
    argv = sys.argv[1:] if argv is None else argv
    if app.first and argv and not argv[0].startswith("-"):
        argv = [app.first, *argv]
    try:
        comm = world() if comm is None else comm
    except UsageError as error:
        if speaks():
            tell(f"{app.name}: {error}", sys.stderr)
        return BAD_USAGE
    state = State()
    try:
        with interrupts.raising():
            code, state.launch = _agree(app, argv, comm)
            if state.launch is None:
                return code
            with Watchdog(state.launch.options.stall, app.name, comm, state):
                return _in_environment(app, comm, state, state.launch)
    except BaseException as error:
        return fail(error, app.name, comm, state)


def _agree(app: App, argv: list[str], comm: Any) -> tuple[int, Launch | None]:
    """Returns (exit code, launch or None), the same on all ranks; rank 0 prints usage errors."""
    answer: tuple[int, Launch | None] | None = None
    if comm.rank == 0:
        try:
            answer = (DONE, prepare(app, argv, comm.size))
        except USAGE as error:
            tell(f"{app.name}: {error}", sys.stderr)
            answer = (BAD_USAGE, None)
        except ModuleNotFoundError as error:
            if (sentence := not_installed(error)) is None:
                raise
            tell(f"{app.name}: {sentence}", sys.stderr)
            answer = (BAD_USAGE, None)
        except SystemExit as end:  # --help, --version
            sys.stdout.flush()
            answer = (int(end.code or DONE), None)
    return comm.bcast(answer, root=0)


def _in_environment(app: App, comm: Any, state: State, launch: Launch) -> int:
    """Run the launch; under a guarantee in the default floating-point environment, even if a loaded library set
    another."""
    run = floating_point.guarded(_run) if keeps_environment(launch.options) else _run
    return run(app, comm, state, launch)


def _run(app: App, comm: Any, state: State, launch: Launch) -> int:
    """Set up, run the repeats, agree on the checks, and write the result."""
    options, rank = launch.options, comm.rank
    state.place = place = together.open_place(comm, launch.out)
    log_file = launch.out / f"rank-{rank:05d}.log" if options.log_all_ranks else None
    try:
        log = console.logger(app.name, rank, options.log_level, log_file)
    except OSError as error:
        message = f"the log {log_file} cannot be created: {error.strerror}"
        raise PlaceError(f"{message}; choose a new directory, with room (--out DIR)") from error
    ranks = "1 rank" if comm.size == 1 else f"{comm.size} ranks"
    log.info("%s, guarantee %s, run %s", ranks, options.guarantee, launch.out)
    if launch.chosen:
        log.info("chosen here: %s", ", ".join(f"{key}={value}" for key, value in launch.chosen.items()))
    environment.set_threads(options.threads)
    kept = keep_freed_memory()
    apart = _kinds(app, comm, launch, log)
    clocks = Clocks(comm)
    state.peers = peers.peers_of(clocks.node, rank)
    device = "cpu" if options.device == "cpu" else environment.cuda_device(clocks.node.rank)
    offset, _ = clocks.offset()
    own = launch.environment | environment.own(options.threads, device) | kinds.recorded(apart) | {HEAP: kept}
    attributes = launch.attributes() | {
        "rank": rank,
        "environment": own,
        "clock_offset_ns": offset,
        "chain": VERSION,
    }
    state.ctx = ctx = Context(
        comm=comm,
        config=launch.config,
        options=options,
        tracer=Tracer(
            launch.out / rank_file(rank),
            attributes,
            size=comm.size,
            level=options.trace,
            directory=place,
            hashed=options.fingerprint,
        ),
        log=log,
        out=launch.out,
        attributes=attributes,
        faults=launch.faults,
        replay=launch.replay,
        progress=console.progress(app.name, rank, options.progress, options.repeats),
        place=place,
    )
    problem = problem_of(app.name, launch.problem_options, options.fingerprint)
    ctx.heads = Heads(comm, ctx.tracer, problem, options.repeats > 1, ctx.progress.clear)
    outcomes = state.outcomes
    begin, begin_cpu = time.perf_counter(), time.thread_time()
    run = app.part("run")
    if run is None:
        raise TypeError(f"{app.package}: an application needs a function run(ctx)")
    for repeat in range(options.repeats):
        ctx.begin_repeat(repeat)
        state.outcomes.append(run(ctx))
        ctx.end_repeat(state.outcomes[-1].fingerprint)
        if repeat == 0:  # the application has loaded all of its libraries by now
            ctx.tracer.attributes(environment=own | {"arithmetic": environment.arithmetic()})
    wall, cpu = time.perf_counter() - begin, time.thread_time() - begin_cpu
    ctx.progress.clear()
    later, _ = clocks.offset()
    checks = comm.bcast(outcome.all_checks(outcomes, options.guarantee), root=0)
    code = DONE if all(check["passed"] for check in checks) else NOT_VERIFIED
    result: dict[str, Any] = {}
    if rank == 0:
        result = launch.result("done", code) | {
            "fom": outcome.figures(outcomes),
            "checks": checks,
            "fingerprints": [repeat.fingerprint for repeat in outcomes],
            "sentences": outcome.sentences(outcomes),
            "holds_over": "" if apart else holds_over(flatten(own), options.guarantee),
            "chain": [asdict(mark) for mark in ctx.heads.marks],
            "reductions": ctx.reductions,
            "kinds": [kind.json() for kind in apart],
            "wall_s": wall,
            "cpu_s": cpu,  # of this thread of rank 0
        }
    lost, seals = together.close_trace(comm, ctx.tracer, (later - offset) / wall, result)
    if options.trace_files == "node" and not lost:
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
        result["traces"] = {name: seal for own in seals for name, seal in own.items()}
        code = _conclude(app, place, result, lost)
    console.close(log)
    place.close()
    return comm.bcast(code, root=0)  # a rank that ends may end the job, so all wait for rank 0's output


def _kinds(app: App, comm: Any, launch: Launch, log: Any) -> tuple[kinds.Kind, ...]:
    """The kinds of the ranks, empty if all are equal; rank 0 tells them before anything computes. Collective."""
    stated = {key: value for key, value in launch.environment.items() if key == OVER}
    guarantee = launch.options.guarantee
    apart = kinds.of_ranks(comm, kinds.here() | stated, guarantee)
    if apart and comm.rank == 0:
        promised = guarantee != "none"
        promise = f"--guarantee {guarantee} promises nothing for them" if promised else ""
        instead = ("--processor any",) if promised and "processor" in app.serves else ()
        log.warning("%s", kinds.sentence(apart, promise, instead))
    return apart


def _conclude(app: App, place: Place, result: dict[str, Any], lost: tuple[int, str] | None) -> int:
    """Write result.json and print the results, and the reason where traces are `lost`. Returns the exit code."""
    if lost is None and (trouble := place.trouble()):
        lost = 0, trouble
    if lost is None:
        try:
            outcome.write(place, result)
        except OSError as error:
            remedy = "start the run again in a directory of its own, with room (--out DIR)"
            lost = 0, f"{place.path / RESULT} cannot be written: {error.strerror}; {remedy}"
    if lost is not None:
        rank, trouble = lost
        message = f"{app.name}: rank {rank} of {result['size']}: {trouble}"
        result |= {"status": "failed", "exit_code": FAILED, "error": message, "failed_rank": rank}
        with contextlib.suppress(OSError):  # this write itself may have failed
            outcome.write(place, result)
    for line in outcome.lines(result):
        tell(line)
    if lost is not None:
        tell(f"{message}\n  results: on standard output, since the run finished", sys.stderr, keep="\n")
    return result["exit_code"]
