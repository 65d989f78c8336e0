"""Times commands on large campaigns: `python -m benchmarks.analysis.large` (2 hours on 2 cores, 12 GB of disk).

The storage of the real trace writer writes the campaigns (`benchmarks.analysis.campaign`) once, into --scratch; each is
read once before the measurement. Every command runs in a separate process; the table has its CPU time with its
children, its wall time, and the memory of its largest process.

- campaigns: 1,000, 3,000 and 10,000 runs of 2 ranks and 10 steps in one cell, every run with different bits.
- ranks: one run on 8,192 ranks; ranks-16384: one on 16,384.
- scaling: one run on 1,024 ranks with 2 x 10^7 events.
- exports: the run of `scaling` in other formats.
- events: one run on 512 ranks with 10^8 events.
- names: two runs with 2,000 values and 5,000 call sites.
"""

import argparse
import json
import os
import resource
import shutil
import subprocess
import sys
import time
from functools import partial
from pathlib import Path

from benchmarks.analysis.campaign import Shape, write
from benchmarks.analysis.plain import PROCESSES
from benchmarks.harness.results import parts_parser, run_parts

SMALL = Shape(1000, 2, 10, 4, cells=1, own=True)


def main(argv=None) -> None:
    """Writes missing campaigns, measures, and reports."""
    parser = parts_parser("analysis.large", __doc__, PARTS, 3)
    parser.add_argument("--scratch", type=Path, default=Path("runs/benchmark-analysis"), help="(%(default)s)")
    parser.add_argument("--measure", nargs=argparse.REMAINDER, help=argparse.SUPPRESS)
    asked = parser.parse_args(argv)
    if asked.measure:
        print(json.dumps(_measured(asked.measure)))
        return
    run_parts("analysis.large", parser, PARTS, argv)


def campaign_rows(runs: int, asked) -> list[dict]:
    """Rows of variability, also by a factor, report and show for `runs` small runs."""
    shape = Shape(runs, SMALL.ranks, SMALL.steps, SMALL.blocks, cells=1, own=True)
    place = _campaign(asked, f"small-{runs}", shape)
    page = asked.scratch / "report.html"
    return [
        *_rows(asked, f"{runs:,} runs", "variability", place),
        *_rows(asked, f"{runs:,} runs", "variability", place, "--by", "ordering"),
        *_rows(asked, f"{runs:,} runs", "report", place, "-o", page, page=page),
        *_rows(asked, f"{runs:,} runs", "show", place),
    ]


def ranks_rows(ranks: int, asked) -> list[dict]:
    """Rows of show, nodes and report for one run on `ranks` ranks."""
    place = _campaign(asked, f"ranks-{ranks}", Shape(1, ranks, 10, cells=1))
    page = asked.scratch / "report.html"
    return [
        *_rows(asked, f"{ranks:,} ranks", "show", place),
        *_rows(asked, f"{ranks:,} ranks", "nodes", place),
        *_rows(asked, f"{ranks:,} ranks", "report", place, "-o", page, page=page),
    ]


def scaling_rows(asked) -> list[dict]:
    """The rows of scaling for 1,024 ranks and 2 x 10^7 events."""
    place = _campaign(asked, "scaling", Shape(1, 1024, 1000, events=20, cells=1))
    return _rows(asked, "1,024 ranks, 20,480,000 events", "scaling", place)


def exports_rows(asked) -> list[dict]:
    """Rows of exports of 2 x 10^7 events, and of a tenth of them in the slower formats."""
    place = _campaign(asked, "scaling", Shape(1, 1024, 1000, events=20, cells=1))
    out = asked.scratch / "export.json.gz"
    rows = _rows(asked, "1,024 ranks, 20,480,000 events", "export", "perfetto", place, "-o", out, out=out)
    for form in ("otf2", "chakra"):
        out = asked.scratch / "exported" / form
        few = ("--steps", "1-100")
        what = "1,024 ranks, 2,048,000 of 20,480,000 events"
        rows += _rows(asked, what, "export", form, place, "-o", out, *few, out=out)
    return rows


def events_rows(asked) -> list[dict]:
    """Rows of show and of an export of two steps for 10^8 events."""
    place = _campaign(asked, "events", Shape(1, 512, 1000, events=200, cells=1))
    out = asked.scratch / "some.json.gz"
    what = "512 ranks, 102,400,000 events"
    return [
        *_rows(asked, what, "show", place),
        *_rows(
            asked,
            f"{what}, steps 500-501",
            "export",
            "perfetto",
            place,
            "-o",
            out,
            "--steps",
            "500-501",
            out=out,
        ),
    ]


def names_rows(asked) -> list[dict]:
    """Rows of show, growth, divergence and report for runs with many names."""
    place = _campaign(
        asked, "names", Shape(2, 2, 4, 4, events=5007, cells=1, own=True, sites=5000, names=2000)
    )
    page = asked.scratch / "report.html"
    what = "2,000 values, 5,000 call sites"
    return [
        *_rows(asked, what, "show", place),
        *_rows(asked, what, "growth", place),
        *_rows(asked, what, "divergence", *sorted(place.glob("run-*"))),
        *_rows(asked, what, "report", place, "-o", page, page=page),
    ]


PARTS = {
    **{f"campaigns-{runs}": partial(campaign_rows, runs) for runs in (1000, 3000, 10000)},
    "ranks": partial(ranks_rows, 8192), "ranks-16384": partial(ranks_rows, 16384),
    "scaling": scaling_rows, "exports": exports_rows, "events": events_rows, "names": names_rows,
}  # fmt: skip


def _rows(asked, what: str, *command, page: Path | None = None, out: Path | None = None) -> list[dict]:
    """The row of one command: the round with the median CPU time."""
    done = []
    for _ in range(asked.rounds):
        if out:
            _remove(out)
            out.parent.mkdir(exist_ok=True)
        call = [sys.executable, "-m", "benchmarks.analysis.large", "--measure", *map(str, command)]
        done.append(json.loads(subprocess.run(call, check=True, stdout=subprocess.PIPE, text=True).stdout))
    middle = sorted(done, key=lambda each: each["cpu_s"])[len(done) // 2]
    size = _size(page or out) / 1e6 if page or out else middle["text_MB"]
    keys = {key: middle[key] for key in ("cpu_s", "wall_s", "peak_GB", "first_sign_s")}
    shown = " ".join(part for part in command if isinstance(part, str) and part != "-o")
    return [{"what": what, "command": shown, **keys, "output_MB": round(size, 3), "raw": done}]


def _measured(command: list[str]) -> dict:
    """Runs `python -m analysis` once: times, memory of the largest process, size of its text, time of first output."""
    begin = time.perf_counter()
    with subprocess.Popen(
        [sys.executable, "-m", "analysis", *command], stdout=subprocess.PIPE, stderr=subprocess.STDOUT
    ) as process:
        assert process.stdout
        first = process.stdout.read(1)
        sign = time.perf_counter() - begin
        rest = process.stdout.read()
    wall = time.perf_counter() - begin
    if process.returncode not in (0, 3):
        raise RuntimeError(f"analysis {' '.join(command)}: {(first + rest)[-2000:].decode(errors='replace')}")
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return {
        "cpu_s": round(used.ru_utime + used.ru_stime, 2), "wall_s": round(wall, 2),
        "peak_GB": round(used.ru_maxrss * 1024 / 1e9, 3), "first_sign_s": round(sign, 2),
        "text_MB": len(first + rest) / 1e6, "load": os.getloadavg()[0],
    }  # fmt: skip


def _written(out: Path) -> list[Path]:
    """The files that an export wrote for `-o out`."""
    files = [*out.parent.glob(f"{out.name}*")]
    return [file for place in files for file in ([place] if place.is_file() else place.rglob("*"))]


def _size(out: Path) -> int:
    return sum(file.stat().st_size for file in _written(out) if file.is_file())


def _remove(out: Path) -> None:
    for place in out.parent.glob(f"{out.name}*"):
        shutil.rmtree(place) if place.is_dir() else place.unlink()


def _campaign(asked, name: str, shape: Shape) -> Path:
    place = asked.scratch / name
    if not place.exists():
        part = place.with_suffix(".part")
        shutil.rmtree(part, ignore_errors=True)
        write(part, shape, PROCESSES)
        part.rename(place)
    # Read once, so that all measurements read from the cache.
    call = [sys.executable, "-m", "analysis", "nodes", str(place)]
    subprocess.run(call, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    return place


if __name__ == "__main__":
    main()
