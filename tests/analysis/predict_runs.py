"""Runs of known times per step, the predictions of them, and ledgers that hold these."""

from unittest import mock

from analysis.predict.reading.measured import hash_of_run
from analysis.predict.scoring.ledger import append
from miniapps.trace import Tracer
from miniapps.trace.schema import COLLECTIVE, COMPUTE, OTHER, rank_file
from miniapps.untrusted.ledger import read_ledger
from miniapps.untrusted.prediction import Prediction, method_hash
from tests.analysis.synthetic import Clock, attributes, write_result

STEPS = 4
SPREAD = (0.9, 0.92, 0.96, 1.0, 1.04, 1.08, 1.1)  # quantiles over their median


def write_steps(out, ms, size=1, ledger=None, steps=STEPS, jump=None, guarantee="none", zeroth=False, **more):
    """A run whose repeats take `ms` per step each, a list, a fifth of it in an all-reduce; before the first step a
    set-up of one second. `ledger`: the file that it is started with. In repeat 0, step `jump`, its clock goes
    back by half a step. `zeroth`: the run begins a step 0, too, after the set-up."""
    out.mkdir(parents=True)
    known = {"run_id": str(out), "repeats": len(ms), **more}
    if ledger is not None:
        held = read_ledger(ledger)
        known["ledger"] = {"rows": len(held.rows), "head": held.head}
    for rank in range(size):
        clock = Clock()
        with mock.patch("time.perf_counter_ns", clock):
            tracer = Tracer(
                out / rank_file(rank), attributes(rank, size, guarantee, "ring", **known), size=size
            )
            names = [tracer.name(*each) for each in (("work", COMPUTE), ("sum", COLLECTIVE), ("step", OTHER))]
            for repeat, per_step in enumerate(ms):
                tracer.at(repeat, 0)
                _spend(tracer, clock, names[0], 1000)
                for name in ("cpu_time", "cpu") if zeroth else ():
                    tracer.usage(name, 0, 1e-4 * per_step)
                for step in range(1, steps + 1):
                    tracer.at(repeat, step)
                    begin = clock.now
                    _spend(tracer, clock, names[0], 0.8 * per_step)
                    if (repeat, step) == (0, jump):
                        clock.now -= round(0.5e6 * per_step)
                    _spend(tracer, clock, names[1], 0.2 * per_step)
                    tracer.event(names[2], min(begin, clock.now))
                    tracer.usage("cpu_time", step, 1e-3 * per_step)
                    tracer.usage("cpu", step, 5e-4 * per_step)
                tracer.at(repeat, steps + 1)
            tracer.close()
    write_result(out)
    return out


def _spend(tracer, clock, name, milliseconds):
    begin = clock.now
    clock.spend(milliseconds)
    tracer.event(name, begin)


def predicted(ms, ranks=1, sources=(), guarantee="none", **more):
    """A prediction of so many milliseconds per step for the runs of `write_steps`."""
    known = attributes(0, ranks, guarantee, "ring")
    given = {"app": "coupled", "problem": "p0", "method": method_hash(known), "ranks": ranks, "model": "test 1",
             "quantiles": tuple(1e-3 * ms * each for each in SPREAD), "regions": {"work": 8e-4 * ms, "sum": 2e-4 * ms},
             "traces": tuple(map(hash_of_run, sources))}  # fmt: skip
    return Prediction(**(given | more))


def write_ledger(path, *predictions):
    """A ledger of these; the file."""
    path.touch()
    for each in predictions:
        append(path, each)
    return path


def write_study(root):
    """In the new directory `root` a source on one rank, a ledger that predicts 1, 2, 4 and 8 ranks from it, and 2
    ranks under `layout`, twice as slow, and runs that come after it; the ledger."""
    root.mkdir(parents=True, exist_ok=True)
    source = write_steps(root / "source", [100, 102])
    ledger = write_ledger(
        root / "ledger.jsonl",
        *(predicted(100 * (0.1 + 0.9 / p), p, [source]) for p in (1, 2, 4, 8)),
        predicted(110, 2, guarantee="layout"),
    )
    for p, off in ((1, 1.01), (2, 1.06), (4, 0.97), (8, 1.1)):
        for i in range(2):
            took = 100 * (0.1 + 0.9 / p) * (off + 0.02 * i)
            write_steps(root / f"p{p}-{i}", [took, took * 1.01], size=p, ledger=ledger)
    for i in range(2):
        took = 120 + i
        write_steps(root / f"layout-{i}", [took, took * 1.01], size=2, ledger=ledger, guarantee="layout")
    return ledger
