"""The one entry of all applications: configuration, communicator, repeats, abort, figures of merit and exit
code."""

from __future__ import annotations

import contextlib
import os
import secrets
import signal
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from kernels.guarantees import ChoiceError
from miniapps import commandline, config, console, environment, faults, outcome
from miniapps.blocks import BlocksError
from miniapps.context import Context
from miniapps.options import Common, RunOptions, ordering_for
from miniapps.outcome import Check, Outcome, RunError
from miniapps.trace import TraceError, Tracer, rank_files, read
from miniapps.trace.clocks import Clocks
from miniapps.trace.schema import rank_file

__all__ = ["App", "Check", "Context", "Outcome", "RunError", "main"]

USAGE = (config.UsageError, ChoiceError, BlocksError)
DONE, FAILED, BAD_USAGE, NOT_VERIFIED, INTERRUPTED, TERMINATED = 0, 1, 2, 3, 130, 143
PATIENCE_S = 10.0  # how long a rank that failed second waits for the first one's message and abort


class Terminated(BaseException):
    """SIGTERM arrived: a batch system's time limit, or a person."""


@dataclass(frozen=True)
class App:
    """One application: `run(ctx) -> Outcome` is called once per repeat on every rank.

    `validate(config, options, size)` is called on rank 0 before anything is created and raises UsageError or
    ChoiceError for what cannot be run; `package` holds the folder `decks` and is what `python -m` is given.
    """

    name: str
    config: type
    run: Callable[[Context], Outcome]
    summary: str
    validate: Callable[[Any, RunOptions, int], None] | None = None
    package: str = ""

    def __post_init__(self):
        object.__setattr__(self, "package", self.package or f"miniapps.{self.name}")


@dataclass
class Launch:
    """What rank 0 made of the command line, the same on all ranks."""

    options: RunOptions
    config: Any
    effective: dict[str, Any]
    problem: str
    method: dict[str, Any]
    out: Path
    run_id: str
    started: str
    environment: dict[str, Any]
    faults: list[faults.Fault]
    replay: dict[tuple[str, int], Any] | None


def main(app: App, argv: list[str] | None = None, comm: Any = None) -> int:
    """Run `app` as the command line `argv` says, on all ranks of `comm` (default: sys.argv, the world); the
    exit code.

    0 done; 1 failure; 2 usage or configuration; 3 done, but a check failed. With several ranks, a failure of
    any of them ends the whole job through MPI_Abort with codes 1, 130 (SIGINT) or 143 (SIGTERM) and does not
    return.
    """
    from mpi4py import MPI

    comm = MPI.COMM_WORLD if comm is None else comm
    argv = sys.argv[1:] if argv is None else argv
    if message := _foreign_launcher(comm.size):
        if environment.launched_size()[1] == 0:
            print(f"{app.name}: {message}", file=sys.stderr, flush=True)
        else:
            time.sleep(1)  # the launcher may end the job as soon as one process ends: let rank 0 speak first
        return BAD_USAGE
    state: dict[str, Any] = {"app": app, "comm": comm}
    try:
        with _signals():
            code, launch = _agree(comm, app, lambda: _prepare(app, argv, comm.size))
            return code if launch is None else _run(app, comm, launch, state)
    except BaseException as error:
        return _fail(error, **state)


def _prepare(app: App, argv: list[str], size: int) -> Launch | None:
    """Rank 0: parse, check, create the directory of the run. None where the listing was all that was
    wanted."""
    options, own, listing = commandline.parse(app, argv, os.environ)
    if listing:
        from miniapps.listing import listing as text

        print(text(app, options, own), flush=True)
        return None
    from kernels import allreduce

    for ordering in {ordering_for(options, elements) for elements in (1, 1 << 20)}:
        allreduce.check(ordering, options.guarantee)
    struck = [faults.parse(spec, size, options.repeats) for spec in options.fault]
    if app.validate:
        app.validate(own, options, size)
    known = commandline.known_options(app)
    effective = config.effective(Common(options), own)
    problem = config.problem_hash(app.name, config.of_role(known, effective, "problem"))
    replay = _replay(options, app.name, problem, size)
    if options.device == "cuda" and (reason := environment.no_cuda()):
        raise config.UsageError(f"--device cuda: {reason}; or compute with --device cpu")
    now = datetime.now(UTC)
    run_id = f"{app.name}-{now:%Y%m%dT%H%M%SZ}-{secrets.token_hex(2)}"
    method = config.of_role(known, effective, "method")
    method["orderings"] = {"scalars": ordering_for(options, 1), "vectors": ordering_for(options, 1 << 20)}
    return Launch(
        options,
        own,
        effective,
        problem,
        method,
        _directory(Path(options.out or f"runs/{run_id}")),
        run_id,
        now.isoformat(timespec="milliseconds"),
        environment.shared(),
        struck,
        replay,
    )


def _run(app: App, comm: Any, launch: Launch, state: dict[str, Any]) -> int:
    """All ranks: set up, run the repeats, agree on the verdict, write it down."""
    options, rank = launch.options, comm.rank
    log_file = launch.out / f"rank-{rank:05d}.log" if options.log_all_ranks else None
    log = console.logger(app.name, rank, options.log_level, log_file)
    state |= {"launch": launch, "log": log}
    environment.set_threads(options.threads)
    clocks = Clocks(comm)
    device = "cpu" if options.device == "cpu" else environment.cuda_device(clocks.node.rank)
    offset, _ = clocks.offset()
    tracer = Tracer(
        launch.out / rank_file(rank),
        _attributes(app, comm, launch, offset, device),
        size=comm.size,
        level=options.trace,
    )
    bar = console.progress(rank, options.progress, options.repeats)
    ctx = Context(comm, launch.config, options, tracer, log, launch.out, 0, launch.faults, launch.replay, bar)
    state["ctx"] = ctx
    begin = time.perf_counter()
    outcomes = []
    for repeat in range(options.repeats):
        ctx.begin_repeat(repeat)
        outcomes.append(app.run(ctx))
        ctx.end_repeat()
    wall = time.perf_counter() - begin
    bar.clear()
    later, _ = clocks.offset()
    tracer.attributes(clock_drift=(later - offset) / max(wall, 1e-9))
    clocks.free()
    checks = comm.bcast(outcome.all_checks(outcomes, options.guarantee) if rank == 0 else None, root=0)
    code = DONE if all(check["passed"] for check in checks) else NOT_VERIFIED
    tracer.close(complete=True)
    if rank == 0:
        for fault in launch.faults:
            if fault.spec not in ctx.struck:
                log.warning("--fault %s never struck: the run has no such step", fault.spec)
        result = _result(app, comm, launch, "done", code) | {
            "fom": outcome.figures(outcomes),
            "checks": checks,
            "fingerprints": [o.fingerprint for o in outcomes],
            "orderings": ctx.orderings,
            "wall_s": wall,
        }
        outcome.write(launch.out, result)
        print("\n".join(outcome.lines(result)), flush=True)
    console.close(log)
    comm.Barrier()  # so that no rank ends, and makes the launcher end the job, before rank 0 has spoken
    return code


def _result(app: App, comm: Any, launch: Launch, status: str, code: int) -> dict[str, Any]:
    return {
        "app": app.name,
        "status": status,
        "exit_code": code,
        "run": str(launch.out),
        "run_id": launch.run_id,
        "started": launch.started,
        "size": comm.size,
        "guarantee": launch.options.guarantee,
        "problem": launch.problem,
        "config": launch.effective,
        "method": launch.method,
        "environment": launch.environment,
    }


def _attributes(app: App, comm: Any, launch: Launch, offset: float, device: str) -> dict[str, Any]:
    orderings = launch.method["orderings"]
    return {
        "app": app.name,
        "config": launch.effective,
        "problem": launch.problem,
        "method": launch.method,
        "environment": launch.environment | environment.own(launch.options.threads, device),
        "rank": comm.rank,
        "guarantee": launch.options.guarantee,
        "ordering": ",".join(dict.fromkeys(orderings.values())),
        "seed": launch.options.seed,
        "repeats": launch.options.repeats,
        "run_id": launch.run_id,
        "allocation_id": environment.allocation_id(),
        "started": launch.started,
        "clock_offset_ns": offset,
        "clock_drift": 0.0,
    }


def _agree(comm: Any, app: App, prepare: Callable[[], Launch | None]) -> tuple[int, Launch | None]:
    """(exit code, launch or None) on all ranks, from what `prepare` does on rank 0; bad usage is printed
    once."""
    answer = None
    if comm.rank == 0:
        try:
            answer = (DONE, prepare())
        except USAGE as error:
            print(f"{app.name}: {error}", file=sys.stderr, flush=True)
            answer = (BAD_USAGE, None)
        except SystemExit as end:  # --help
            sys.stdout.flush()
            answer = (end.code or DONE, None)
    return comm.bcast(answer, root=0)


def _directory(out: Path) -> Path:
    """Create the directory of the run; raises UsageError where it is used or cannot be created, touching
    nothing."""
    try:
        out.mkdir(parents=True, exist_ok=True)
        used = next(out.iterdir(), None)
    except OSError as error:
        raise config.UsageError(
            f"--out {out}: cannot be created: {error.strerror}; choose a directory on disk that you may "
            "write to"
        ) from error
    if used:
        raise config.UsageError(
            f"--out {out}: is in use ({used.name} is in it) and is left as it is; choose a new or an empty "
            "directory"
        )
    if not os.access(out, os.W_OK | os.X_OK):
        raise config.UsageError(f"--out {out}: may not be written to; choose another directory")
    return out


def _replay(options: RunOptions, app: str, problem: str, size: int) -> dict[tuple[str, int], Any] | None:
    """The recorded orders of the run to be replayed, uint16 (calls, size) by (reducer, repeat); raises
    UsageError where the run does not fit this one."""
    if options.replay is None:
        return None
    if options.allreduce not in (None, "arrival"):
        raise config.UsageError(
            "--replay repeats an order of arrival and cannot be combined with --allreduce "
            f"{options.allreduce}"
        )
    try:
        trace = read(rank_files(options.replay)[0], tables=["order"])
    except TraceError as error:
        raise config.UsageError(f"--replay {options.replay}: {error}") from error
    for what, theirs, ours in (
        ("application", trace.attributes["app"], app),
        ("number of ranks", trace.attributes["size"], size),
        ("problem (hash of its options)", trace.attributes["problem"], problem),
    ):
        if theirs != ours:
            raise config.UsageError(
                f"--replay {options.replay}: its {what} is {theirs}, here it is {ours}; orders can only be "
                "repeated "
                "with the same application, options and number of ranks"
            )
    order = trace.tables["order"]
    keys = {(int(n), int(r)) for n, r in zip(order["name"], order["repeat"], strict=True)}
    if not keys:
        raise config.UsageError(
            f"--replay {options.replay}: no orders in it; record them with --allreduce arrival"
        )
    return {
        (trace.names[n], r): order["ranks"][(order["name"] == n) & (order["repeat"] == r)]
        for n, r in sorted(keys)
    }


def _foreign_launcher(size: int) -> str | None:
    """What is wrong where the launcher started several processes and MPI sees each of them alone."""
    told = environment.launched_size()
    if told is None or told[0] <= 1 or size > 1:
        return None
    from mpi4py import MPI

    library = MPI.Get_library_version().strip("\0 \n").splitlines()[0]
    return (
        f"the launcher started {told[0]} processes, but each of them is alone in its MPI: mpirun belongs to "
        "another "
        f"MPI library than the one mpi4py uses here ({library}). Use the mpirun of that library (with the "
        "mpich wheel: "
        f"{Path(sys.executable).parent / 'mpirun'}), or point mpi4py to the launcher's library with "
        "MPI4PY_MPIABI and "
        "MPI4PY_LIBMPI. `python -m miniapps doctor` shows what is here."
    )


@contextlib.contextmanager
def _signals() -> Iterator[None]:
    """SIGTERM raises Terminated inside."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def terminate(number, frame):
        raise Terminated(f"signal {signal.Signals(number).name}")

    before = signal.signal(signal.SIGTERM, terminate)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def _fail(
    error: BaseException,
    app: App,
    comm: Any,
    launch: Launch | None = None,
    log: Any = None,
    ctx: Context | None = None,
) -> int:
    """One message, what can be saved, and the end of the whole job; returns only where this rank is alone."""
    with contextlib.suppress(ValueError):  # not the main thread
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    code = FAILED
    if isinstance(error, USAGE):
        code = BAD_USAGE
    elif isinstance(error, KeyboardInterrupt):
        code = INTERRUPTED
    elif isinstance(error, Terminated):
        code = TERMINATED
    where = f"rank {comm.rank} of {comm.size}"
    message = [f"{app.name}: {where}: {_describe(error)}"]
    first = True
    if ctx is not None:
        ctx.progress.clear()
        message[0] = (
            f"{app.name}: {where} failed in repeat {ctx.repeat}, step {ctx.tracer.step}: {_describe(error)}"
        )
        try:
            ctx.tracer.close(complete=False)
            message.append(f"  trace up to here: {ctx.tracer.path} (marked incomplete)")
        except TraceError:
            message.append(f"  trace up to its last flush: {ctx.tracer.path} (marked incomplete)")
    if launch is not None:
        result = _result(app, comm, launch, "failed", code) | {"error": message[0], "failed_rank": comm.rank}
        with contextlib.suppress(OSError):
            first = outcome.write(launch.out, result, comm.rank)
    message += _keep_traceback(error, launch, comm.rank)
    if first:
        print("\n".join(message), file=sys.stderr, flush=True)
    if comm.size == 1:
        return code
    if not first:
        time.sleep(PATIENCE_S)
    comm.Abort(code)
    os._exit(code)


def _describe(error: BaseException) -> str:
    if isinstance(error, (*USAGE, RunError, TraceError)):
        return str(error)
    return f"{type(error).__name__}: {error}" if str(error) else type(error).__name__


def _keep_traceback(error: BaseException, launch: Launch | None, rank: int) -> list[str]:
    """Write the traceback of an error that is not its own explanation to the run; lines for the message."""
    if isinstance(error, (*USAGE, RunError, TraceError, KeyboardInterrupt, Terminated)):
        return []
    text = "".join(traceback.format_exception(error))
    if launch is None or launch.options.log_level == "debug":
        return [text.rstrip()]
    path = launch.out / f"error-rank-{rank:05d}.txt"
    try:
        path.write_text(text, encoding="utf-8")
    except OSError:
        return [text.rstrip()]
    return [f"  traceback: {path}"]
