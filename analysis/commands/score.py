"""`python -m analysis score`: no study, for it has a ledger beside the runs and an exit code for its verdict."""

from __future__ import annotations

import argparse
import math

from analysis.commands.answer import Answer, Bold, Part
from analysis.commands.choice import DIFFERENT, EQUAL, add_csv, frames_for_csv, none_usable, read_ledger
from analysis.errors import Damaged, Usage

SUMMARY = "predictions of a ledger against the runs that came after them"
DETAIL = """\
A run counts for a prediction of its app, problem, method and ranks, if it was started with --ledger LEDGER after that
prediction had been appended: its trace has the hash of the ledger's last row. Says the error, exp(mean |ln(measured /
median)|) - 1, beside its floor, how far runs of one configuration lie apart; how many runs are within the 80 %
interval; the CRPS; and the errors of three simple predictions: 1/p, mean replay, and Extra-P's form. These need the
runs that the predictions were made from: give them, too. Where the floor is above 10 %, or not known, the verdict is
"not testable".

Refused, with exit code 3: a ledger that is not as it was written, a run that does not prove that its prediction was
there first, and one that no row predicts."""
EXAMPLES = """\
  python -m analysis score predictions.jsonl runs/
  python -m analysis score predictions.jsonl runs/p2-* runs/p1 --within 8 --json"""


def add_options(parser: argparse.ArgumentParser) -> None:
    """The options of this command."""
    parser.add_argument("ledger", metavar="LEDGER")
    parser.add_argument("runs", nargs="+", metavar="RUN")
    parser.add_argument(
        "--within", type=_percent, metavar="PERCENT",
        help="pass if the error is at most that: exit code 3 unless it is, also where it is not testable",
    )  # fmt: skip
    add_csv(parser)


def run(options: argparse.Namespace) -> Answer:
    """How good the predictions were."""
    from analysis.predict.scoring.score import PASSED, score
    from analysis.predict.scoring.tables import all_tables, exported, price_sentences, sentences

    try:
        ledger = read_ledger(options.ledger)
    except Damaged as error:
        return Answer(None, {}, [Bold(f"refused: {error}")], code=DIFFERENT)
    frames = frames_for_csv(options)
    if frames.runs.empty:
        raise none_usable(options)
    own = score(frames, ledger, options.within)
    if own.unmeasured:
        raise Usage(*own.unmeasured)
    if own.samples.empty and not own.refused:
        raise Usage(f"no run in {', '.join(map(str, options.runs))} could be scored{_why(own.notes)}; give complete "
                    "runs that were started with --ledger")  # fmt: skip
    shown: list[Part] = [Bold(f"refused: {why}") for why in own.refused]
    if len(own.summary) or not own.refused:
        shown += [Bold(f"{text}.") for text in [*sentences(own), *price_sentences(own)]]
    shown += ["", *all_tables(own, ledger)]
    notes = [f"Note: {note}." for note in own.notes]
    failed = own.refused or (options.within is not None and own.verdict != PASSED)
    return Answer(frames, exported(own, ledger), shown, notes, code=DIFFERENT if failed else EQUAL)


def _why(notes: list[str]) -> str:
    return f" ({'; '.join(notes)})" if notes else ""


def _percent(text: str) -> float:
    try:
        value = float(text.rstrip("%")) / 100
    except ValueError:
        value = math.nan
    if not 0 < value <= 10:
        raise argparse.ArgumentTypeError(
            f"{text!r} is no error in percent; give a number above 0, up to 1000"
        )
    return value
