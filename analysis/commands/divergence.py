"""`python -m analysis divergence`."""

from __future__ import annotations

import argparse

from analysis.commands.choice import (
    DIFFERENT,
    EQUAL,
    Usage,
    complete,
    loaded,
    require_same_problem,
    require_usable,
    select,
    split,
    warn,
)

SUMMARY = "where runs part: the first step, name and block whose bits differ"
DETAIL = """\
The first run is compared with every other, by block, so that rank counts may differ. RUN may be
DIRECTORY:REPEAT; without REPEAT all repeats of the run take part. Says the first step, name and block that
differ, the cause (method, environment, local kernel, collective, message order, halo exchange, memory, input)
with its reasons, the event, the element where values were stored, and how the difference grows. Runs made with
--record messages name the cause with certainty. Exit code 3 if any bit differs; 2, and no verdict, if a run
lacks records that it must have."""
EXAMPLES = """\
  python -m analysis divergence runs/a runs/b
  python -m analysis divergence runs/a:0 runs/a:3 runs/b:0"""


def add_options(parser: argparse.ArgumentParser) -> None:
    """The options of this command."""
    parser.add_argument("runs", nargs="+", metavar="RUN")


def run(options: argparse.Namespace) -> int:
    """Compare the first run with the others; 0 if every bit is equal."""
    from analysis.comparison import comparison_lines
    from analysis.divergence.calls import by_call
    from analysis.divergence.compare import compare, growth
    from analysis.page.tables import calls_table, steps_table
    from analysis.page.terminal import printer
    from analysis.power import power_note

    places = [split(run) for run in options.runs]
    frames = loaded(options, [directory for directory, _ in places], copies=True)
    require_usable(frames)
    warn(frames)
    chosen = [run for directory, repeat in places for run in select(frames, directory, repeat)]
    reference, *others = dict.fromkeys(chosen)
    if not others:
        lone = f"{options.runs[0]}: one repeat only, nothing to compare with"
        raise Usage(f"{lone}; give a second run, or run with --repeats 2")
    require_same_problem(frames, [reference, *others])
    say = printer()
    comparisons = [compare(frames, reference, other) for other in others]
    for comparison in comparisons:
        head, *rest = comparison_lines(comparison, frames)
        say(head, bold=True)
        for line in rest:
            say(line)
        if comparison.differs:
            steps, calls = (frame(frames, comparison.a, comparison.b) for frame in (growth, by_call))
            for table in [steps_table(steps)] * bool(len(steps)) + [calls_table(calls)] * bool(len(calls)):
                say()
                say(table)
    if any(comparison.differs for comparison in comparisons) or "ranks disagree" in set(
        frames.excluded["what"]
    ):
        return DIFFERENT
    if lacking := [comparison for comparison in comparisons if not comparison.comparable]:
        raise Usage(
            f"records are missing in {len(lacking)} of {len(comparisons)} comparisons: no verdict. Copy the runs "
            "again, or repeat them, and compare again"
        )
    if not complete(frames, [reference, *others]):
        raise Usage(
            "equal as far as recorded, but a run ended early: no verdict. Repeat it, and compare again"
        )
    say(f"{power_note(len(others) + 1)}.")
    return EQUAL
