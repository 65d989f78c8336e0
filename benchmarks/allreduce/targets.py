"""Measures the figures that this suite must reach: ratios to the MPI library's own Allreduce, beside their limits.

    python -m benchmarks.allreduce targets --library both --json benchmarks/results/allreduce-targets.json

Every launch is a separate job under mpirun. The ratio of a launch is its median over rounds; shown are the median
launch and the extremes, at the size with the largest ratio.
"""

from __future__ import annotations

import argparse
import os
import signal
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks.allreduce.table import read, size_text
from benchmarks.harness.launching import LIBRARIES, ROOT, NotInstalled, launcher
from benchmarks.harness.results import add_quiet, machine, report

KIB, MIB = 1 << 10, 1 << 20
TIMEOUT = 600.0  # seconds that a job may take


@dataclass(frozen=True)
class Target:
    """The best of `orderings` takes at most `limit` times the library's time, for every size in [least, most] bytes."""

    orderings: tuple[str, ...]
    dtype: str
    least: int
    most: int
    limit: float

    @property
    def text(self) -> str:
        """The target in words, for the table."""
        return (
            f"{' or '.join(self.orderings)}, {self.dtype}, {size_text(self.least)} to {size_text(self.most)}"
        )


FAST = ("direct", "block-tree")
TARGETS = (
    Target(FAST, "float64", MIB, 16 * MIB, 1.0),
    Target(FAST, "float64", 8 * KIB, 512 * KIB, 1.5),
    Target(FAST, "float64", 8, 4 * KIB, 3.0),
    Target(("direct in exact",), "float32", 4 * MIB, 16 * MIB, 1.6),
    Target(("direct in exact",), "float64", 8, 64, 2.0),
)
MANY = Target(("direct",), "float64", 4 * MIB, 4 * MIB, 2.0)  # with very many ranks on one node
# One job measures all targets of one kind: orderings, type, and sizes by factors of two.
JOBS = (
    (FAST, "float64", 8, 16 * MIB),
    (("direct in exact",), "float32", 4 * MIB, 16 * MIB),
    (("direct in exact",), "float64", 8, 64),
)


def main(argv: list[str]) -> int:
    """Launches the jobs and prints measured ratios beside their limits; returns 0 if all hold, else 3."""
    command_line = parser()
    asked = command_line.parse_args(argv)
    if min(*asked.ranks, asked.launches) < 1 or asked.many < 0 or not asked.seconds > 0:
        command_line.error("--ranks, --launches: choose 1 or more; --many: 0 or more; --seconds: more than 0")
    where, rows = machine(), []
    libraries = LIBRARIES if asked.library == "both" else (asked.library,)
    try:
        for library in libraries:
            launcher(library)
    except NotInstalled as absent:
        print(f"python -m benchmarks.allreduce targets: {absent}", file=sys.stderr)
        return 2
    for library in libraries:
        for ranks in asked.ranks:
            rows += few(library, ranks, asked)
        if asked.many:
            rows += many(library, asked.many, asked)
    report("all-reduce targets", rows, where, asked.json)
    missed = sum(row["met"] != "yes" for row in rows)
    print(f"{len(rows) - missed} of {len(rows)} met")
    return 3 if missed else 0


def parser() -> argparse.ArgumentParser:
    command_line = argparse.ArgumentParser(
        prog="python -m benchmarks.allreduce targets",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    command_line.add_argument(
        "--library", default="both", choices=(*LIBRARIES, "both"), help="default: %(default)s"
    )
    command_line.add_argument("--ranks", type=int, nargs="+", default=[2, 4, 8], help="default: 2 4 8")
    command_line.add_argument(
        "--many", type=int, default=64, help="ranks on one node; 0: leave out (default %(default)s)"
    )
    command_line.add_argument("--launches", type=int, default=3, help="of each job (default %(default)s)")
    command_line.add_argument(
        "--seconds", type=float, default=0.3, help="for each cell in a launch (default %(default)s)"
    )
    command_line.add_argument(
        "--json", metavar="FILE", help="write table and ratios of all launches to this file"
    )
    add_quiet(command_line)
    return command_line


def few(library: str, ranks: int, asked) -> list[dict]:
    """All TARGETS for one library and number of ranks."""
    ratios: dict[tuple[str, str, int], list[float]] = {}
    for orderings, dtype, least, most in JOBS:
        options = [
            "--orderings",
            ",".join(orderings),
            "--dtype",
            dtype,
            "-b",
            str(least),
            "-e",
            str(most),
            "-f",
            "2",
        ]
        options += ["--seconds", str(asked.seconds)]
        for _ in range(asked.launches):
            collect(ratios, tried(library, ranks, options))
    return [judged(target, ratios, library, ranks) for target in TARGETS]


def many(library: str, ranks: int, asked) -> list[dict]:
    """The rows for very many ranks: whether every ordering ends, and the ratio of `direct`."""
    options = [
        "--orderings",
        "all",
        "-b",
        "64",
        "-e",
        "64",
        "--rounds",
        "1",
        "--repetitions",
        "2",
        "--warm-up",
        "1",
    ]
    ended = "yes" if tried(library, ranks, options) else "no"
    rows = [row("every ordering ends, 64 bytes", library, ranks, "-", "-", "-", "-", ended, [])]
    ratios: dict[tuple[str, str, int], list[float]] = {}
    size = str(MANY.least)
    options = [
        "--orderings",
        "direct",
        "-b",
        size,
        "-e",
        size,
        "--rounds",
        "5",
        "--repetitions",
        "20",
        "--warm-up",
        "2",
    ]
    for _ in range(asked.launches):
        collect(ratios, tried(library, ranks, [*options, "--seconds", "20"]))
    return [*rows, judged(MANY, ratios, library, ranks)]


def collect(ratios: dict[tuple[str, str, int], list[float]], result: dict | None) -> None:
    """Adds the ratios of a launch to `ratios`, by ordering, type and bytes."""
    for one in result["rows"] if result else ():
        if one["ratio"]:
            key = one["ordering"], result["about"]["dtype"], one["bytes"]
            ratios.setdefault(key, []).append(one["ratio"]["median"])


def judged(
    target: Target, ratios_of: dict[tuple[str, str, int], list[float]], library: str, ranks: int
) -> dict:
    """The row of a target: the best ordering at each size, at the worst size."""
    sizes = {b for name, dtype, b in ratios_of if name in target.orderings and dtype == target.dtype}
    best = []
    for nbytes in sorted(b for b in sizes if target.least <= b <= target.most):
        there = [n for n in target.orderings if (n, target.dtype, nbytes) in ratios_of]
        name = min(there, key=lambda n: statistics.median(ratios_of[n, target.dtype, nbytes]))
        best.append((statistics.median(ratios_of[name, target.dtype, nbytes]), nbytes, name))
    if not best:
        return row(target.text, library, ranks, "-", "-", "not measured", target.limit, "no", [])
    _, nbytes, name = max(best)
    ratios = ratios_of[name, target.dtype, nbytes]
    met = "yes" if statistics.median(ratios) <= target.limit else "no"
    raw = [(n, b, ratios_of[n, target.dtype, b]) for _, b, n in best]
    return row(target.text, library, ranks, size_text(nbytes), name, spread(ratios), target.limit, met, raw)


def row(target, library, ranks, at, by, ratio, limit, met, raw) -> dict:
    """A row of the table."""
    return {
        "target": target, "library": library, "ranks": ranks, "worst at": at, "by": by, "ratio": ratio,
        "limit": limit, "met": met, "raw": raw,
    }  # fmt: skip


def spread(ratios: Sequence[float]) -> dict[str, float]:
    """Median and extremes of the launches."""
    return {"median": statistics.median(ratios), "min": min(ratios), "max": max(ratios), "n": len(ratios)}


def tried(library: str, ranks: int, options: Iterable[str]) -> dict | None:
    """The result of a launch; prints the error and returns None if it failed or did not end."""
    try:
        return job(library, ranks, options)
    except (RuntimeError, subprocess.TimeoutExpired) as failure:
        print(failure, file=sys.stderr)
        return None


def job(library: str, ranks: int, options: Iterable[str]) -> dict:
    """Launches the benchmark once; returns its result. Raises RuntimeError if it fails, TimeoutExpired if it hangs."""
    command, extra = launcher(library)
    with tempfile.TemporaryDirectory() as scratch, open(Path(scratch) / "output", "w+") as output:
        out = Path(scratch) / "result.json"
        command += [
            "-n",
            str(ranks),
            sys.executable,
            "-m",
            "benchmarks.allreduce",
            *options,
            "--json",
            str(out),
        ]
        started = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            cwd=ROOT,
            env=os.environ | {"OMP_NUM_THREADS": "1"} | extra,
            start_new_session=True,
        )
        try:
            code = started.wait(TIMEOUT)
        finally:
            end(started)
        if code:
            output.seek(0)
            raise RuntimeError(f"{' '.join(command)} ended with {code}:\n{output.read()}")
        return read(str(out))


def end(job: subprocess.Popen) -> None:
    """Ends a job that may still run: by SIGTERM, so that mpirun ends its ranks, then by SIGKILL."""
    for sign in (signal.SIGTERM, signal.SIGKILL):
        if job.poll() is None:
            os.killpg(job.pid, sign)
            try:
                job.wait(10)
            except subprocess.TimeoutExpired:
                continue
