"""Times reading, querying, comparing and reporting: `python -m benchmarks.analysis` (10 minutes, 6 GB of disk).

The real trace writer writes the campaigns (`benchmarks.analysis.campaign`) once, into --scratch:

- load: 16 runs of 256 ranks, 4,096 files of 2,000 events. The first load, which writes the cache, against a plain h5py
  loop over every dataset of the same files in the same number of processes; a load from the cache; the query of
  variability; the ratio of peak memory to the size of all frames.
- divergence: two runs of 1,024 ranks with 10^7 fingerprints each; one block differs from one step on.
- report: 100 runs of 64 blocks on 8 ranks into one HTML file; a quarter of the runs differs.

Every measurement runs in a separate process, in turn with the one that it is compared with.
"""

import argparse
import json
import resource
import shutil
import subprocess
import sys
import time
from functools import partial
from pathlib import Path

from benchmarks.analysis.campaign import Shape, directory, write
from benchmarks.analysis.plain import PROCESSES, plain
from benchmarks.harness.results import parts_parser, row, run_parts
from benchmarks.harness.turns import in_turn, ratio


def main(argv=None) -> None:
    """Writes missing campaigns, measures, and reports."""
    parser = parts_parser("analysis", __doc__, PARTS, 5)
    parser.add_argument("--scratch", type=Path, default=Path("runs/benchmark-analysis"), help="(%(default)s)")
    parser.add_argument("--measure", nargs="+", help=argparse.SUPPRESS)
    asked = parser.parse_args(argv)
    if asked.measure:
        name, *arguments = asked.measure
        print(json.dumps(MEASURED[name](*map(Path, arguments))))
        return
    run_parts("analysis", parser, PARTS, argv)


def load_rows(asked) -> list[dict]:
    """First load, cached load, query, memory."""
    campaign = _campaign(asked, "load", Shape(16, 256, 100, changed={2: (40, 7)}))

    def first() -> dict:
        _forget(campaign)
        return _measure("first", campaign)

    calls = {"plain": partial(_measure, "plain", campaign), "first": first}
    measurements = in_turn(calls, asked.rounds, asked.quiet)
    seconds = {name: [each["s"] for each in results] for name, results in measurements.items()}
    cached = [_measure("cached", campaign) for _ in range(asked.rounds)]
    query = [_measure("query", campaign) for _ in range(asked.rounds)]
    command = [_command("variability", campaign) for _ in range(asked.rounds)]
    memory = [_measure("memory", campaign) for _ in range(asked.rounds)]
    return [
        row("load", "first load / plain h5py, 4,096 files x 2,000 events",
             ratio(seconds["first"], seconds["plain"]), measurements),
        row("load", "first load, s", spread(seconds["first"]), []),
        row("load", "plain h5py, s", spread(seconds["plain"]), []),
        row("load", "cached load, all frames, s", spread([each["s"] for each in cached]), cached),
        row("load", "cached load and variability, s", spread([each["s"] for each in query]), query),
        row("load", "the whole command `variability`, cached, s", spread(command), command),
        row("load", "peak memory / frames, first load and all frames", spread([e["ratio"] for e in memory]), memory),
    ]  # fmt: skip


def divergence_rows(asked) -> list[dict]:
    """First divergence of two large runs."""
    campaign = _campaign(asked, "divergence", Shape(2, 1024, 100, 49, changed={1: (50, 12345)}))
    runs = [directory(campaign, run) for run in range(2)]
    _forget(campaign)
    first = _measure("compare", *runs)
    repeats = [_measure("compare", *runs) for _ in range(asked.rounds)]
    assert all(each["place"] == [50, "vorticity", 12345] for each in repeats), repeats
    return [
        row("divergence", f"first divergence of {first['rows']:,} fingerprints, not cached, s", first["s"], first),
        row("divergence", "the same, cached, s", spread([each["s"] for each in repeats]), repeats),
        row("divergence", "share of the fingerprints read", spread([each["read"] for each in repeats]), []),
        row("divergence", "the whole command `divergence`, cached, s",
             spread([_command("divergence", *runs) for _ in range(asked.rounds)]), []),
    ]  # fmt: skip


def report_rows(asked) -> list[dict]:
    """The report on 100 runs."""
    changed = {run: (5, 17) for run in range(0, 100, 4)}
    campaign = _campaign(asked, "report", Shape(100, 8, 40, 8, changed=changed))
    out = asked.scratch / "report.html"
    _forget(campaign)
    first = _command("report", campaign, "-o", out)
    again = [_command("report", campaign, "-o", out) for _ in range(asked.rounds)]
    return [
        row("report", "report of 100 runs, not cached, s", first, first),
        row("report", "report of 100 runs, cached, s", spread(again), again),
        row("report", "its size, MB", out.stat().st_size / 1e6, []),
    ]


PARTS = {"load": load_rows, "divergence": divergence_rows, "report": report_rows}


def first(campaign: Path) -> dict:
    """A first load, with its cache written."""
    from analysis.load.frames import load

    begin = time.perf_counter()
    frames = load([campaign])
    seconds = time.perf_counter() - begin
    assert frames.excluded.empty
    return {"s": seconds}


def cached(campaign: Path) -> dict:
    """A load from the cache, with all frames in memory."""
    from analysis.load.frames import load

    begin = time.perf_counter()
    frames = load([campaign])
    rows = {table: len(getattr(frames, table)) for table in ("events", "values", "fingerprints", "order")}
    return {"s": time.perf_counter() - begin, "rows": rows}


def query(campaign: Path) -> dict:
    """A load from the cache and the table of variability."""
    from analysis.load.frames import load
    from analysis.variability import variability
    from analysis.verdict import judge

    begin = time.perf_counter()
    frames = load([campaign])
    groups = judge(frames)
    table = variability(frames)
    return {"s": time.perf_counter() - begin, "groups": len(groups), "rows": len(table)}


def memory(campaign: Path) -> dict:
    """Peak of this process beyond its imports, over the size of the frames, after a first load."""
    import pyarrow.parquet  # noqa: F401

    from analysis.load.frames import load

    _forget(campaign)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    frames = load([campaign])
    loaded = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    tables = (frames.runs, frames.events, frames.values, frames.fingerprints, frames.order)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    size = sum(table.memory_usage(deep=True).sum() for table in tables)
    readers = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss
    return {
        "ratio": float((peak - before) * 1024 / size), "frames_MB": size / 1e6, "peak_MB": (peak - before) / 1024,
        "after_load_MB": (loaded - before) / 1024, "imports_MB": before / 1024, "largest_reader_MB": readers / 1024,
    }  # fmt: skip


def compare(a: Path, b: Path) -> dict:
    """Load two runs and find their first divergence."""
    from analysis.divergence.compare import compare
    from analysis.load.frames import load

    begin = time.perf_counter()
    frames = load([a, b])
    comparison = compare(frames, (a.name, 0), (b.name, 0))
    seconds = time.perf_counter() - begin
    rows = [int(frames.leaves("fingerprints", run.name, 0).rows.sum()) for run in (a, b)]
    at = comparison.first
    return {
        "s": seconds, "rows": rows[0], "read": frames.store.rows_read("fingerprints") / sum(rows),
        "place": [at.step, at.name, at.block],
    }  # fmt: skip


MEASURED = {each.__name__: each for each in (plain, first, cached, query, memory, compare)}


def spread(seconds: list[float]) -> dict[str, float]:
    """Median, minimum and maximum."""
    return ratio(seconds, [1.0] * len(seconds))


def _campaign(asked, name: str, shape: Shape) -> Path:
    place = asked.scratch / name
    if not place.exists():
        part = place.with_suffix(".part")
        shutil.rmtree(part, ignore_errors=True)
        write(part, shape, PROCESSES)
        part.rename(place)
    return place


def _forget(campaign: Path) -> None:
    for cache in campaign.glob("*/.analysis"):
        shutil.rmtree(cache)


def _measure(name: str, *arguments: Path) -> dict:
    command = [sys.executable, "-m", "benchmarks.analysis", "--measure", name, *map(str, arguments)]
    return json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout)


def _command(*arguments) -> float:
    """Seconds of a whole `python -m analysis`."""
    begin = time.perf_counter()
    done = subprocess.run(
        [sys.executable, "-m", "analysis", *map(str, arguments)], capture_output=True, text=True
    )
    if done.returncode not in (0, 3):
        raise RuntimeError(f"analysis {' '.join(map(str, arguments))}: {done.stderr}")
    return time.perf_counter() - begin


if __name__ == "__main__":
    main()
