"""Runs that fill every table of every analysis command, and the command lines for them."""

from functools import partial

import numpy as np

from tests.analysis.answers_runs import write_answers
from tests.analysis.audits_runs import case, refused, statement, write_audit
from tests.analysis.export_runs import solver_run
from tests.analysis.mesh_runs import write_mesh
from tests.analysis.nodes_runs import write_over_nodes
from tests.analysis.plan_runs import write_plans
from tests.analysis.predict_runs import write_study
from tests.analysis.solves_runs import FALLING, solve, studied, write_solves
from tests.analysis.sums_runs import write_sums
from tests.analysis.synthetic import flip_bit, write_run, write_timed
from tests.analysis.training_runs import study_of


def classes(seed, repeat, step):
    """A class that another seed decides otherwise, and a number of iterations that none does."""
    return [("class", 3, seed + step, 0.1), ("iterations", -1, 7, np.nan)]


def drifting(seed):
    """A difference that grows tenfold with each step."""

    def change(repeat, step, field):
        field += np.random.default_rng([seed, step]).normal(size=field.shape) * 10.0 ** (step - 12)

    return change


def at_step_3(repeat, step, field):
    """One bit of block 5 is another from step 3 on."""
    if step >= 3:
        flip_bit(field, 5)


def scaled(size, ms):
    """Even work and an all-reduce, for which all but rank 0 wait."""

    def regions(rank, step):
        sums = ("allreduce.a", 0.5 + (size > 1 and rank > 0), [])
        return [("step", 0, [("work", ms / size + (rank == 0), []), sums])]

    return regions


def write_all(root):
    """One directory of runs for each kind of question."""
    write_run(root / "pair/a", size=1)
    write_run(root / "pair/b", size=3)
    write_run(root / "pair/c", size=2, change=at_step_3)
    for seed in range(8):
        write_run(
            root / f"grown/r{seed}", steps=9, change=drifting(seed), allocation_id=f"job{seed % 2}", seed=seed
        )
    for size in (1, 2, 4, 8):
        for i in range(2):
            write_timed(root / f"scaled/r{size}-{i}", scaled(size, 64 + i), size=size)
    rng = np.random.default_rng(3)
    values = {
        f"sum:{name}:{n}": 1 + rng.integers(-3, 4, (2, 40)) * 2.0**-52
        for name in ("spa:native", "ao:emulated")
        for n in (100, 1000, 10_000)
    }
    values |= {f"sum:sptr:native:{n}": np.ones((2, 40)) for n in (100, 1000, 10_000)}
    times = {name: np.linspace(1, 2, 40) for name in values if "emulated" not in name}
    truth = {n: np.ones(2) for n in (100, 1000, 10_000)}
    worst = {
        "worst-low:ao:emulated:100": np.ones(2) - 2.0**-50,
        "worst-high:ao:emulated:100": np.ones(2) + 2.0**-49,
    }
    write_sums(root / "sums/r", values, times, truth=truth, worst=worst)
    for k, short in enumerate((0, 0, 1)):
        write_solves(root / f"solves/r{k}", [solve(FALLING[: len(FALLING) - short])] * 2, size=1 + k)
    write_solves(root / "solves/study", [studied(limit=40)], guarantee="exact", ordering="exact")
    for seed in (0, 1):
        write_run(root / f"decided/r{seed}", 1, steps=2, decisions=partial(classes, seed))
    study_of(root / "training")
    write_mesh(root / "training" / "mesh", [0.4, 0.5])
    dot = case("dot", address=2, layers={"ATen default": 2, "MKL AVX": 1})
    cases = [case("take", "backward", runs=3, threads=1), dot, refused("svd")]
    write_answers(root / "answers", [1, 2], [1.0, 2.0])
    write_audit(root / "audits/a", cases, [statement("take"), statement("dot")])
    write_audit(root / "audits/b", cases[:1], torch="2.14.0")
    solver_run(root / "exported")
    write_study(root / "predicted")
    write_plans(root / "plans")
    write_over_nodes(root / "nodes", ["n1", "n1", "n2"])
    for ordering, element in (("arrival", 0.0), ("ring", 1.0)):
        write_run(
            root / f"spread/{ordering}", 1, ordering=ordering, steps=1, repeats=20, change=spread(element)
        )


def spread(element):
    """A first element that is `element` more than it was, and another in each repeat."""

    def change(repeat, step, field):
        field[0, 0] += element + np.sin(repeat)

    return change


def command_lines(root, out):
    """{document: arguments}, new files below `out`."""
    return {
        "report": ["report", root / "pair", "-o", out / "report.html"],
        "variability": ["variability", root / "grown"],
        "variability --by": ["variability", root / "grown", "--by", "ordering"],
        "variability --transport": ["variability", root / "spread", "--transport"],
        "divergence": ["divergence", root / "pair/a", root / "pair/b", root / "pair/c"],
        "growth": ["growth", root / "grown"],
        "components": ["components", root / "grown"],
        "sums": ["sums", root / "sums"],
        "solves": ["solves", root / "solves"],
        "decisions": ["decisions", root / "decided"],
        "learning": ["learning", root / "training"],
        "utilisation": ["utilisation", root / "training" / "mesh"],
        "audits": ["audits", root / "audits"],
        "answers": ["answers", root / "answers"],
        "scaling": ["scaling", root / "scaled"],
        "price": [
            *("price", root / "plans/small.json", root / "plans/large.json"),
            *("--machine", root / "plans/machine.toml"),
        ],
        "score": ["score", root / "predicted/ledger.jsonl", root / "predicted"],
        "nodes": ["nodes", root / "nodes"],
        "lint": ["lint", root / "pair"],
        "show": ["show", root / "pair"],
        "ask": ["ask", "other results", root / "pair/a", root / "pair/c"],
        "export": ["export", "perfetto", root / "exported", "-o", out / "events.json"],
    }
