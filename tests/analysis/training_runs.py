"""Runs that learn, written by the real tracer from numbers that a test gives, with times that are known."""

from unittest import mock

import numpy as np

from miniapps.trace import Tracer, fingerprint
from miniapps.trace.schema import COLLECTIVE, COMPUTE, OTHER, rank_file
from tests.analysis.synthetic import METHOD, Clock, attributes, write_result

EVALUATE_MS = 50.0  # an evaluation, which is no time of training
PROBLEM = {"data.name": "blobs", "model.name": "mlp"}
OPTIONS = {"training.wire": {"effect": "reduction"}, "run.fault": {"effect": "fault"}}


def write_training(
    out, accuracy, seed=1, wire="as is", rate=0.05, *, seeds=None, loss=None, size=2, every=10, ms=2.0, nbytes=1000,
    ordering="direct", policy=None, values=None, choices=None, prints=None, problem=None, complete=True, timed=True,
    result=True, method=None, **more,
):  # fmt: skip
    """Write a run into the new directory `out` and return it.

    `accuracy`: after `every`, 2 `every`, ... steps of `ms` milliseconds, in which a rank's all-reduce carries `nbytes`;
    `loss` of each step; `seeds` {name: seed}, else all are `seed`; `values` [(step, name, block, number)]; `choices`
    [(step, name, block, choice, score)], after that step; `prints` [(step, name, block, array)] to be hashed.
    """
    out.mkdir(parents=True)
    steps = every * len(accuracy)
    loss = np.linspace(2.0, 1.0, steps) if loss is None else loss
    drawn = seeds or dict.fromkeys(("data", "dropout", "init"), seed)
    given = {
        "app": "training", "problem": f"p{rate}{sorted(drawn.items())}{problem}", "run_id": str(out), "seed": seed,
        "problem_options": PROBLEM | {"run.seed": seed, "training.rate": rate} | (problem or {})
        | {f"seeds.{name}": value for name, value in drawn.items()},
        "method": METHOD | {"run.guarantee": "none", "training.wire": wire, "training.policy": policy} | (method or {}),
        "options": OPTIONS, "config": {"run": {"seed": seed}},
        "reductions": {
            "bucket0": {"ordering": ordering, "region": "allreduce.bucket0", "wire": "as is" if policy else wire},
            "correct": {"ordering": "direct", "region": "allreduce.correct", "decided": "application"},
        },
    } | more  # fmt: skip
    for rank in range(size):
        clock = Clock()
        with mock.patch("time.perf_counter_ns", clock):
            tracer = Tracer(
                out / rank_file(rank), attributes(rank, size, "none", ordering, **given), size=size
            )
            tracer.at(0, 0)
            if rank == 0:
                _choose(tracer, 0, choices or [])
            for step in range(1, steps + 1):
                tracer.at(0, step)
                if timed:
                    _step(tracer, clock, ms * (1 if rank else 0.5), nbytes)
                if rank == 0:
                    _record(tracer, step, loss, values or [])
                    for at, name, block, array in prints or []:
                        if at == step:
                            tracer.fingerprint(name, block, fingerprint(array))
                    _choose(tracer, step, choices or [])
                if step % every == 0:
                    _evaluate(tracer, clock, timed)
                    if rank == 0:
                        tracer.value("accuracy", accuracy[step // every - 1])
            tracer.close(complete=complete)
    if result and complete:
        write_result(out)
    return out


def _step(tracer, clock, ms, nbytes):
    begin = clock.now
    clock.spend(ms / 2)
    middle = clock.now
    clock.spend(ms / 2)
    tracer.event(tracer.name("allreduce.bucket0", COLLECTIVE), middle, nbytes=nbytes)
    tracer.event(tracer.name("step", OTHER), begin)


def _record(tracer, step, loss, values):
    tracer.value("loss", loss[step - 1])
    for at, name, block, number in values:
        if at == step:
            tracer.value(name, number, block=block)


def _choose(tracer, step, choices):
    for at, name, block, choice, score in choices:
        if at == step:
            tracer.choice(name, block, choice, score)


def _evaluate(tracer, clock, timed):
    begin = clock.now
    clock.spend(EVALUATE_MS)
    if timed:
        inner = clock.now
        clock.spend(1)
        tracer.event(tracer.name("allreduce.correct", COLLECTIVE), inner, nbytes=8)
        tracer.event(tracer.name("evaluate", COMPUTE), begin)


def study_of(root):
    """Two wires at two rates and a policy, three seeds each: every table of the analysis has rows."""
    gain = {"as is": 0.0, "fp8": -0.001, "table:n=1": -0.2}
    orders = {"model.aggregate": "sorted", "model.aggregate_inference": "sorted"}
    outputs = [(30, "outputs", 0, np.zeros(2))]
    for seed in (1, 2, 3):
        luck = 0.002 * seed
        for wire, more in gain.items():
            for rate in (0.02, 0.05):
                end = 0.7 + rate + luck + more + (0.001 * seed if wire != "as is" else 0.0)
                quality = [
                    (10, "wire_error", 0, 0.05),
                    (10, "wire_cosine", 0, 0.99),
                    (10, "wire_length", 0, 1.01),
                ]
                weights = [(30, "weights_sample", 0, 1.0), (30, "weights_sample", 1, 1.0 + more)]
                write_training(
                    root / f"{wire.partition(':')[0].replace(' ', '-')}-{seed}-{rate}", [0.3 + luck, 0.6, end], seed,
                    wire, rate, values=[*(quality if more else ()), *weights], nbytes=1000 if wire == "as is" else 250,
                    ms=2.0 if wire == "as is" else 1.0, method=orders, prints=outputs,
                )  # fmt: skip
        tasks = [(0, "fp8", "beginning", "trial fp8"), (5, "sign", "beginning", "trial sign")]
        tasks += [(step, "fp8", "trial fp8", f"segment {step}") for step in (10, 15, 20, 25)]
        chosen = [
            (step, name, -1, choice, float(step))
            for step, *choices in tasks
            for name, choice in zip(("wire", "begin", "end"), choices, strict=True)
        ]
        write_training(root / f"policy-{seed}", [0.3, 0.6, 0.76 + luck], seed, policy="adaprec", choices=chosen,
                       method=orders, values=[(15, "held_out_loss", -1, 9.99)])  # fmt: skip
