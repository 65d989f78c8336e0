"""`python -m analysis report`."""

from __future__ import annotations

import argparse
from pathlib import Path

from analysis.commands.answer import Answer, Bold, Part
from analysis.commands.choice import (
    add_reference,
    frames_of,
    read_ledger,
    read_machines,
    require_directory,
    warn,
)
from analysis.errors import Usage
from kernels.as_json import Document, rows

SUMMARY = "the verdict on all runs as one HTML file that needs no network"
DETAIL = """\
Begins with the verdict, on one line: a badge (IDENTICAL, DIFFERS, BROKEN PROMISE, FAILED) with the cause, and a
sentence that names the compared records; then the groups of runs, the worst first, and the number of results of each on
every rank count. Then, folded, first divergences with their cause, machine and software, timelines, growth,
variability, times, costs, scaling, where the variance is, what limits the results, and what was left out. Every figure
has a caption and its points as CSV in the page itself."""
EXAMPLES = """\
  python -m analysis report runs/ -o report.html
  python -m analysis report runs/ --reference runs/exact:0 --results results/"""

DOCUMENTS = {
    "report": Document(
        rows=(
            rows(
                "groups",
                "a row per group, the worst first",
                """
            verdict badge | text | as above, of the group
            group words guarantee ordering | text | its name, the same in words
            ranks | list of integer | rank counts
            runs incomplete results | integer | complete repeats, others, how many different results (0 where none
              were recorded)
            state | text | hash of the final state where all have one, else empty
            text | text | what there is to say
            """,
            ),
            rows(
                "decisions",
                "the solvers that changed a decision",
                """
            family verdict text | text | which, `differs`, what changed
            """,
            ),
            rows(
                "results",
                "a row per repeat, as `results.csv` of `--results`",
                """
            run path run_id allocation_id started app problem group cell guarantee ordering device | text | what
              identifies it; `started` in UTC
            repeat size seed last_step events | integer
            method | text | the factors of the method, as JSON
            complete faulty | boolean | whether the run reached its end; whether a fault was injected
            verdict | text | verdict on the cell of this run
            state | text | hash of the final state
            wall_s tracing_s | number, s | from the first event of the longest rank to its last; cost of tracing
            reference | text | RUN:REPEAT of the reference of distances
            value:* distance:* | number | last value of each name, its relative difference from the reference
            """,
            ),
        )
    ),
}


def add_options(parser: argparse.ArgumentParser) -> None:
    """The options of this command."""
    parser.add_argument("runs", nargs="+", metavar="RUN")
    parser.add_argument("-o", "--output", type=Path, default=Path("report.html"), help="(report.html)")
    parser.add_argument(
        "--results", type=Path, metavar="DIR",
        help="write there one row per run (CSV and Parquet), and every figure as CSV, SVG and PNG",
    )  # fmt: skip
    parser.add_argument(
        "--ledger", metavar="FILE",
        help="ledger of predictions; adds a section of predicted and measured times",
    )  # fmt: skip
    parser.add_argument(
        "--calibration", action="append", default=[], metavar="DIR",
        help="a run of miniapps.calibrate: one more section, of predicted times per step; may be repeated",
    )  # fmt: skip
    parser.add_argument(
        "--machine", action="append", default=[], metavar="FILE",
        help="a machine that was not measured, a TOML file as of predict: name, cores, speed, memory, latency, "
        "bandwidth; may be repeated",
    )  # fmt: skip
    parser.add_argument(
        "--any-machine", action="store_true",
        help="take a calibration of another machine or software than a run's, and mark it; else that run is left out",
    )  # fmt: skip
    add_reference(parser)


def run(options: argparse.Namespace) -> Answer:
    """Writes the HTML file; answers with the verdict and the groups."""
    from analysis.load.watch import Watch
    from analysis.page.tables import alone, decisions_frame, groups_frame, groups_table
    from analysis.report.build import build
    from analysis.results import results

    if options.output.is_dir() or not options.output.absolute().parent.is_dir():
        raise Usage(f"-o {options.output}: must be a file in a directory that exists")
    require_directory("--results", options.results)
    ledger = None if options.ledger is None else read_ledger(options.ledger)
    if options.any_machine and not options.calibration:
        raise Usage("--any-machine: is about the machine of a calibration; give --calibration, too")
    if options.machine and not options.calibration:
        raise Usage("--machine requires --calibration")
    machines = read_machines(options.machine)
    frames, against = frames_of(options)
    found = _what_if(frames, options, machines) if options.calibration else None
    page = build(frames, against, Watch(options.quiet, options.verbose), ledger, found)
    try:
        options.output.write_text(page.html, encoding="utf-8")
    except OSError as error:
        raise Usage(
            f"-o {options.output}: cannot be written: {error.strerror}; choose another file"
        ) from error
    shown: list[Part] = [Bold(page.headline), ""]
    title, table = groups_table(page.groups, page.overview.decisions)
    if table.rows:
        shown.append((title, table))
    if rest := alone(page.groups):
        shown += [f"Nothing to compare: {'; '.join(rest)}.", ""]
    warn(frames)
    rows = results(page.overview) if options.results or options.json else None
    tables = {"groups": groups_frame(page.groups), "decisions": decisions_frame(page.overview.decisions)}
    files, notes = [str(options.output)], []
    if options.results:
        written = _written(options.results, rows, page.figures)
        files += [f"{options.results}/{name}" for name in written]
        notes.append(f"Results: {len(written)} files in {options.results}")
    notes.append(f"Report: {options.output} ({len(page.html.encode()) / 1e6:.2f} MB)")
    return Answer(
        frames, tables | ({} if rows is None else {"results": rows}), shown, notes, page.headline, files
    )


def _what_if(frames, options: argparse.Namespace, machines: list):
    """Predictions for the runs of `frames` whose steps can be replayed. Raises Usage for an unusable machine."""
    from dataclasses import replace

    from analysis.errors import Unreachable
    from analysis.predict.choices.whatif import what_if
    from analysis.predict.costs.speeds import require_memory
    from analysis.predict.reading.launches import read_calibrations
    from analysis.predict.reading.skeleton import skeleton
    from miniapps.trace import TraceError

    known, runs, notes = read_calibrations(options.calibration), [], []
    try:
        for machine in machines:
            for calibration in known:
                require_memory(calibration, machine)
    except Unreachable as error:
        raise Usage(str(error)) from None
    for path in dict.fromkeys(frames.runs["path"]):
        try:
            runs.append(skeleton(path))
        except TraceError as error:
            notes.append(str(error))
    found = what_if(runs, known, machines, options.any_machine)
    return replace(found, notes=[*notes, *found.notes])


def _written(directory: Path, rows, figures) -> list[str]:
    """Writes the files of --results into `directory`; returns their names. Raises Usage."""
    from analysis.results import NotOurs, write_results

    try:
        return write_results(directory, rows, figures)
    except NotOurs as error:
        raise Usage(f"--results {error}") from error
    except OSError as error:
        raise Usage(f"--results {directory}: cannot be written: {error.strerror}; choose another") from error
