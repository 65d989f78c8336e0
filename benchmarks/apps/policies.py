"""Measures the accuracy that wires cost, and the regret of policies against the best fixed wire in the same time.

    python -m benchmarks.apps.policies --data-dir DIR --json benchmarks/results/policies.json

wires    deck S on 2 ranks under layout, a run for each wire and seed: accuracy, and accuracy of float32 minus that of
         each other wire, paired by seed
policy   deck S on 2 ranks over emulated links of 20 and 200 MB/s: every fixed wire and policy for the time of --steps
         steps over the fastest wire, seeds 1 to --seeds; regret in accuracy with its interval, trials included;
         fractions of the time for trials and for decisions; errors of predicted values

It uses real clocks: run nothing else beside it. All runs have the learning rate of --steps steps.
"""

from functools import partial
from pathlib import Path

import numpy as np

from analysis.load.frames import load
from analysis.runs import ids
from analysis.studies.learning.runs import expected
from benchmarks.harness.launching import launch
from benchmarks.harness.regret import interval, regret
from benchmarks.harness.results import parts_parser, row, run_parts
from benchmarks.harness.turns import ratio
from kernels.progress import Progress
from miniapps.trace import read

APP, RANKS = "miniapps.training", 2
WIRES = ("float32", "fp8", "table:n=2", "sign")
# Candidates of a policy; `sign` without feedback loses accuracy again after a few hundred steps.
CANDIDATES = ("float32", "fp8", "table:n=2", "sign:feedback=on")
RATES = {"20 MB/s": "rate=20e6", "200 MB/s": "rate=200e6"}
POLICIES = ("fastest", "lgreco", "adaprec", "cautious")
LGRECO = ("--wire", "table:n=2")  # the error that L-GreCo allows
TRYING = ("adaprec", "cautious")  # policies that try wires
CALIBRATION_STEPS = 40


def run(options, seed: int, *more) -> dict:
    """One run on Fashion-MNIST, evaluated at its end."""
    common = (
        "--deck",
        "S",
        "--data",
        "fashion",
        "--seed",
        str(seed),
        "--evaluate-every",
        "0",
        "--data-dir",
        options.data_dir,
    )
    return launch(RANKS, APP, (*common, *more), look=looked)


def looked(out: Path) -> dict:
    """Seconds of trials and of decisions, and errors of predicted values, in the trace of rank 0."""
    trace = read(out / "rank-00000.h5")
    events = trace.tables["events"]
    number = {name: i for i, name in enumerate(trace.names)}
    took = events["end"] - events["start"]
    tried, decided = (
        float(took[events["name"] == number.get(name, -1)].sum()) / 1e9 for name in ("speculate", "decide")
    )
    frames = load([out])
    (own,) = ids(frames.runs)
    _, errors = expected(frames.of("choices", *own), frames.of("values", *own))
    known = np.abs(errors[np.isfinite(errors)]).tolist()
    return {"tried_s": tried, "decided_s": decided, "errors": known}


def accuracy(result: dict) -> float:
    """The accuracy on the test images, at the end."""
    return result["fom"]["accuracy"]["value"]


def spread(values: list[float]) -> dict[str, float]:
    """Median, minimum and maximum."""
    return ratio(values, [1.0] * len(values))


def wires(options) -> list[dict]:
    """Accuracies of all wires after the same number of steps."""
    tasks = {
        (wire, seed): partial(
            run, options, seed, "--guarantee", "layout", "--wire", wire, "--steps", str(options.steps)
        )
        for wire in WIRES
        for seed in range(1, options.seeds + 1)
    }
    reached = {name: accuracy(result) for name, result in each(tasks, options.quiet).items()}
    rows = []
    for wire in WIRES:
        own = [reached[wire, seed] for seed in range(1, options.seeds + 1)]
        rows.append(row("wires", wire, spread(own), own))
        if wire != WIRES[0]:
            lost = np.array([reached[WIRES[0], seed] for seed in range(1, options.seeds + 1)]) - own
            low, high = interval(lost, 0.95, 1)
            rows.append(
                row(
                    "wires",
                    f"float32 - {wire}",
                    f"{lost.mean():.4f} ({low:.4f} to {high:.4f})",
                    lost.tolist(),
                )
            )
    return rows


def policy(options) -> list[dict]:
    """Accuracies and regret of wires and policies after the same time."""
    seeds, rows = range(1, options.seeds + 1), []
    for link, links in RATES.items():
        over = ("--links", f"{links},latency=50e-6", "--allreduce", "direct", "--steps", str(options.steps))
        speeds = each(
            {
                w: partial(run, options, 1, *over, "--wire", w, "--until", str(CALIBRATION_STEPS))
                for w in CANDIDATES
            },
            options.quiet,
        )
        seconds = options.steps / max(result["fom"]["steps"]["value"] for result in speeds.values())
        timed = (*over, "--seconds", f"{seconds:.3f}")
        tasks = {(w, s): partial(run, options, s, *timed, "--wire", w) for s in seeds for w in CANDIDATES}
        chosen = ("--candidates", " ".join(CANDIDATES))
        tasks |= {
            (p, s): partial(
                run, options, s, *timed, *chosen, "--policy", p, *(LGRECO if p == "lgreco" else ())
            )
            for s in seeds
            for p in POLICIES
        }
        results = each(tasks, options.quiet)
        reached = {name: [accuracy(results[name, s]) for s in seeds] for name in (*CANDIDATES, *POLICIES)}
        rows.append(row("policy", f"{link}, seconds", round(seconds, 3), []))
        rows += [row("policy", f"{link}, {name}", spread(values), values) for name, values in reached.items()]
        for name in POLICIES:
            lost = regret({wire: reached[wire] for wire in CANDIDATES}, reached[name])
            figure = f"{lost.mean:.4f} ({lost.low:.4f} to {lost.high:.4f}) of {lost.best}"
            rows.append(row("policy", f"{link}, regret of {name}", figure, reached[name]))
            if name not in TRYING:
                continue
            for what, key in (("trials", "tried_s"), ("decisions", "decided_s")):
                parts = [results[name, s][key] / seconds for s in seeds]
                rows.append(row("policy", f"{link}, time of {what} of {name}", spread(parts), parts))
            errors = [error for s in seeds for error in results[name, s]["errors"]]
            figure = spread(errors or [np.nan])
            rows.append(row("policy", f"{link}, errors of values predicted by {name}", figure, errors))
    return rows


def each(tasks: dict, quiet: bool) -> dict:
    """Runs the tasks; returns {name: result}."""
    progress = Progress("benchmark", quiet=quiet)
    results = {}
    for k, (name, task) in enumerate(tasks.items()):
        progress.show(k / len(tasks), f"{name}")
        results[name] = task()
    progress.clear()
    return results


PARTS = {"wires": wires, "policy": policy}


def main(argv=None) -> None:
    """Measures the requested parts."""
    parser = parts_parser("apps.policies", __doc__, PARTS, rounds=1)
    parser.add_argument("--seeds", type=int, default=5, help="runs of each kind (default %(default)s)")
    parser.add_argument("--steps", type=int, default=468, help="steps of the problem (default %(default)s)")
    parser.add_argument(
        "--data-dir", default="", help="directory of Fashion-MNIST, where it is not installed"
    )
    run_parts("policies", parser, PARTS, argv)


if __name__ == "__main__":
    main()
