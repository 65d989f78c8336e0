"""One calibration: rounds over all cases, each round followed by windows of noise, until the time is up."""

from __future__ import annotations

import time

import numpy as np

from miniapps.calibrate.bandwidth import memory_cases
from miniapps.calibrate.cases import Case
from miniapps.calibrate.collectives import collective_cases
from miniapps.calibrate.config import WHAT
from miniapps.calibrate.kernels import kernel_cases
from miniapps.calibrate.noise import WINDOW_S, Quiet, record_quantum, windows
from miniapps.calibrate.sharing import sharing_cases
from miniapps.runner.outcome import Check, Outcome
from miniapps.trace.schema import OTHER

# Seconds for the calls of a case in one round, and for those with what a rank does between them.
SAMPLE_S, PREPARED_S = 0.004, 0.012
CALLS = (3, 200)
TRIES = 3  # calls by which their number is chosen
NOISE_S = 1.0  # seconds of noise windows in one round
NOISE_SHARE = 0.25  # the largest share of the budget for the noise windows of one round
MOST_ROUNDS = 1000
# To wait for processors that nothing else uses: share of the time, seconds at once.
WAITING, PATIENCE_S = 0.5, 1.0
NOISE = "noise"  # the value of a window, in the step of its number


def run(ctx) -> Outcome:
    """Measure the groups of cases in `calibrate.what` for `calibrate.budget` seconds; collective."""
    options = ctx.config.calibrate
    what = options.what or WHAT
    makers = {"kernels": kernel_cases, "collectives": collective_cases, "memory": memory_cases}
    if "programs" in what and options.plans:
        from miniapps.calibrate.programs import program_cases

        makers["programs"] = program_cases
    cases = [case for name, make in makers.items() if name in what for case in make(ctx)]
    if "noise" in what:
        cases += sharing_cases(ctx)
    most = max((case.visits for case in cases), default=1)
    visits = [k for visit in range(most) for k, case in enumerate(cases) if visit < case.visits]
    begin, rounds, steps, noisy = time.perf_counter(), 0, 1, 0
    shares: list[np.ndarray] = []
    calls: dict[int, int] = {}
    quiet = Quiet(ctx.comm)
    while True:
        for number, k in enumerate(visits):
            if rounds == 0:  # the number of rounds is not known yet
                spent = (time.perf_counter() - begin) / max(number, 1) * (len(visits) + 1)
                steps = int(np.clip(options.budget / max(spent, 1e-9), 1, MOST_ROUNDS)) * (len(visits) + 1)
            ctx.begin_step(_step(rounds, number, len(visits)), steps, what="case")
            if k not in calls:
                calls[k] = _calls(ctx, cases[k])
            quiet.wait(min(PATIENCE_S, WAITING * (time.perf_counter() - begin) - quiet.waited))
            measure(ctx, cases[k], calls[k])
        if "noise" in what:
            ctx.begin_step(_step(rounds, len(visits), len(visits)), steps, what="case")
            shares.append(_noise(ctx, noisy))
            noisy += len(shares[-1])
        rounds += 1
        each = (time.perf_counter() - begin) / rounds
        # The number of whole rounds that fit into the budget, estimated again after every round, since rounds take
        # longer if the machine becomes busy. Rank 0 decides for all.
        wanted = ctx.comm.bcast(min(MOST_ROUNDS, int(options.budget / each)))
        steps = max(rounds, wanted) * (len(visits) + 1)
        if rounds >= wanted:
            break
    ctx.end_steps(steps + 1)
    for case in cases:
        case.free()
    return _outcome(ctx, len(cases), rounds, shares, quiet)


def _step(rounds: int, number: int, visits: int) -> int:
    """The number of a step over all rounds; the windows of noise are the last step of each round."""
    return rounds * (visits + 1) + number + 1


def _calls(ctx, case: Case) -> int:
    """The number of calls of a case in each visit, the same on all ranks; also warms up. It follows from the shortest
    of some calls: another process may delay any one. A case that records itself makes its own calls."""
    case.call()
    if case.record is not None:
        return 1
    taken = []
    for _ in range(TRIES):
        begin = time.perf_counter()
        if case.prepare is not None:
            case.prepare()
        case.call()
        taken.append(time.perf_counter() - begin)
    sample = SAMPLE_S if case.prepare is None else PREPARED_S
    return ctx.comm.bcast(int(np.clip(sample / case.visits / max(min(taken), 1e-7), *CALLS)))


def measure(ctx, case: Case, calls: int) -> None:
    """Time `calls` calls of a case, between two quanta. Records an event per call, and the case's parameters and CPU
    time per call as values of the step."""
    record_quantum(ctx.tracer)
    if case.record is not None:
        case.record(ctx.tracer)
    else:
        _time(ctx, case, calls)
    record_quantum(ctx.tracer)


def _time(ctx, case: Case, calls: int) -> None:
    tracer = ctx.tracer
    clock, event = tracer.clock, tracer.event
    for name, value in case.values.items():
        tracer.value(name, value)
    if case.partners:
        tracer.partners(case.region, case.partners)
    region = tracer.name(case.region, case.kind) if not case.traced else 0
    call, flops, nbytes = case.call, case.flops, case.nbytes
    if case.traced or case.partners or case.together:
        ctx.comm.Barrier()
    prepared, before = 0.0, time.thread_time()
    for _ in range(calls):
        if case.prepare is not None:
            at = time.thread_time()
            case.prepare()
            if case.together:
                ctx.comm.Barrier()
            prepared += time.thread_time() - at
        if case.traced:
            call()
        else:
            start = clock()
            call()
            event(region, start, nbytes, flops)
    tracer.value("cpu", (time.thread_time() - before - prepared) / calls)


def _noise(ctx, first: int) -> np.ndarray:
    start = ctx.tracer.clock()
    ctx.comm.Barrier()
    shares = windows(ctx.comm, min(NOISE_S, max(10 * WINDOW_S, NOISE_SHARE * ctx.config.calibrate.budget)))
    ctx.tracer.event(ctx.tracer.name("noise", OTHER), start)
    ctx.tracer.series(NOISE, first, shares)
    return shares


def _outcome(ctx, cases: int, rounds: int, shares: list[np.ndarray], quiet: Quiet) -> Outcome:
    figures = {"cases": (float(cases), ""), "rounds": (float(rounds), "")}
    if shares:
        got = float(np.mean(np.concatenate(shares)))
        figures["processor"] = (float(np.mean(ctx.comm.allgather(got))), "share of a rank")
    if quiet.waits:
        figures["undisturbed"] = (quiet.at_once / quiet.waits, "share of the cases at once")
    measured = Check("measured", cases > 0 or bool(shares), "nothing was measured; see --what")
    return Outcome(figures, [measured])
