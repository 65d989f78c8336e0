"""Measures how often the analysis names the cause of a divergence: injects random faults and compares with clean runs.

    python -m benchmarks.apps.first_divergence                          # a minute or two
    python -m benchmarks.apps.first_divergence --faults 10 --apps solver --json benchmarks/results/first-divergence.json

For every application and kind of fault, `--faults` random specifications (step, block, rank, call and bit, from
`--seed`) run on 3 ranks, and are compared with a run without fault:

messages   both runs record messages between records of the state (--record messages)
state      both runs record only states, the default
ranks      as messages, but the clean run has 2 ranks, under --guarantee layout with the ordering block-tree

A fault that changes no recorded bit is `masked` and counted separately. For the others, the table has the counts of
right classes and of right places (step, name, block, rank and call), with intervals of Clopper and Pearson.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import json
import random
import sys
import tempfile
from collections import Counter
from dataclasses import asdict, dataclass
from pathlib import Path

from benchmarks.harness.launching import mpirun, output_of
from benchmarks.harness.results import add_quiet, machine, save

RANKS, OTHER_RANKS = 3, 2
SMALL = {
    "coupled": {
        "grid.nx": 32, "grid.ny": 32, "grid.bx": 8, "grid.by": 8, "time.steps": 3, "closure.kind": "none",
        "poisson.max_iterations": 40, "poisson.tolerance": 1e-6,
    },
    "solver": {
        "grid.nx": 12, "grid.ny": 12, "grid.nz": 12, "grid.bx": 4, "grid.by": 4, "grid.bz": 4,
        "problem.right_side": "random", "solve.tolerance": 1e-6, "solve.max_iterations": 12,
    },
}  # fmt: skip
BLOCKS = {"coupled": 16, "solver": 27}
STEPS = {"coupled": (1, 3), "solver": (1, 6)}  # (first, last) step for faults; every run has them
CALLS = {  # calls in every step, by kind of fault: kernels, exchanges, all-reduces
    "coupled": {"kernel-bit": 3, "lost-halo": 12, "swap-order": 12},
    "solver": {"kernel-bit": 1, "lost-halo": 1, "swap-order": 2},
}
MESSAGES = {"coupled": 2, "solver": 1}  # messages that every rank receives in an exchange, at least
KERNEL = {"coupled": "rhs", "solver": "spmv"}
STATE = {"coupled": "vorticity", "solver": "r"}
DRAWN = {"coupled": "vorticity", "solver": "solution"}
CLASSES = {
    "kernel-bit": "local kernel", "bitflip": "memory", "swap-order": "collective", "swap-arrival": "message order",
    "lost-halo": "halo exchange", "seed": "input",
}  # fmt: skip
# Options of the runs, by kind of comparison.
FIXED, ARRIVAL = ["--guarantee", "run"], ["--allreduce", "arrival"]
TREE = ["--guarantee", "layout", "--allreduce", "block-tree"]


@dataclass(frozen=True)
class Case:
    """One comparison of the run with a fault in `out` with the clean run in `reference`; both are directories."""

    app: str
    kind: str
    how: str
    spec: str
    reference: str
    out: str


def draw(app: str, kind: str, source: random.Random) -> str:
    """A random specification of a fault of `kind`."""
    step, block = source.randint(*STEPS[app]), source.randrange(BLOCKS[app])
    call = source.randrange(CALLS[app].get(kind.replace("arrival", "order"), 1))
    rank, other = source.sample(range(RANKS), 2)
    bit, index = source.randrange(52), source.randrange(64)
    return {
        "kernel-bit": f"kernel-bit@step={step},block={block},call={call},bit={bit},index={index}",
        "bitflip": f"bitflip@step={step},block={block},bit={bit},index={index}",
        "swap-order": f"swap-order@step={step},rank={rank},other={other},call={call}",
        "swap-arrival": f"swap-order@step={step},rank={rank},other={other},call={call}",
        "lost-halo": f"lost-halo@step={step},rank={rank},call={call},message={source.randrange(MESSAGES[app])}",
        "seed": f"seed@block={block}",
    }[kind]


def plan(root: Path, apps, faults: int, seed: int, hows=("messages", "state", "ranks"), only=tuple(CLASSES)):
    """(cases, {ranks: [(app, argv), ...]}) of all runs, clean runs first."""
    source = random.Random(seed)
    cases, jobs = [], {RANKS: [], OTHER_RANKS: []}
    for app in apps:
        for how in hows:
            record = ["--record", "state" if how == "state" else "messages"]
            kinds = [kind for kind in only if how != "ranks" or kind != "swap-arrival"]
            for kind in kinds:
                arrival = kind == "swap-arrival"
                method = TREE if how == "ranks" else ARRIVAL if arrival else FIXED
                clean = root / f"{app}-{how}-{'arrival' if arrival else 'fixed'}"
                where = OTHER_RANKS if how == "ranks" else RANKS
                command = [*method, *record]
                if not any(argv[-1] == str(clean) for _, argv in jobs[where]):
                    jobs[where].append((app, [*command, "--out", str(clean)]))
                replay = ["--replay", str(clean)] if arrival else []
                for i in range(faults * (2 if "swap" in kind else 1)):  # most swaps change no bit
                    spec, out = draw(app, kind, source), root / f"{app}-{how}-{kind}-{i}"
                    jobs[RANKS].append((app, [*command, *replay, "--fault", spec, "--out", str(out)]))
                    cases.append(Case(app, kind, how, spec, str(clean), str(out)))
    return cases, jobs


def run(jobs: dict[int, list], root: Path) -> None:
    """Runs all jobs, those for one number of ranks in one launch. Raises RuntimeError if one fails."""
    for ranks, listed in sorted(jobs.items()):
        path = root / f"jobs-{ranks}.json"
        path.write_text(json.dumps(listed))
        own = [sys.executable, "-m", "benchmarks.apps.first_divergence", "--work", str(path)]
        output_of([*mpirun(), "-n", str(ranks), *own])


def work(path: str) -> int:
    """Runs every job of the file on this rank, one after the other; returns the exit code."""
    from mpi4py import MPI

    from miniapps import coupled, solver
    from miniapps.runner.main import main as start

    apps = {"coupled": coupled.APP, "solver": solver.APP}
    for app, argv in json.loads(Path(path).read_text()):
        settings = [f"--set={key}={value}" for key, value in SMALL[app].items()]
        output = io.StringIO()
        with contextlib.redirect_stdout(output):
            code = start(apps[app], [*settings, "--no-progress", "--log-level=error", *argv], MPI.COMM_WORLD)
        if code not in (0, 3):  # 3: a check of the application found the fault too
            print(argv, output.getvalue(), file=sys.stderr, flush=True)
            return 1
    return 0


def judge(case: Case) -> dict:
    """The judgement of a case: `masked`, or the diagnosis and whether its class and place are right."""
    from analysis.divergence.cause import cause
    from analysis.divergence.compare import compare
    from analysis.load.frames import load

    frames = load([case.reference, case.out], copies=True)
    runs = {
        Path(path).name: (run, 0) for run, path in zip(frames.runs["run"], frames.runs["path"], strict=True)
    }
    comparison = compare(frames, runs[Path(case.reference).name], runs[Path(case.out).name])
    diagnosis = cause(frames, comparison)
    if diagnosis is None:
        return asdict(case) | {"masked": True}
    answer = {
        "class": diagnosis.kind, "instead": diagnosis.instead, "step": diagnosis.step, "name": diagnosis.name,
        "rank": diagnosis.rank, "block": diagnosis.at.block,
        "call": None if diagnosis.event is None else diagnosis.event.call,
    }  # fmt: skip
    truth = place(case, frames)
    shown = {key: sorted(right) if isinstance(right, set) else right for key, right in truth.items()}
    return asdict(case) | {
        "masked": False, "said": answer, "truth": shown,
        "class_right": diagnosis.kind == CLASSES[case.kind],
        "place_right": all(answer[key] in v if isinstance(v, set) else answer[key] == v for key, v in truth.items()),
    }  # fmt: skip


def place(case: Case, frames) -> dict:
    """The true place of the fault of a case: step, name, block, rank, call; a set where several values are right.

    It follows from the specification, the application's ownership of blocks and, for an all-reduce, the names of the
    clean run's events.
    """
    from analysis.load.timeline import timeline

    given = {
        key: int(value) for key, value in (part.split("=") for part in case.spec.partition("@")[2].split(","))
    }
    owner = _owners(case.app)
    if case.kind == "seed":
        return {"step": 0, "name": DRAWN[case.app], "block": given["block"], "rank": owner[given["block"]]}
    if case.kind in ("kernel-bit", "bitflip"):
        name = (KERNEL if case.kind == "kernel-bit" else STATE)[case.app]
        own = {"step": given["step"], "name": name, "block": given["block"], "rank": owner[given["block"]]}
        return own | ({"call": given["call"]} if case.kind == "kernel-bit" else {})
    if case.kind == "lost-halo":
        blocks = {block for block, rank in enumerate(owner) if rank == given["rank"]}
        return {
            "step": given["step"],
            "name": "halo",
            "block": blocks,
            "rank": given["rank"],
            "call": given["call"],
        }
    events = timeline(case.reference, 0, [given["step"]], [0])
    reductions = json.loads((Path(case.reference) / "result.json").read_text())["reductions"]
    # Maxima are not swapped.
    known = {each["region"] for each in reductions.values() if each["operation"] == "sum"}
    sums = [name for name in events.sort_values("index")["name"] if name in known]
    name = sums[given["call"]]
    call = sums[: given["call"]].count(name)
    return {
        "step": given["step"],
        "name": name.removeprefix("allreduce."),
        "block": -1,
        "rank": None,
        "call": call,
    }


def _owners(app: str) -> list[int]:
    """The rank of every block in a run on RANKS ranks, as the application assigns them."""
    from miniapps.layout.owners import contiguous_owner
    from miniapps.linear.box import Box
    from miniapps.solver.problem import box_rows

    if app == "coupled":
        return contiguous_owner(BLOCKS[app], RANKS).tolist()
    return box_rows(Box(12, 12, 12, (4, 4, 4)), RANKS, 0, 0).owner.tolist()


def accuracy(judged: list[dict]) -> list[dict]:
    """A row per (application, how, kind): numbers of faults, masked ones, right classes and places, with 95 %
    intervals."""
    from scipy.stats import binomtest

    rows = []
    for key in dict.fromkeys((j["app"], j["how"], j["kind"]) for j in judged):
        same = [j for j in judged if (j["app"], j["how"], j["kind"]) == key]
        seen = [j for j in same if not j["masked"]]
        row = dict(zip(("app", "how", "kind"), key, strict=True)) | {
            "expected": CLASSES[key[2]], "faults": len(same), "masked": len(same) - len(seen),
            "said": dict(Counter(j["said"]["class"] for j in seen)),
        }  # fmt: skip
        for what in ("class", "place"):
            right = sum(j[f"{what}_right"] for j in seen)
            interval = binomtest(right, len(seen)).proportion_ci(0.95, "exact") if seen else (0.0, 1.0)
            row |= {f"{what}_right": right, f"{what}_interval": [float(x) for x in interval]}
        rows.append(row)
    return rows


def measure(
    apps, faults: int, seed: int, root: Path, hows=("messages", "state", "ranks"), kinds=tuple(CLASSES)
) -> list[dict]:
    """Runs and judges all cases; returns the judgements."""
    cases, jobs = plan(root, apps, faults, seed, hows, kinds)
    run({ranks: listed for ranks, listed in jobs.items() if listed}, root)
    return [judge(case) for case in cases]


def main(argv=None) -> None:
    """Measures, prints the table, writes JSON."""
    parser = argparse.ArgumentParser("python -m benchmarks.apps.first_divergence", description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)  # fmt: skip
    parser.add_argument("--faults", type=int, default=30, help="faults of each kind (default %(default)s)")
    parser.add_argument(
        "--seed", type=int, default=1, help="seed of the specifications (default %(default)s)"
    )
    parser.add_argument("--apps", nargs="+", choices=list(SMALL), default=list(SMALL))
    parser.add_argument("--kinds", nargs="+", choices=list(CLASSES), default=list(CLASSES))
    parser.add_argument("--json", type=Path, help="write the table and wrong judgements to this file")
    parser.add_argument("--work", help=argparse.SUPPRESS)
    add_quiet(parser)
    options = parser.parse_args(argv)
    if options.work:
        sys.exit(work(options.work))
    with tempfile.TemporaryDirectory() as scratch:
        judged = measure(options.apps, options.faults, options.seed, Path(scratch), kinds=options.kinds)
    rows = accuracy(judged)
    for row in rows:
        seen = row["faults"] - row["masked"]
        shares = []
        for what in ("class", "place"):
            low, high = row[f"{what}_interval"]
            shares.append(f"{what} {row[f'{what}_right']}/{seen} ({low:.0%} to {high:.0%})")
        line = f"{row['app']:8} {row['how']:9} {row['kind']:13} masked {row['masked']:2}  {'  '.join(shares)}"
        print(line, row["said"])
    if options.json:
        wrong = [j for j in judged if not j["masked"] and not (j["class_right"] and j["place_right"])]
        content = {
            "machine": machine(),
            "seed": options.seed,
            "ranks": RANKS,
            "accuracy": rows,
            "wrong": wrong,
        }
        save(content, options.json)


if __name__ == "__main__":
    main()
