"""`python -m analysis export`."""

from __future__ import annotations

import argparse
import os
import shutil
import sys
import time
from decimal import Decimal
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from analysis.commands.answer import Answer, Bold
from analysis.commands.choice import (
    loaded,
    none_usable,
    require_same_problem,
    require_usable,
    select,
    split,
    warn,
)
from analysis.errors import Usage
from analysis.export import FORMATS
from kernels.as_json import Document, rows
from miniapps.untrusted.text import tell

SUMMARY = "runs for other tools: Perfetto, Vampir, Extra-P, simulators, Parquet for queries"
TOLD_FROM = 2e8  # bytes of expected output from which on the command prints the size first
MOST_SECONDS = 9_000_000_000  # about 2^63 ns
DETAIL = "\n".join([
    "FORMAT is one of", "",
    *(f"  {name:<10}{what}" for name, what in FORMATS.items()), "",
    "RUN may be DIRECTORY:REPEAT. Regions that reach over the border of --from or --to are cut there. Nothing is",
    "written over.",
])  # fmt: skip
EXAMPLES = """\
  python -m analysis export perfetto runs/a -o a.json.gz --steps 10-12
  python -m analysis export perfetto runs/a -o a.json --against runs/b
  python -m analysis export extrap runs/coupled-p* -o coupled.jsonl
  python -m analysis export parquet runs/ -o tables"""

DOCUMENTS = {
    "export": Document(
        rows=(
            rows(
                "exported",
                "a row per run",
                """
            path ranks steps | text | `ranks` and `steps` as `0-3, 7`
            used | boolean | `extrap` leaves out runs that ended early
            events collectives cut | integer | `cut` at the border of the slice
            """,
            ),
        )
    ),
}


def add_options(parser: argparse.ArgumentParser) -> None:
    """The options of this command."""
    parser.add_argument("format", choices=FORMATS, metavar="FORMAT")
    parser.add_argument("runs", nargs="+", metavar="RUN")
    parser.add_argument("-o", "--output", type=Path, required=True, metavar="FILE", help="what to write, new")
    parser.add_argument("--ranks", type=_ranges, metavar="0-3,7", help="only these (all)")
    parser.add_argument("--steps", type=_ranges, metavar="10-20", help="only these (all)")
    parser.add_argument("--repeat", type=int, metavar="R", help="only this one (all)")
    parser.add_argument(
        "--from",
        dest="begin",
        type=_nanoseconds,
        metavar="S",
        help="seconds after the first event of the run",
    )
    parser.add_argument("--to", dest="end", type=_nanoseconds, metavar="S", help="seconds, as --from")
    parser.add_argument(
        "--against", metavar="RUN[:REPEAT]", help="perfetto: mark where RUN first diverges from this one"
    )


def run(options: argparse.Namespace) -> Answer:
    """Writes the file or directory; answers with its contents."""
    from analysis.export.output import part_of
    from analysis.export.slices import NothingToExport
    from miniapps.trace import TraceError

    module = import_module(f"analysis.export.{options.format}")
    if missing := [package for package in module.PACKAGES if not _installed(package)]:
        names = ", ".join("protobuf" if package == "google.protobuf" else package for package in missing)
        raise Usage(f"{options.format} needs a package that is not installed: pip install {names}")
    if options.against and options.format != "perfetto":
        raise Usage(f"--against is for perfetto; {options.format} has no marks")
    if options.begin is not None and options.end is not None and options.end <= options.begin:
        raise Usage("--to must be later than --from")
    if existing := module.existing(options.output):
        raise Usage(f"-o {options.output}: {existing} exists, and nothing is written over; name another")
    if not options.output.absolute().parent.is_dir():
        raise Usage(
            f"-o {options.output}: no directory {options.output.absolute().parent}; make it, or name another"
        )
    if os.path.lexists(begun := part_of(options.output)):
        raise Usage(
            f"-o {options.output}: {begun} exists: an export writes it, or one was killed; then remove it"
        )
    try:
        return WRITTEN.get(options.format, _events)(options, module)
    except (NothingToExport, TraceError) as error:
        raise Usage(str(error)) from error
    except OSError as error:
        reason = error.strerror or str(error)
        raise Usage(f"-o {options.output}: cannot be written: {reason}; name another place") from error


def _events(options: argparse.Namespace, module) -> Answer:
    """Writes the events of one run."""
    runs = _runs(options.runs)
    if len(runs) > 1:
        raise Usage(f"{options.format} takes one run, and these are {len(runs)}: {', '.join(map(str, runs))}")
    part = _slice(*runs[0], options)
    marked: list[str] = []
    frames = None
    _announce(part, options, module)
    if options.against:
        mark, sentence, frames = _mark(part, *runs[0], options)
        marked.append(sentence)
        files = module.write(part, options.output, mark)
    else:
        files = module.write(part, options.output)
    row = _row(part, True)
    shown = [_summary(row, files, module), *map(Bold, marked)]
    return Answer(frames, {"exported": _exported([row])}, shown, files=list(map(str, files)))


def _announce(part, options: argparse.Namespace, module) -> None:
    """Prints the expected size of the output to stderr, if it is at least TOLD_FROM bytes."""
    events = part.counts.total()
    size = module.bytes_of(options.output) * events
    if options.quiet or size < TOLD_FROM:
        return
    most = "at most " if (options.begin, options.end) != (None, None) else ""
    text = f"{events:,} events, {most}about {size / 1e9:.1f} GB"
    free = shutil.disk_usage(options.output.absolute().parent).free
    if free < size:
        text += f", where {free / 1e9:.1f} GB are free: choose some with --ranks, --steps, --repeat"
    tell(f"{options.output}: {text}", sys.stderr)


def _models(options: argparse.Namespace, module) -> Answer:
    """Writes the measurements of each region in several runs, for Extra-P."""
    rows: list[dict[str, Any]] = []

    def parts():
        for directory, repeat in _runs(options.runs):
            part = _slice(directory, repeat, options)
            if part.complete:
                yield part
            else:
                for _ in part.ranks("counted"):
                    pass
            rows.append(_row(part, part.complete))

    try:
        points = module.write(parts(), options.output)
    except module.NotOneExperiment as error:
        raise Usage(str(error)) from error
    if skipped := [row["path"] for row in rows if not row["used"]]:
        tell(f"left out, since they ended early: {', '.join(skipped)}", sys.stderr)
    used = len(rows) - len(skipped)
    shown = [f"Written to {options.output}: {used} run{'s' if used != 1 else ''}; {module.OPEN_WITH}"]
    notes = [f"Note: {note}." for note in module.notes(points)]
    return Answer(None, {"exported": _exported(rows)}, shown, notes, files=[str(options.output)])


def _tables(options: argparse.Namespace, module) -> Answer:
    """Writes the tables of several runs."""
    from analysis.load.watch import Watch

    asked = ("ranks", "steps", "repeat", "begin", "end")
    if any(getattr(options, name) is not None for name in asked):
        raise Usage(
            "parquet takes whole runs: leave out --ranks, --steps, --repeat, --from and --to, and query"
        )
    frames = loaded(options, options.runs)
    warn(frames)
    if frames.runs.empty:
        raise none_usable(options)
    files = module.write(frames, options.output, Watch(options.quiet, options.verbose))
    count = frames.runs["run"].nunique()
    shown = [f"Written to {options.output}: {len(files)} tables of {count:,} run{'s' if count != 1 else ''}; "
             f"{module.OPEN_WITH}"]  # fmt: skip
    return Answer(frames, {}, shown, files=list(map(str, files)))


WRITTEN = {"extrap": _models, "parquet": _tables}


def _runs(given: list[str]) -> list[tuple[Path, int | None]]:
    """(directory, repeat or None) of every run that `given` names."""
    from analysis.load.find import find_runs

    places = [split(one) for one in given]
    return [(run, repeat) for place, repeat in places for run in find_runs([place])]


def _slice(directory: Path, repeat: int | None, options: argparse.Namespace):
    from analysis.export.slices import Selection, slice_of
    from analysis.load.watch import Watch

    if repeat is not None and options.repeat not in (None, repeat):
        raise Usage(f"{directory}:{repeat} and --repeat {options.repeat}: give one of them")
    repeat = options.repeat if repeat is None else repeat
    begin = time.perf_counter()
    selection = Selection(repeat, options.ranks, options.steps, options.begin, options.end)
    part = slice_of(directory, selection, Watch(options.quiet))
    if options.verbose:
        tell(f"read the events of {directory} in {time.perf_counter() - begin:.3f} s", sys.stderr)
    if not part.complete and options.format != "extrap":
        tell(f"{directory}: ended early; its last events are missing", sys.stderr)
    return part


def _mark(part, directory: Path, repeat: int | None, options: argparse.Namespace):
    """(mark, sentence, frames) of the first divergence from --against; the mark is None if the slice lacks its time."""
    from analysis.divergence.compare import compare
    from analysis.divergence.points import FINAL
    from analysis.export.marks import mark_of
    from analysis.load.guard import read_run
    from analysis.load.timeline import timeline
    from analysis.sentences import place, sentence

    other, other_repeat = split(options.against)
    frames = loaded(options, [directory, other], copies=True)
    require_usable(frames)
    warn(frames)
    repeat = options.repeat if repeat is None else repeat
    a, b = select(frames, directory, repeat)[0], select(frames, other, other_repeat)[0]
    if a == b:
        raise Usage(f"--against {options.against}: is the run itself; name another run or repeat")
    require_same_problem(frames, [a, b])
    comparison = compare(frames, a, b)
    if not comparison.differs or comparison.part.name == FINAL:
        return None, f"No mark: {sentence(comparison)}", frames
    point, where = comparison.part, f"{a[0]}:{a[1]} and {b[0]}:{b[1]} part at {place(comparison.part)}"
    table = "fingerprints" if point is comparison.fingerprint else "values"
    (trace,) = read_run(directory, [table], [point.rank_a])
    mark = mark_of(point, table, a[1], trace, timeline(directory, ranks=[point.rank_a], origin=part.origin))
    if mark is None:
        return None, f"No mark: {where}, but the run recorded no events (--trace off).", frames
    if mark.rank not in part.attributes or not part.begin <= mark.at <= part.end:
        return (
            None,
            f"No mark: {where}, on rank {mark.rank} at {mark.at / 1e9:.6f} s, which is not in the slice.",
            frames,
        )
    return mark, f"Marked: {where}, on rank {mark.rank} at {mark.at / 1e9:.6f} s.", frames


def _row(part, used: bool) -> dict[str, Any]:
    """The row of an exported slice; `used`: True if the file has its events."""
    from analysis.page.text import spans

    return {
        "path": str(part.path),
        "used": used,
        "ranks": spans(part.attributes),
        "steps": spans(part.written.steps),
        "events": part.written.events,
        "collectives": len(part.collectives),
        "cut": part.written.cut,
    }


def _exported(rows: list[dict[str, Any]]):
    import pandas as pd

    return pd.DataFrame(rows, dtype=object)  # names of files need not be UTF-8


def _summary(row: dict[str, Any], files: list[Path], module) -> str:
    what = [
        f"{row['events']:,} events of ranks {row['ranks']}, steps {row['steps']}",
        f"{row['collectives']:,} collectives",
        *([f"{row['cut']:,} cut at the border"] if row["cut"] else []),
    ]
    shown = f"{files[0]}" + (f" ... {files[-1].name}" if len(files) > 1 else "")
    return f"Written to {shown}: {', '.join(what)}; {module.OPEN_WITH}"


def _installed(package: str) -> bool:
    try:
        return find_spec(package) is not None
    except ModuleNotFoundError:  # its parent package is missing
        return False


def _ranges(text: str) -> list[range]:
    numbers = []
    for part in text.split(","):
        first, dash, last = part.strip().partition("-")
        if not first.isdecimal() or (dash and not last.isdecimal()) or (dash and int(last) < int(first)):
            raise argparse.ArgumentTypeError(f"{text!r} is no list of numbers and ranges, such as 0-3,7")
        numbers.append(range(int(first), int(last or first) + 1))
    return numbers


def _nanoseconds(text: str) -> int:
    try:
        seconds = Decimal(text)
        if not 0 <= seconds <= MOST_SECONDS:
            raise ValueError
    except (ArithmeticError, ValueError) as error:
        raise argparse.ArgumentTypeError(
            f"{text!r} is no number of seconds from 0 to {MOST_SECONDS:,}"
        ) from error
    return int(seconds * 1_000_000_000)
