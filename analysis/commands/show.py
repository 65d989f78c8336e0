"""`python -m analysis show`."""

from __future__ import annotations

import argparse

from analysis.commands.answer import Answer
from analysis.commands.choice import loaded, none_usable, warn
from kernels.as_json import Document, rows

SUMMARY = "the records of runs"
DETAIL = """\
Attributes, repeats, names with their rows, steps and blocks, and the time spent in each region. Of programs under
`fpna run` also the functions that were called and not recorded, and the sums that a guarantee did not reach."""
EXAMPLES = """\
  python -m analysis show runs/a"""

DOCUMENTS = {
    "show": Document(
        rows=(
            rows(
                "runs",
                "a row per repeat, as `Frames.runs` ([columns](../how-to/frames.md))",
                """
            run path run_id allocation_id app problem guarantee ordering state started | text
            repeat size seed last_step events | integer
            complete | boolean
            wall_s tracing_s | number, s
            method config environment promises problem_options options regions | text | JSON
            reductions unseen unreached neighbours | text | JSON
            """,
            ),
            rows(
                "recorded",
                "what each run recorded by name",
                """
            run table name | text | `table`: `fingerprints`, `values`, `order`, `choices`, `usage`
            rows steps blocks | integer
            """,
            ),
            rows(
                "lacking",
                "what a run of `fpna run` does not hold ([`unseen` and "
                "`unreached`](trace.md#attributes-of-the-root-group-schema-6))",
                """
            run what call why | text | `what`: `not recorded`, a function whose calls were counted alone; `not
              reached`, a sum in the library's order under a guarantee, and why
            calls | integer | of all ranks
            """,
            ),
            rows(
                "regions",
                "medians over repeats",
                """
            run group name | text
            size runs | integer
            calls imbalance share | number | calls over all ranks; max / mean - 1; exclusive time / wall time
            total_s exclusive_s max_s | number, s | means over ranks; the largest of a rank
            """,
            ),
        )
    ),
}


def add_options(parser: argparse.ArgumentParser) -> None:
    """The options of this command."""
    parser.add_argument("runs", nargs="+", metavar="RUN")


def run(options: argparse.Namespace) -> Answer:
    """Lists the records of the runs."""
    from analysis.page.tables import run_frames, run_tables

    frames = loaded(options, options.runs, copies=True)
    warn(frames)
    if frames.runs.empty:
        raise none_usable(options)
    shown = run_frames(frames)
    return Answer(frames, shown, list(run_tables(shown)))
