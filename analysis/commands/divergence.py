"""`python -m analysis divergence`."""

from __future__ import annotations

import argparse
import functools
from pathlib import Path
from typing import TYPE_CHECKING

from analysis.commands.answer import Answer, Bold, Part
from analysis.commands.choice import (
    complete,
    loaded,
    require_same_problem,
    require_usable,
    select,
    split,
    warn,
)
from analysis.errors import Usage
from kernels.as_json import Document, rows
from miniapps.untrusted.certificate import CERTIFICATE

if TYPE_CHECKING:
    from analysis.divergence.in_files import Write
    from analysis.operations import Audited

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

DOCUMENTS = {
    "divergence": Document(
        rows=(
            rows(
                "comparisons",
                "the first run with each other one",
                """
            a b | text | RUN:REPEAT
            verdict | text | `differs`, `no difference seen`, `not comparable`
            step block occurrence | integer? | first record that differs; `block` is -1 for the whole
            name | text? | its name
            differing recorded | integer? | blocks of it that differ, and all
            cause cause_in | text? | [class of the cause](../how-to/divergence.md#what-made-them-part), and the
              kernel, exchange or sum
            cause_rank cause_step | integer? | null where all ranks do it together
            or_cause | text? | what else it may have been; null where nothing
            rounding | text? | does rounding explain it: `rounding`, `not rounding`, `open`; null where nothing
              differs
            amplification | number? | the difference in units in the last place of the added numbers
              ([rounding](../how-to/divergence.md#rounding-or-not)); null where it is not known
            next | text? | what to do now
            compared only_a only_b through | integer | records in both, in one; the last step in both
            """,
            ),
            rows(
                "facts",
                "what there is to say of each pair, as the text has it",
                """
            a b what text | text | `what`: `fingerprint`, `cause`, `why`, `element`, ...
            """,
            ),
            rows(
                "growth",
                "of the pairs that differ, a row per step and name",
                """
            a b kind name | text
            step elements differing undefined | integer
            fraction max_relative | number | differing / elements; largest relative difference of values
            max_ulp | number, ULP
            """,
            ),
            rows(
                "calls",
                "of the pairs that differ, a row per call of a program that ran as it is (`fpna run`), those that "
                "differ first",
                """
            a b call | text | `call`: like `MPI_Allreduce at dot (cg.c:57) from solve (cg.c:80)`
            step | integer | the first with a difference; -1 for none
            given got sources | integer | records of what calls took and gave, and of whose messages came
            given_differing got_differing sources_differing | integer | of these, those that differ
            """,
            ),
        )
    ),
}


def add_options(parser: argparse.ArgumentParser) -> None:
    """The options of this command."""
    parser.add_argument("runs", nargs="+", metavar="RUN")
    parser.add_argument(
        "--audit", action="append", metavar="RUN",
        help="a run of `operations`, which says what is known of a watched module's operation (those beside the first)",
    )  # fmt: skip
    parser.add_argument(
        "--byte", action="append", default=[], metavar="FILE:N", type=_byte,
        help="say which calls wrote byte N of FILE, counted from 0, under `fpna run`; may be given several times",
    )  # fmt: skip


def _byte(text: str) -> tuple[str, int]:
    """(name of the file, number of the byte) of `FILE:N`."""
    name, _, number = text.rpartition(":")
    if not name or not number.isascii() or not number.isdecimal() or len(number) > 18:
        raise argparse.ArgumentTypeError(f"{text!r}: give a file and the number of a byte, as in out.dat:224")
    return name, int(number)


def run(options: argparse.Namespace) -> Answer:
    """Compares the first run with the others; exit code 0 if every bit is equal."""
    from analysis.comparison import comparison_row, first_of_each, line, remarks
    from analysis.divergence.calls import by_call
    from analysis.divergence.cause import cause
    from analysis.divergence.compare import NothingInCommon, compare
    from analysis.divergence.in_files import on_byte, writes
    from analysis.divergence.recorded import row_of
    from analysis.divergence.steps import growth
    from analysis.headline import headline_of
    from analysis.page.tables import calls_table, comparison_frames, steps_table
    from analysis.power import power_note
    from analysis.runs import label
    from analysis.sentences import apart_sentence, sentence

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
    audits = functools.cache(lambda: _audits(options, places[0][0]))
    if options.audit:
        audits()

    @functools.cache
    def written(run: tuple[str, int]) -> list[Write]:
        return writes(row_of(frames, run)["path"], run[1])

    shown: list[Part] = []
    comparisons, causes, rows, facts, steps, calls, apart = [], [], [], [], [], [], []
    for other in others:
        try:
            comparison = compare(frames, reference, other)
        except NothingInCommon as error:
            if len(others) == 1:
                raise
            apart.append(other)
            shown.append(Bold(apart_sentence(reference, other, str(error).partition(", so ")[0])))
            continue
        judged = cause(frames, comparison)
        told = remarks(comparison, frames, judged, audits() if judged and judged.operation else ())
        for file, byte in options.byte:
            own = {label(run): written(run) for run in (reference, other)}
            told += [(f"byte {byte:,}", said) for said in on_byte(own, file, byte)]
        shown += [Bold(sentence(comparison)), *(line(*each) for each in first_of_each(told))]
        if comparison.differs:
            steps.append(growth(frames, reference, other))
            calls.append(by_call(frames, reference, other))
            shown += ["", table] if (table := steps_table(steps[-1]))[1].rows else []
            shown += ["", calls_table(calls[-1])] if len(calls[-1]) else []
        comparisons.append(comparison)
        causes.append(judged)
        rows.append(comparison_row(comparison, judged))
        facts.append(told)
    early = not complete(frames, chosen)
    verdict = headline_of(comparisons, causes, frames, apart, early)
    return Answer(
        frames,
        comparison_frames(rows, facts, steps, calls),
        shown,
        [] if verdict.code or verdict.refused else [f"{power_note(len(others) + 1)}."],
        verdict,
        code=verdict.code,
        refused=verdict.refused,
    )


def _audits(options: argparse.Namespace, run: Path) -> list[Audited]:
    """The audits that --audit names, else those beside the directory `run`. Raises Usage if --audit names none."""
    from analysis.certificates import beside, certificates
    from analysis.operations import audited

    if not options.audit:
        found = beside(run)
        return audited(loaded(options, found)) if found else []
    frames = loaded(options, options.audit)
    if not (audits := audited(frames)):
        problems = certificates(frames)[1]
        raise Usage(
            *(
                problems
                or [f"--audit {' '.join(options.audit)}: no run of `operations`, which writes {CERTIFICATE}"]
            )
        )
    return audits
