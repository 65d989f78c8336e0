"""The cases of `benchmarks.analysis.ask`: faulty runs, and the right command for each.

A kind writes runs below a directory, with random numbers, and returns the right template with its required slots. Most
runs are of a synthetic application, written by the real trace writer; `benchmarks.apps.first_divergence` makes the
faults of small real runs.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np

from benchmarks.apps import first_divergence
from tests.analysis import synthetic
from tests.analysis.answers_runs import write_answers
from tests.analysis.audits_runs import case as audit_case
from tests.analysis.audits_runs import statement, write_audit
from tests.analysis.nodes_runs import write_over_nodes
from tests.analysis.solves_runs import solve, write_solves
from tests.analysis.sums_runs import write_sums
from tests.analysis.synthetic import BLOCKS, CONFIG, STEPS, flip_bit, owners, write_run, write_timed
from tests.analysis.training_runs import write_training

HELD_OUT = ("lost-halo", "nan")  # kinds, real or synthetic, that are not in the training
LEVELS = ("none", "run", "layout")


@dataclass(frozen=True)
class Case:
    """`kind` as in KINDS, or `real ` and a fault of real runs; `symptom` names the list of titles; the command must
    have the `slots`."""

    kind: str
    symptom: str
    runs: tuple[str, ...]
    template: str
    slots: dict[str, Any]


Kind = Callable[[Path, np.random.Generator], Case]
KINDS: dict[str, Kind] = {}


def kind(name: str):
    """Decorator that registers a kind."""

    def register(write: Kind) -> Kind:
        KINDS[name] = write
        return write

    return register


def environment(**more) -> dict[str, Any]:
    """The environment of a run; `more` replaces its entries."""
    known = {"mpi": "MPICH 4.3", "node": "n1", "cpu": "a", "packages": {"numpy": "2.1.0"}, "variables": {}}
    return known | more


def _method(rng) -> dict[str, Any]:
    """The attributes that runs of one case share."""
    guarantee = LEVELS[rng.integers(3)]
    ordering = ("arrival", "ring", "direct")[rng.integers(3)] if guarantee == "none" else "ring"
    return {"guarantee": guarantee, "ordering": ordering, "environment": environment()}


def _pair(root, rng, change, template="divergence of runs", other=None, size=None, beside=True, **slots):
    """A clean run and a run with `change` and `other` attributes; sometimes more clean runs."""
    common = _method(rng) | {"size": int(size or rng.integers(1, 5))}
    runs = [root / "clean", root / "changed"]
    write_run(runs[0], **common)
    write_run(runs[1], **common | {"change": change} | (other or {}))
    if beside and rng.random() < 0.3:
        runs.insert(1, write_run(root / "another", **common))
    wrong = [str(root / "clean"), str(root / "changed")]
    return tuple(map(str, runs)), template, {"runs": wrong} | slots, common


def _from(step, act):
    """A change of the state from `step` on."""

    def change(repeat, at, field):
        if at >= step:
            act(field)

    return change


def _rounding(seed):
    def act(field):
        field *= 1 + np.random.default_rng(seed).integers(1, 4, field.shape) * 2.0**-52

    return act


@kind("bitflip")
def bitflip(root, rng):
    step, block, size = int(rng.integers(STEPS)), int(rng.integers(BLOCKS)), int(rng.integers(1, 5))
    element, bit = int(rng.integers(8)), int(rng.integers(52))
    change = _from(step, lambda field: flip_bit(field, block, element, bit))
    rank = int(owners(BLOCKS, size)[block])
    runs, template, slots, _ = _pair(root, rng, change, size=size, step=step, block=block, rank=rank)
    return Case("bitflip", "same", runs, template, slots)


@kind("seed")
def seed(root, rng):
    def change(repeat, step, field):
        field += np.random.default_rng([7, step]).normal(size=field.shape) * 1e-3

    runs, template, slots, _ = _pair(root, rng, change, step=0, block=0)
    return Case("seed", "same", runs, template, slots)


@kind("swap-order")
def swap_order(root, rng):
    step = int(rng.integers(STEPS))
    runs, template, slots, _ = _pair(
        root, rng, _from(step, _rounding(int(rng.integers(99)))), step=step, block=0
    )
    return Case("swap-order", "same", runs, template, slots)


@kind("lost-halo")
def lost_halo(root, rng):
    step, size = int(rng.integers(STEPS)), int(rng.integers(2, 5))
    rank = int(rng.integers(size))
    own = np.flatnonzero(owners(BLOCKS, size) == rank)

    def act(field):
        field[own] += 0.25

    runs, template, slots, _ = _pair(
        root, rng, _from(step, act), size=size, step=step, block=int(own[0]), rank=rank
    )
    return Case("lost-halo", "same", runs, template, slots)


@kind("arrival")
def arrival(root, rng):
    step, size = int(rng.integers(STEPS)), int(rng.integers(2, 5))

    def change(repeat, at, field):
        if repeat and at >= step:
            _rounding(repeat)(field)

    def orders(repeat, at):
        return [tuple(np.roll(np.arange(size), repeat).tolist())]

    run = root / "run"
    repeats = int(rng.integers(2, 4))
    write_run(run, size, repeats=repeats, change=change, environment=environment())
    return Case(
        "arrival", "repeats", (str(run),), "divergence of repeats", {"runs": [str(run)], "step": step}
    )


@kind("rank-count")
def rank_count(root, rng):
    sizes, step = rng.choice([1, 2, 3, 4, 6], 2, replace=False), int(rng.integers(STEPS))
    change = _from(step, _rounding(int(rng.integers(99))))
    other = {"size": int(sizes[1])}
    runs, template, slots, _ = _pair(
        root, rng, change, "divergence of rank counts", other, int(sizes[0]), beside=False, step=step
    )
    return Case("rank-count", "ranks", runs, template, slots)


@kind("threads")
def threads(root, rng):
    step = int(rng.integers(STEPS))
    change = _from(step, _rounding(int(rng.integers(99))))
    other = {"method": {"run.threads": 4}, "guarantee": "layout"}
    common = {"guarantee": "layout", "ordering": "ring", "environment": environment(), "size": 2}
    write_run(root / "one", **common)
    write_run(root / "four", **common | {"change": change} | other)
    runs = (str(root / "one"), str(root / "four"))
    return Case("threads", "ranks", runs, "divergence of rank counts", {"runs": list(runs), "step": step})


@kind("restart")
def restart(root, rng):
    begin = int(rng.integers(1, STEPS - 1))
    step = int(rng.integers(begin, STEPS))
    config = CONFIG | {"output": {"restart": f"checkpoint-{begin}.h5"}}
    stated = {"output.restart": {"effect": "restart", "records": [], "of_ranks": False}}
    options = {key: {"effect": e, "records": [], "of_ranks": False} for key, e in EFFECTS.items()} | stated
    common = _method(rng) | {"size": int(rng.integers(1, 5)), "options": options}
    write_run(root / "whole", **common)
    act = _rounding(int(rng.integers(99)))
    write_run(root / "continued", **common, first_step=begin, config=config, change=_from(step, act))
    runs = (str(root / "whole"), str(root / "continued"))
    return Case("restart", "restart", runs, "divergence of a restart", {"runs": list(runs), "step": step})


EFFECTS = {"run.device": "device", "run.threads": "threads", "run.shuffle_blocks": "ownership", "run.fault": "fault",
           "run.guarantee": "reduction"}  # fmt: skip


@kind("method")
def method(root, rng):
    step = int(rng.integers(STEPS))
    key, value = [("solve.spmv", "blocked"), ("net.batch", 16), ("run.device", "cuda")][rng.integers(3)]
    act = _rounding(int(rng.integers(99)))
    runs, template, slots, _ = _pair(
        root,
        rng,
        _from(step, act),
        "divergence of methods",
        {"method": {key: value}},
        beside=False,
        step=step,
    )
    return Case("method", "method", runs, template, slots)


@kind("factor")
def factor(root, rng):
    name = ("kernel", "ordering", "guarantee")[rng.integers(3)]
    runs = []
    for level in range(2):
        for k in range(int(rng.integers(2, 5))):
            given = {"guarantee": "none", "ordering": "arrival", "environment": environment(), "size": 2}
            if name == "kernel":
                given["method"] = {"net.batch": 8 * (level + 1)}
            elif name == "ordering":
                given["ordering"] = ("arrival", "ring")[level]
            else:
                given |= {"guarantee": ("none", "run")[level], "ordering": "ring"}
            act = _rounding(10 * level + (k if rng.random() < 0.5 else 0))
            runs.append(write_run(root / f"{level}-{k}", **given, change=_from(1, act)))
    return Case(f"factor {name}", "method", tuple(map(str, runs)), "variability", {"factor": name})


@kind("growth")
def growth(root, rng):
    runs, jobs = [], 2 if rng.random() < 0.2 else 1
    for k in range(int(rng.integers(4, 8))):

        def change(repeat, step, field, k=k):
            field += np.random.default_rng([k, step]).normal(size=field.shape) * 10.0 ** (step - 14)

        given = {"environment": environment(), "allocation_id": f"job{k % jobs}"}
        runs.append(write_run(root / f"r{k}", **given, change=change, steps=9))
    return Case("growth", "growth", tuple(map(str, runs)), "growth", {"runs": sorted(map(str, runs))})


@kind("components")
def components(root, rng):
    runs, jobs = [], int(rng.integers(2, 4))
    for job in range(jobs):
        for k in range(int(rng.integers(2, 4))):
            given = {"environment": environment(node=f"n{job}"), "allocation_id": f"job{job}"}
            repeats = int(rng.integers(1, 3))
            runs.append(
                write_run(
                    root / f"j{job}-{k}", **given, repeats=repeats, change=_from(2, _rounding(7 * job + k))
                )
            )
    return Case(
        "components", "components", tuple(map(str, runs)), "components", {"runs": sorted(map(str, runs))}
    )


@kind("environment")
def other_environment(root, rng):
    step = int(rng.integers(STEPS))
    other = [environment(cpu="b"), environment(packages={"numpy": "2.4.0"})][rng.integers(2)]
    act = _rounding(int(rng.integers(99)))
    runs, template, slots, _ = _pair(
        root,
        rng,
        _from(step, act),
        "divergence of environments",
        {"environment": other},
        beside=False,
        step=step,
    )
    return Case("environment", "environment", runs, template, slots)


@kind("mixed-ranks")
def mixed_ranks(root, rng):
    usual, odd = synthetic.attributes, int(rng.integers(1, 3))

    def attributes(rank, *args, **more):
        version = "2.4.0" if rank == odd else "2.1.0"
        return usual(rank, *args, **more | {"environment": environment(packages={"numpy": version})})

    common = _method(rng) | {"size": 3}
    runs = [root / f"r{k}" for k in range(int(rng.integers(1, 3)))]
    with mock.patch("tests.analysis.synthetic.attributes", attributes):
        for run in runs:
            write_run(run, **common)
    return Case("mixed-ranks", "environment", tuple(map(str, runs)), "lint", {"runs": list(map(str, runs))})


@kind("unstable")
def unstable(root, rng):
    size, runs = int(rng.integers(1, 4)), []
    for k in range(int(rng.integers(6, 10))):
        ms = 20 * float(np.exp(0.5 * rng.normal()))
        runs.append(
            write_timed(
                root / f"r{k}",
                lambda rank, step, ms=ms: [("step", 0, [("work", ms, [])])],
                size=size,
                steps=3,
            )
        )
    return Case("unstable", "lint", tuple(map(str, runs)), "lint", {"runs": sorted(map(str, runs))})


@kind("scaling")
def scaling(root, rng):
    runs, serial = [], float(rng.uniform(1, 10))
    for size in sorted(rng.choice([1, 2, 4, 8], int(rng.integers(3, 5)), replace=False).tolist()):

        def regions(rank, step, size=size):
            sums = ("allreduce.a", 0.5 + serial * (size > 1), [])
            return [("step", 0, [("work", serial + 64 / size, []), sums])]

        runs.append(write_timed(root / f"p{size}", regions, size=size, steps=2))
    return Case("scaling", "scaling", tuple(map(str, runs)), "scaling", {"runs": sorted(map(str, runs))})


@kind("slow-rank")
def slow_rank(root, rng):
    size, factor, run = int(rng.integers(3, 6)), float(rng.uniform(1.5, 3)), root / "run"
    late = int(rng.integers(size))

    def regions(rank, step):
        work = 10 * (factor if rank == late else 1) + float(rng.uniform(0, 0.5))
        return [("step", 0, [("work", work, []), ("allreduce.a", 10 * factor + 1 - work, [])])]

    write_timed(run, regions, size=size, steps=3)
    runs = [run]
    if rng.random() < 0.4:
        even = lambda rank, step: [("step", 0, [("work", 10, []), ("allreduce.a", 1, [])])]  # noqa: E731
        runs.append(write_timed(root / "usual", even, size=size, steps=3))
    return Case("slow-rank", "straggler", tuple(map(str, runs)), "scaling", {"rank": late})


@kind("stagnation")
def stagnation(root, rng):
    stuck = np.maximum(10.0 ** -np.arange(12.0), 10.0 ** -float(rng.uniform(2, 6)))
    runs = [write_solves(root / "stuck", [solve(stuck)], size=int(rng.integers(1, 4)))]
    if rng.random() < 0.5:
        runs.append(write_solves(root / "usual", [solve(10.0 ** -np.arange(10.0))], size=1))
    return Case("stagnation", "solver", tuple(map(str, runs)), "solves", {"runs": sorted(map(str, runs))})


@kind("sums")
def sums(root, rng):
    values = {
        f"sum:{name}:{n}": 1 + rng.integers(-3, 4, (2, 20)) * 2.0**-52
        for name in ("spa:native", "ao:emulated")
        for n in (100, 1000)
    }
    values |= {f"sum:sptr:native:{n}": np.ones((2, 20)) for n in (100, 1000)}
    run = write_sums(root / "r", values, {"sum:spa:native:100": np.linspace(1, 2, 20)})
    return Case("sums", "sums", (str(run),), "sums", {"runs": [str(run)]})


@kind("killed")
def killed(root, rng):
    size, step = int(rng.integers(2, 5)), int(rng.integers(2, STEPS))
    common = _method(rng) | {"size": size}
    runs = [write_run(root / "ended", **common, stop=dict.fromkeys(range(size), step))]
    if rng.random() < 0.6:
        runs.append(write_run(root / "whole", **common))
    return Case("killed", "crash", tuple(map(str, runs)), "show", {"runs": [str(runs[0])], "step": step - 1})


@kind("raised")
def raised(root, rng):
    common = _method(rng) | {"size": int(rng.integers(2, 5))}
    run = write_run(root / "ended", **common)
    check = {"name": "closure", "passed": False, "detail": "budget does not close"}
    synthetic.write_result(run, checks=[check])
    runs = [run]
    if rng.random() < 0.6:
        runs.append(write_run(root / "whole", **common))
    return Case("raised", "crash", tuple(map(str, runs)), "show", {"runs": [str(run)]})


@kind("nan")
def nan(root, rng):
    step, block, size = int(rng.integers(1, STEPS)), int(rng.integers(BLOCKS)), int(rng.integers(1, 5))

    def act(field):
        field[block] = np.nan

    run = write_run(root / "run", **_method(rng) | {"size": size}, change=_from(step, act))
    slots = {"runs": [str(run)], "step": step, "block": block, "rank": int(owners(BLOCKS, size)[block])}
    return Case("nan", "nan", (str(run),), "show", slots)


@kind("library")
def library(root, rng):
    step, size = int(rng.integers(STEPS)), int(rng.integers(2, 5))
    common = {"guarantee": "none", "ordering": "library", "environment": environment()}
    others = [{"size": size}, {"size": size + 1}][rng.integers(2)]
    write_run(root / "a", **common, size=size)
    write_run(root / "b", **common | others, change=_from(step, _rounding(int(rng.integers(99)))))
    runs = (str(root / "a"), str(root / "b"))
    return Case("library", "allreduce", runs, "identify", {"runs": list(runs)})


@kind("training")
def training(root, rng):
    runs = [
        write_training(root / f"s{k}", [0.3, 0.6, 0.7 + float(rng.normal()) * 0.02], seed=k)
        for k in range(int(rng.integers(2, 5)))
    ]
    return Case("training", "training", tuple(map(str, runs)), "training", {"runs": sorted(map(str, runs))})


@kind("audit")
def audit(root, rng):
    cases = [audit_case("take", "backward", runs=int(rng.integers(2, 4)), threads=1), audit_case("dot")]
    runs = [write_audit(root / "a", cases, [statement("take"), statement("dot")])]
    if rng.random() < 0.5:
        runs.append(write_audit(root / "b", cases[:1], torch="2.14.0"))
    return Case("audit", "operations", tuple(map(str, runs)), "operations", {"runs": sorted(map(str, runs))})


@kind("batch")
def batch(root, rng):
    run = root / "r"
    write_answers(run, rng.integers(1, 4, 3).tolist(), [1.0, 2.0, 1.5])
    return Case("batch", "batch", (str(run),), "inference", {"runs": [str(run)]})


@kind("nodes")
def nodes(root, rng):
    run = write_over_nodes(root / "r", [f"n{k // 2}" for k in range(int(rng.integers(3, 7)))])
    return Case("nodes", "network", (str(run),), "nodes", {"runs": [str(run)]})


def write_case(root: Path, name: str, seed: int, number: int) -> Case:
    """The case `number` of the kind `name` of that `seed`, in the new directory `root`."""
    root.mkdir(parents=True)
    with mock.patch("miniapps.trace.writer.cost_of_event", return_value=100.0):
        return KINDS[name](root, np.random.default_rng([seed, list(KINDS).index(name), number]))


def real_cases(root: Path, seed: int, each: int, hows: tuple[str, ...], held_out: bool) -> list[Case]:
    """Faults of small runs of `coupled` and `solver` on 3 ranks, `each` of every kind and of the `hows` of
    `first_divergence`, without HELD_OUT unless `held_out`. Faults that changed no bit are left out. Raises RuntimeError
    if a run fails."""
    from analysis.load.frames import load

    root.mkdir(parents=True)
    kinds = [name for name in first_divergence.CLASSES if held_out or name not in HELD_OUT]
    planned, jobs = first_divergence.plan(root, list(first_divergence.SMALL), each, seed, hows, kinds)
    first_divergence.run({ranks: listed for ranks, listed in jobs.items() if listed}, root)
    cases = []
    for one in planned:
        if first_divergence.judge(one)["masked"]:
            continue
        where = first_divergence.place(one, load([one.reference, one.out], copies=True))
        slots = {key: where[key] for key in ("step", "block", "rank") if where.get(key) not in (None, -1)}
        symptom, template = "same", "divergence of runs"
        if one.how == "ranks":
            symptom, template = "ranks", "divergence of rank counts"
        runs = (one.reference, one.out)
        cases.append(Case(f"real {one.kind}", symptom, runs, template, {"runs": list(runs), **slots}))
    return cases


def fits(slots: dict[str, Any], wanted: dict[str, Any]) -> bool:
    """Whether all `wanted` slots are right; any value of a set is right, and the order of `runs` does not count."""
    for key, value in wanted.items():
        given = slots.get(key)
        if key == "runs":
            if sorted(given or []) != sorted(value):
                return False
        elif given not in value if isinstance(value, set) else given != value:
            return False
    return True


def is_held_out(case: Case) -> bool:
    """Whether the kind of `case` is not in the training."""
    return case.kind.removeprefix("real ") in HELD_OUT


def titles(path: Path) -> dict[str, dict[str, list[list[str]]]]:
    """{"training" or "test": {symptom: [[repository, title], ...]}}."""
    return json.loads(path.read_text())
