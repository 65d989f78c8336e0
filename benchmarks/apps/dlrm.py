"""Measures how often the predicted fastest sharding of tables of embeddings is the fastest.

    python -m benchmarks.apps.dlrm --json benchmarks/results/dlrm.json

DLRMs are random: 2 to 6 tables of 100 to 100,000 rows with bags of 1 to 32, 8 to 64 columns, batches of 128 to 1,024,
Zipf's exponents up to 1.2. Some of them calibrate: rates of work (`lookups`) are fitted to the times of their steps.
Each of the others runs under the five uniform shardings, mixed ones, and the sharding that the search over all finds,
in shuffled turns. The prediction uses only the histogram of their rows.

There is a row for each clock: `wall` time, and `cpu`, the predicted time of a step on dedicated processors
(miniapps.embeddings.steps). Rates are fitted for each clock.

`floor`: median |ln| between the medians of the odd and the even rounds of one strategy. A problem is `testable` if its
fastest strategy is faster than the second by more than its floor. `found`: testable problems whose predicted fastest
strategy was the fastest of those measured. `regret`: the time of this strategy over the time of the fastest, minus 1,
of all problems. `error`: exp(mean |ln(measured / predicted)|) - 1 of all steps. `fit`: the standard deviation of
ln(measured / predicted) of the calibration steps.
"""

import argparse
import json
import sys
import tempfile
from dataclasses import asdict, replace
from itertools import combinations
from pathlib import Path

import numpy as np
from mpi4py import MPI
from msgspec import convert

from analysis.predict.choices import sharding
from analysis.predict.choices.lookups import Load
from analysis.predict.choices.sharding import CLOCKS
from benchmarks.harness.launching import mpirun, output_of
from benchmarks.harness.results import add_quiet, machine, report
from kernels.progress import Progress
from miniapps.embeddings import steps
from miniapps.embeddings.steps import Problem
from miniapps.untrusted.lookups import Asked, Measured

MIXED = 5  # strategies of a problem, beside the uniform ones


def main(argv=None) -> None:
    """Measures and reports."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.apps.dlrm",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--problems", type=int, default=40, help="predicted problems (default %(default)s)")
    parser.add_argument(
        "--calibrate", type=int, default=30, help="problems for the fit of rates (default %(default)s)"
    )
    parser.add_argument("--rounds", type=int, default=8, help="rounds of turns (default %(default)s)")
    parser.add_argument("--ranks", type=int, default=2, help="(default %(default)s)")
    parser.add_argument("--seed", type=int, default=1, help="seed of the problems (default %(default)s)")
    parser.add_argument(
        "--quick", action="store_true", help="4 problems, 6 to calibrate, 2 rounds: a smoke test"
    )
    parser.add_argument("--json", help="write table and raw values to this file")
    add_quiet(parser)
    asked = parser.parse_args(argv)
    if asked.quick:
        asked.problems, asked.calibrate, asked.rounds = 4, 6, 2
    where, progress = machine(), Progress("benchmark", quiet=asked.quiet)
    rng = np.random.default_rng(asked.seed)
    progress.show(0.0, "calibration")
    calibrating = [steps.drawn(rng, MIXED) for _ in range(asked.calibrate)]
    models = fitted(calibrating, measured(calibrating, asked.ranks, asked.rounds), asked.ranks)
    progress.show(0.5, "problems")
    tested = []
    for problem in (steps.drawn(rng, MIXED) for _ in range(asked.problems)):
        auto = strategy(problem, models[CLOCKS.index("cpu")])
        tested.append(replace(problem, strategies=[*problem.strategies, auto]))
    taken = measured(tested, asked.ranks, asked.rounds)
    progress.clear()
    rows = []
    for name, model in zip(CLOCKS, models, strict=True):
        clock = ("wall", "cpu").index(name)  # of the times
        problems = [
            compared(problem, of[..., clock], model) for problem, of in zip(tested, taken, strict=True)
        ]
        rows.append({"clock": name} | summary(problems, asked.ranks) | {"fit": round(model.rates.spread, 4)})
    report("apps.dlrm", rows, where, asked.json)


def measured(problems: list[Problem], ranks: int, rounds: int) -> list[np.ndarray]:
    """The seconds of each problem by strategy, round, step and clock."""
    with tempfile.TemporaryDirectory() as folder:
        given, answer = Path(folder) / "problems.json", Path(folder) / "times.json"
        given.write_text(
            json.dumps({"problems": [asdict(problem) for problem in problems], "rounds": rounds})
        )
        command = [*mpirun(), "-n", str(ranks), sys.executable, "-m", "benchmarks.apps.dlrm", "--worker"]
        output_of([*command, str(given), str(answer)])
        return [np.array(of) for of in json.loads(answer.read_text())]


def worker(given: str, answer: str) -> None:
    """Times the problems of the file `given` on this job's ranks, and writes the times to the file `answer`."""
    comm, asked = MPI.COMM_WORLD, json.loads(Path(given).read_text())
    problems = [
        Problem(**of | {"tables": [tuple(table) for table in of["tables"]]}) for of in asked["problems"]
    ]
    answers = [steps.times(comm, problem, asked["rounds"], "sorted").tolist() for problem in problems]
    if comm.rank == 0:
        Path(answer).write_text(json.dumps(answers))


def loads(problem: Problem) -> list[Load]:
    """The load of each table, from the histogram of its rows."""
    return [sharding.load_of(convert(given, Asked)) for given in steps.asked(problem)]


def fitted(problems: list[Problem], taken: list[np.ndarray], ranks: int) -> list[sharding.Model]:
    """The model of each clock, from the times of problems."""
    given = []
    for problem, of in zip(problems, taken, strict=True):
        medians = np.median(of, axis=(1, 2)).tolist()
        timed = [
            {"shardings": steps.shardings(problem, text, ranks), "wall": wall, "cpu": cpu}
            for text, (wall, cpu) in zip(problem.strategies, medians, strict=True)
        ]
        given.append({"tables": steps.asked(problem), "steps": timed})
    content = {
        "format": "fpna-lookups",
        "schema": 1,
        "ranks": ranks,
        "order": "sorted",
        "cpu": "",
        "problems": given,
    }
    return [sharding.fitted(convert(content, Measured), clock) for clock in CLOCKS]


def strategy(problem: Problem, model: sharding.Model) -> str:
    """The strategy that the search finds, with the ranks of whole tables named."""
    names = sharding.options(model.ranks, model.order, layout=False)
    best = sharding.fastest(model, loads(problem), names).best[0]
    return sharding.in_words([names[option] for option in best.options])


def compared(problem: Problem, every: np.ndarray, model: sharding.Model) -> dict:
    """The measured and predicted times of a problem."""
    known = loads(problem)
    seconds = np.median(every, axis=(1, 2))
    odd, even = np.median(every[:, 0::2], axis=(1, 2)), np.median(every[:, 1::2], axis=(1, 2))
    predicted = [
        model.seconds(known, steps.shardings(problem, text, model.ranks)) for text in problem.strategies
    ]
    given = len(problem.strategies) - 1  # the last strategy is from the search
    return asdict(problem) | {
        "seconds": seconds.tolist(),
        "predicted": predicted,
        "floor": float(np.median(np.abs(np.log(odd / even)))),
        "chosen": int(np.argmin(predicted[:given])),
        "fastest": int(np.argmin(seconds[:given])),
    }


def summary(problems: list[dict], ranks: int) -> dict:
    """A row over all problems."""
    testable = found = 0
    regrets, errors, autos, pairs = [], [], [], []
    for of in problems:
        seconds, predicted = np.array(of["seconds"]), np.array(of["predicted"])
        given, auto = seconds[:-1], seconds[-1]
        ordered = np.sort(given)
        if np.log(ordered[1] / ordered[0]) > of["floor"]:
            testable += 1
            found += of["chosen"] == of["fastest"]
        regrets.append(given[of["chosen"]] / ordered[0] - 1)
        autos.append(auto / ordered[0] - 1)
        errors += np.abs(np.log(seconds / predicted)).tolist()
        for a, b in combinations(range(len(given)), 2):
            if abs(np.log(given[a] / given[b])) > of["floor"]:
                pairs.append((given[a] < given[b]) == (predicted[a] < predicted[b]))
    return {
        "ranks": ranks,
        "problems": len(problems),
        "shardings": len(problems[0]["seconds"]),
        "floor": round(float(np.median([of["floor"] for of in problems])), 4),
        "testable": testable,
        "found": found,
        "found_share": round(found / testable, 3) if testable else None,
        "regret_mean": round(float(np.mean(regrets)), 4),
        "regret_most": round(float(np.max(regrets)), 4),
        "searched_over_fastest": round(float(np.mean(autos)), 4),
        "pairs_right": round(float(np.mean(pairs)), 3) if pairs else None,
        "error": round(float(np.exp(np.mean(errors)) - 1), 4),
    }


if __name__ == "__main__":
    if sys.argv[1:2] == ["--worker"]:
        worker(*sys.argv[2:])
    else:
        main()
