"""Counts what rounding decides: runs of one problem whose sums are added in other orders, on other numbers of ranks.

    python -m benchmarks.apps.decisions --matrices DIR --data-dir DIR --json benchmarks/results/decisions.json

solver     every matrix of --matrices, b = A x of a random x, to 1e-8 or 1,000 iterations, by BiCGStab and GMRES, and
           by conjugate gradients where it is symmetric: how many iterations, and whether it converged. The file has
           the sentence of each matrix that is refused
clusters   k-means with 10 clusters on digits and on Fashion-MNIST, in float32 and float64, from --seeds drawn starts:
           the cluster of each point, the iterations
networks   mlp on digits, cnn on Fashion-MNIST, graphsage on Cora, from --seeds starts: the class of each test sample
coupled    200 steps of turbulence (deck S) from --seeds starts: the iterations of each Poisson solve
arrivals   cnn and k-means on 4 ranks, added in the order in which messages arrive (--allreduce arrival), and graphsage
           by 2 threads in the order in which they come (omp atomic): each --launches times, on cores that nothing else
           of this benchmark uses, beside a busy process for each core, and on one core. Different results, decisions,
           and Kendall's tau between the ranks and their messages' order of arrival, mean over all reductions

Every problem of the other parts runs on 1, 2, 3 and 4 ranks without a guarantee, on several ranks in --orders drawn
orders of additions (--allreduce permuted:seed=K). The analysis `decisions` compares the runs.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from benchmarks.harness.launching import mpirun, output_of
from benchmarks.harness.results import parts_parser, row, run_parts
from kernels.progress import Progress

RANKS = (1, 2, 3, 4)
METHODS = ("cg", "bicgstab", "gmres-mgs")
LIMIT = 1000  # iterations
STEPS = 200  # of coupled
LOADED, ONE_CORE = "busy cores", "one core"
CONDITIONS = ("free cores", LOADED, ONE_CORE)


def solver(options: argparse.Namespace) -> list[dict]:
    """Iterations and convergence over matrices."""
    if not options.matrices:
        raise SystemExit("solver: --matrices DIR: give a directory of Matrix Market files")
    files = [path for folder in options.matrices for path in sorted(folder.glob("*.mtx"))]
    problems = {
        (method, path.stem): [
            "solver", "--matrix", str(path), "--method", method, "--right-side", "random",
            "--max-iterations", str(LIMIT), "--set", "record.every=0", "--set", "grid.rows_per_block=16",
        ]
        for path in files
        for method in METHODS
        if method != "cg" or "symmetric" in path.open().readline().split()
    }  # fmt: skip
    return rows_of("solver", problems, options)


def clusters(options: argparse.Namespace) -> list[dict]:
    """Clusters of points."""
    problems = {
        (f"{data}, {dtype}", str(seed)): ["clusters", "--data", data, *directory(data, options), "--dtype", dtype,
                                          "--seed", str(seed), "--set", f"clusters.block={block}"]
        for data, block in (("digits", 64), ("fashion", 512))
        for dtype in ("float32", "float64")
        for seed in range(1, options.seeds + 1)
    }  # fmt: skip
    return rows_of("clusters", problems, options)


def networks(options: argparse.Namespace) -> list[dict]:
    """Classes of test samples."""
    problems = {
        (name, str(seed)): [*own, "--seed", str(seed)]
        for name, own in models(options).items()
        for seed in range(1, options.seeds + 1)
    }
    return rows_of("networks", problems, options)


def models(options: argparse.Namespace) -> dict[str, list[str]]:
    """The application and the arguments of each network."""
    decks = {
        "mlp": ["--deck", "S"],
        "cnn": ["--deck", "M", "--steps", "60", *directory("fashion", options)],
        "graphsage": ["--deck", "graphsage", "--set", "model.hidden=64", "--set", "training.micro=20"],
    }
    common = ["--evaluate-every", "0", "--set", "training.calls=block"]
    return {name: ["training", *deck, *common] for name, deck in decks.items()}


def coupled(options: argparse.Namespace) -> list[dict]:
    """Iterations of Poisson solves in turbulence."""
    problems = {
        ("turbulence", str(seed)): ["coupled", "--deck", "S", "--steps", str(STEPS), "--seed", str(seed)]
        for seed in range(1, options.seeds + 1)
    }
    return rows_of("coupled", problems, options)


def arrivals(options: argparse.Namespace) -> list[dict]:
    """Orders of arrival of real messages and threads, on idle, busy and too few cores."""
    known = models(options)
    points = ["clusters", "--data", "fashion", *directory("fashion", options), "--dtype", "float32"]
    cases = {
        "cnn, messages": (4, [*known["cnn"], "--allreduce", "arrival"]),
        "k-means, messages": (4, [*points, "--set", "clusters.block=512", "--allreduce", "arrival"]),
        "graphsage, threads": (1, [*known["graphsage"], "--aggregate", "atomic", "--threads", "2"]),
    }
    rows, progress = [], Progress("benchmark", quiet=options.quiet)
    places = [(case, condition) for case in cases for condition in CONDITIONS]
    for k, (case, condition) in enumerate(places):
        ranks, (app, *given) = cases[case]
        command = [*mpirun(), "-n", str(ranks), sys.executable, "-m", f"miniapps.{app}", *given]
        with tempfile.TemporaryDirectory() as scratch, on_cores(condition):
            outs = [Path(scratch, f"run-{number}") for number in range(options.launches)]
            results = []
            for number, out in enumerate(outs):
                progress.show((k + number / len(outs)) / len(places), f"{case}, {condition}")
                printed = run([*command, "--no-progress"], out)
                results.append(
                    next(line for line in printed.splitlines() if line.startswith("FINGERPRINT state="))
                )
            compared = differences(Path(scratch))
            taus = agreement(outs) if ranks > 1 else []
        what, pairs = f"{case}, {condition}", sum(one["pairs"] for one in compared)
        differing = sum(one["differing"] for one in compared)
        rows += [
            row("arrivals", f"{what}: different results", f"{len(set(results))} of {len(results)}"),
            row("arrivals", f"{what}: pairs that decide differently", f"{differing} of {pairs}", compared),
            row(
                "arrivals",
                f"{what}: decisions that changed, most",
                max(one["changed_most"] for one in compared),
            ),
        ]
        if taus:
            rows.append(row("arrivals", f"{what}: Kendall's tau", statistics.fmean(taus), taus))
    progress.clear()
    return rows


@contextlib.contextmanager
def on_cores(condition: str) -> Iterator[None]:
    """What starts here has all cores, beside a process on each that computes all the time, or one core."""
    own = os.sched_getaffinity(0)
    busy = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in own if condition == LOADED]
    if condition == ONE_CORE:
        os.sched_setaffinity(0, {min(own)})
    try:
        yield
    finally:
        os.sched_setaffinity(0, own)
        for process in busy:
            process.kill()
            process.wait()


def agreement(outs: list[Path]) -> list[float]:
    """Kendall's tau of each run: between ranks, without rank 0, which adds, and the order in which their messages
    arrived; mean over its reductions."""
    from scipy.stats import kendalltau

    from miniapps.trace import read
    from miniapps.trace.schema import rank_file

    found = []
    for out in outs:
        orders = read(out / rank_file(0)).tables["order"]["ranks"][:, 1:]
        found.append(
            statistics.fmean(kendalltau(np.arange(orders.shape[1]), order).statistic for order in orders)
        )
    return found


def directory(data: str, options: argparse.Namespace) -> list[str]:
    """The option for the directory of a data set that does not come with this suite."""
    return ["--data-dir", options.data_dir] if data == "fashion" and options.data_dir else []


def rows_of(part: str, problems: dict[tuple[str, str], list[str]], options: argparse.Namespace) -> list[dict]:
    """Runs each problem, and compares its runs. `problems`: {(kind, name): application and its arguments}; the problems
    of a kind are counted together."""
    rows, compared, refused = [], [], {}
    progress = Progress("benchmark", quiet=options.quiet)
    for k, ((kind, name), (app, *given)) in enumerate(problems.items()):
        progress.show(k / len(problems), f"{kind}, {name}")
        with tempfile.TemporaryDirectory() as scratch:
            try:
                for ranks in RANKS:
                    command = [*mpirun(), "-n", str(ranks), sys.executable, "-m", f"miniapps.{app}", *given]
                    for seed in range(1, options.orders + 1 if ranks > 1 else 2):
                        order = ["--allreduce", f"permuted:seed={seed}", "--no-progress"]
                        run([*command, *order], Path(scratch, f"on-{ranks}-{seed}"))
            except Refused as error:
                refused[f"{kind}, {name}"] = str(error)
                continue
            compared += [{**one, "kind": kind, "problem": name} for one in differences(Path(scratch))]
    progress.clear()
    groups: dict[tuple[str, str, str], list[dict]] = {}
    for one in compared:
        groups.setdefault((one["kind"], one["name"], one["factor"]), []).append(one)
    for key, own in groups.items():
        what, pairs = ", ".join(key), sum(one["pairs"] for one in own)
        several = [one for one in own if one["differing"]]
        largest = max((one["margin_changed"] or 0.0 for one in several), default=0.0)
        rows += [
            row(part, f"{what}: problems", f"{len(several)} of {len(own)}", own),
            row(part, f"{what}: share of problems", len(several) / len(own)),
            row(part, f"{what}: share of pairs", sum(one["differing"] for one in own) / pairs),
            row(part, f"{what}: decisions that changed, most", max(one["changed_most"] for one in own)),
            row(part, f"{what}: largest margin that changed", largest),
        ]
    if refused:
        figure = f"{len(refused)} of {len(problems)}"
        rows.append(row(part, f"{part}: refused", figure, refused))
    return rows


def differences(scratch: Path) -> list[dict]:
    """What the analysis finds of all runs below a directory: a row for each decision and factor."""
    from analysis.load.frames import load
    from analysis.overview import Overview
    from analysis.studies.decisions.study import STUDY

    found = STUDY.read(Overview(load([scratch])), None).rows.drop(columns=["app", "family"])
    return found.astype(object).where(found.notna(), None).to_dict("records")


class Refused(RuntimeError):
    """A problem that an application refuses; the sentence."""


def run(command: list[str], out: Path) -> str:
    """The output of one run. A check that fails is no failure. Raises Refused for bad input, RuntimeError for any other
    failure."""
    try:
        return output_of([*command, "--out", str(out)], cwd=None)
    except RuntimeError as error:
        text = str(error)
        if " ended with 3:" in text:  # a solve that does not converge
            return text
        if " ended with 2:" in text:
            raise Refused(text.strip().splitlines()[-1]) from error
        raise


PARTS = {
    "solver": solver,
    "clusters": clusters,
    "networks": networks,
    "coupled": coupled,
    "arrivals": arrivals,
}


def main(argv: list[str] | None = None) -> None:
    """Counts the requested parts."""
    parser = parts_parser("apps.decisions", __doc__, PARTS, rounds=1)
    parser.add_argument(
        "--matrices", type=Path, metavar="DIR", action="append", default=[],
        help="directory of Matrix Market files, for solver; can be repeated",
    )  # fmt: skip
    parser.add_argument(
        "--seeds", type=int, default=5, help="drawn starts of a problem (default %(default)s)"
    )
    parser.add_argument("--orders", type=int, default=2, help="drawn orders on several ranks (%(default)s)")
    parser.add_argument("--launches", type=int, default=6, help="of each case of arrivals (%(default)s)")
    parser.add_argument(
        "--data-dir", default="", help="directory of Fashion-MNIST, where it is not installed"
    )
    run_parts("decisions", parser, PARTS, argv)


if __name__ == "__main__":
    main()
