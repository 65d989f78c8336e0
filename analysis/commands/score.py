"""`python -m analysis score`. It is no study, since it needs a ledger, and its exit code is a verdict."""

from __future__ import annotations

import argparse
import math

from analysis.commands.answer import Answer, Bold, Part
from analysis.commands.choice import DIFFERENT, EQUAL, add_csv, frames_for_csv, none_usable, read_ledger
from analysis.errors import Damaged, Usage
from kernels.as_json import Document, rows

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

DOCUMENTS = {
    "score": Document(
        rows=(
            rows(
                "summary",
                "a row per kind of targets, none where no run was predicted ([what they "
                "say](../how-to/predict.md#scores)). All errors are shares, 0.05 for 5 %",
                """
            kind | text | `wall clock` or `CPU time`, maybe with `, more ranks than cores`
            verdict | text | `scored`, `passed`, `not passed` (with `--within`), `not testable`
            targets runs inside better compared | integer | `inside`: runs within their 80 % interval; `better`:
              targets where the prediction is better than all baselines, of so many `compared`
            took error floor coverage coverage_low coverage_high crps within | number | measured over predicted
              time, geometric mean error, the same between runs of one configuration, share of runs within, its 95 %
              interval, CRPS over the measured time, the limit of --within
            """,
            ),
            rows(
                "targets",
                "a row per row of the ledger that has runs",
                """
            row | integer | its line in the ledger
            kind app problem method mesh clock best extrapolated guarantee | text | `method`: a hash; `clock`:
              `wall` or `cpu`; `best`: `prediction` or the baseline with the smallest error, empty without a baseline
            ranks runs launches inside sources | integer | `sources`: runs behind the prediction, 0 for the price of
              a plan
            median_s low_s high_s measured_s crps_s inverse_s replay_s extrap_s | number, s | per step: predicted
              median and 80 % interval, median of the runs, CRPS, what 1/p, mean replay and Extra-P predict
            error bias floor inverse_error replay_error extrap_error | number | `bias`: above 0 where runs took
              longer than predicted
            """,
            ),
            rows(
                "prices",
                "what guarantees cost, predicted and measured, where runs of several were predicted "
                "([prices](../how-to/predict.md#prices-of-guarantees))",
                """
            row weakest_row ranks | integer | lines of the ledger, of the guarantee and of the weakest one
            kind app problem mesh guarantee weakest | text
            predicted measured ratio | number | how many times as long a step takes, by medians; measured over
              predicted
            error floor | number | `floor`: how far two prices of one run each lie apart
            """,
            ),
            rows(
                "price_errors",
                "the errors of these for each guarantee",
                """
            kind guarantee verdict | text | `verdict`: `scored` or `not testable`
            targets | integer | prices
            error floor | number | means of the logarithms
            """,
            ),
            rows(
                "methods",
                "the prediction and the baselines",
                """
            kind method | text
            targets better | integer | how many it predicts; for how many of these the prediction has the smaller
              error
            error prediction_error | number | its error there, that of the prediction over the same targets
            """,
            ),
            rows(
                "samples",
                "a row per predicted repeat",
                """
            run | text
            row repeat | integer
            seconds crps_s inverse_s replay_s extrap_s | number, s | measured per step; as above
            ratio | number | measured over predicted median
            inside crowded | boolean | within the 80 % interval; more ranks than cores
            """,
            ),
            rows(
                "regions",
                "predicted and measured exclusive time of each region, of predictions by the wall clock alone; of "
                "the price of a plan its parts, which are not measured",
                """
            row | integer
            name | text
            predicted_s measured_s | number, s | per step, mean over ranks, medians over runs
            ratio | number
            """,
            ),
            rows(
                "ledger",
                "all its rows",
                """
            line ranks runs | integer | `runs` that it predicted
            time hash before app problem method mesh clock model calibration extrapolated remarks anchor | text |
              `time` in UTC, of the writer's clock; SHA-256 of the row and of the one before; `anchor`: what nobody
              knew before this row, empty without one
            median_s low_s high_s | number, s
            """,
            ),
        )
    ),
}


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
    """Compares the predictions of the ledger with the runs."""
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
