"""Results of benchmarks: the machine, the parts of a benchmark, tables and JSON files."""

import argparse
import itertools
import json
import os
import platform
import re
import subprocess
from collections.abc import Sequence
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path

from benchmarks.harness.launching import mpirun
from kernels.commands.options import add_loudness

PACKAGES = ("numpy", "mpi4py", "h5py", "pandas", "pyarrow", "torch", "fpna-miniapps")


def machine() -> dict:
    """Date, processor, load and versions: the figures of a run depend on them."""
    return {
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "cores": len(os.sched_getaffinity(0)),
        "cpu": _processor(),
        "load_before": os.getloadavg()[0],
        "python": platform.python_version(),
        "packages": {name: _version(name) for name in PACKAGES},
        "mpirun": _mpirun_version(),
    }


def _processor() -> str:
    """Name, family and model of the processor: virtual machines name processors of several generations alike."""
    first = {}
    for line in _lines("/proc/cpuinfo"):
        name, _, value = line.partition(":")
        first.setdefault(name.strip(), value.strip())
    if "model name" not in first:
        return platform.processor()
    numbers = [
        f"{name.removeprefix('cpu ')} {first[name]}" for name in ("cpu family", "model") if name in first
    ]
    return " ".join([first["model name"], *([f"({', '.join(numbers)})"] if numbers else [])])


def _mpirun_version() -> str:
    try:
        command = [*mpirun(), "--version"]
    except RuntimeError:  # benchmarks of one process do not need it
        return "absent"
    return subprocess.run(command, capture_output=True, text=True).stdout.split("\n")[1].strip()


def _lines(path: str):
    try:
        return Path(path).read_text().splitlines()
    except OSError:
        return []


def _version(name: str) -> str:
    try:
        return version(name)
    except ImportError:
        return "absent"


def row(part: str, what: str, figure: object, raw: Sequence | dict = ()) -> dict:
    """A row of most tables: its part, the quantity, the figure that is shown, and the values behind it."""
    return {"part": part, "what": what, "figure": figure, "raw": raw}


def parts_parser(title: str, doc: str, parts: dict, rounds: int) -> argparse.ArgumentParser:
    """The parser of a benchmark with parts; a benchmark may add its own options."""
    parser = argparse.ArgumentParser(
        prog=f"python -m benchmarks.{title}",
        description=doc,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("parts", nargs="*", metavar="PART", help=f"one of {', '.join(parts)}; default: all")
    parser.add_argument("--rounds", type=int, default=rounds, help="rounds that count (default %(default)s)")
    parser.add_argument(
        "--json",
        help="write table and raw values to this file, or under a name of its own into this directory",
    )
    add_quiet(parser)
    return parser


def add_quiet(parser: argparse.ArgumentParser) -> None:
    """Adds the option `--quiet` of all benchmarks."""
    add_loudness(parser, "results alone, no progress on standard error")


def run_parts(title: str, parser: argparse.ArgumentParser, parts: dict, argv) -> list[dict]:
    """Runs the requested parts with the parsed options; reports and returns their rows."""
    options = parser.parse_args(argv)
    if unknown := set(options.parts) - set(parts):
        parser.error(f"unknown part {', '.join(sorted(unknown))}; there are {', '.join(parts)}")
    where = machine()
    rows = [row for part in options.parts or parts for row in parts[part](options)]
    report(title, rows, where, options.json)
    return rows


def report(title: str, rows: list[dict], where: dict, path: str | None, hidden=("raw",)) -> None:
    """Prints rows as a table, with the columns of the first row except `hidden`, and writes them as JSON to `path`."""
    columns = [c for c in rows[0] if c not in hidden]
    texts = [[_text(row[c]) for c in columns] for row in rows]
    widths = [max(len(c), *(len(t[k]) for t in texts)) for k, c in enumerate(columns)]
    print(f"{title}: {where['cores']} cores, {where['cpu']}")
    for line in [columns, *texts]:
        print("  " + "  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip())
    if path:
        save({"title": title, "machine": where, "rows": rows}, path)


def save(content: dict, path: str | Path, again: bool = False) -> Path:
    """Writes `content` as JSON to `path`, a line for each item of its lists, without their key `raw`; returns the path.
    If an item has `raw`, writes everything to PATH.raw.json too, which is not in the repository.

    A directory gets a file that is named after title, cores, processor and day. A file that is there stays: the new one
    gets a number, unless it is the same measurement `again`, with more rows.
    """
    path = Path(path)
    if path.is_dir():
        path /= named(content)
    path = path if again else unused(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    parts = [f" {json.dumps(key)}: {_lines_of(value)}" for key, value in content.items()]
    path.write_text("{\n" + ",\n".join(parts) + "\n}\n")
    if any("raw" in item for value in content.values() if isinstance(value, list) for item in value):
        path.with_suffix(".raw.json").write_text(json.dumps(content, indent=1) + "\n")
    print(f"  written to {path}")
    return path


def named(content: dict) -> str:
    """`any-processor-2-cores-amd-epyc-2026-11-27.json`."""
    where = content["machine"]
    parts = [content["title"], f"{where['cores']} cores", where["cpu"], where["date"][:10]]
    words = re.sub(r"\((r|tm)\)", "", " ".join(parts).lower())
    return re.sub(r"[^a-z0-9]+", "-", words).strip("-") + ".json"


def unused(path: Path) -> Path:
    """`path`, or if it is there the first of NAME-2, NAME-3, ... that is not."""
    numbered = (path.with_stem(f"{path.stem}-{k}") for k in itertools.count(2))
    return next(each for each in (path, *itertools.islice(numbered, 10_000)) if not each.exists())


def _lines_of(value) -> str:
    if not isinstance(value, list):
        return json.dumps(value)
    items = [
        json.dumps({k: v for k, v in item.items() if k != "raw"} if isinstance(item, dict) else item)
        for item in value
    ]
    return "[\n  " + ",\n  ".join(items) + "\n ]"


def _text(value) -> str:
    if isinstance(value, dict):
        return f"{value['median']:.3f} ({value['min']:.3f} to {value['max']:.3f}, n = {value['n']})"
    return f"{value:.4g}" if isinstance(value, float) else str(value)
