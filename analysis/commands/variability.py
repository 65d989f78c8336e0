"""`python -m analysis variability`."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from analysis.commands.answer import Answer, Bold, Part
from analysis.commands.choice import add_csv, add_reference, frames_of, require_directory, warn
from analysis.errors import Usage
from kernels.as_json import Document, rows

if TYPE_CHECKING:  # pandas takes a moment to import
    from analysis.headline import Headline
    from analysis.load.frames import Frames

SUMMARY = "how many results there are, and how far they lie apart"
DETAIL = """\
At the last step that all runs recorded: distinct results, effective number of outcomes, V_s, V_ermv, V_c and
ULP, of runs against each other and, apart from that, against a reference. Where no difference was seen, the
probability that can still be excluded stands beside it. With --by a summary by factor. With --transport the
distributions of two cells: how far apart they are (W1), and at which deciles one lies above the other."""
EXAMPLES = """\
  python -m analysis variability runs/
  python -m analysis variability runs/ --by ordering --csv tables/
  python -m analysis variability runs/ --transport"""

DOCUMENTS = {
    "variability": Document(
        rows=(
            rows(
                "variability",
                "a row per name and comparison, at the last step "
                "([metrics](../explanation/comparison.md#metrics)). With `--by FACTOR` it is `variability-by-FACTOR`",
                """
            group cell name kind | text | `kind`: `fingerprints` or `values`
            ranks | list of integer | rank counts
            step | integer
            against | text | `each other`, or the reference
            runs distinct pairs undefined | integer | runs, different results, pairs, comparisons without a number
            effective | number | effective number of outcomes
            v_s_median v_s_max v_ermv_mean v_ermv_max v_c_mean v_c_max | number | over pairs
            ulp_mean ulp_max | number, ULP
            bound | number | where no difference was seen: what its probability stays below at 95 %
            """,
            ),
            rows(
                "pairs",
                "a row per pair of runs and name",
                """
            group cell name kind against a b | text | `a` and `b` are RUN:REPEAT
            step elements undefined | integer
            v_c v_s v_ermv | number
            max_ulp mean_ulp | number, ULP
            """,
            ),
        )
    ),
    "variability --by": Document(
        rows=(
            rows(
                "variability-by-*",
                "a row per application, level of the factor and comparison",
                """
            app level against | text
            cells runs pairs differing undefined | integer | `differing` of `pairs` differ in some name
            distinct effective v_s_max v_ermv_max v_c_max ulp_max bound | number | largest over names; `bound` as
              above
            note | text | `bound` in words
            """,
            ),
            rows(
                "pairs",
                "as above",
                """
            group cell name kind against a b | text
            step elements undefined | integer
            v_c v_s v_ermv max_ulp mean_ulp | number
            """,
            ),
        )
    ),
    "variability --transport": Document(
        rows=(
            rows(
                "transport",
                "a row per two cells of one problem and value of one element, at the last step that all recorded",
                """
            a b name | text | two cells, a value
            step runs_a runs_b | integer
            w1 scale | number | distance, and the standard deviation of both together, in the value's unit
            p | number | of a permutation test
            above below | text | deciles at which the band of the shift lies above or below zero
            """,
            ),
            rows(
                "shifts",
                "a row per decile of these",
                """
            a b name | text
            step | integer
            quantile start end shift low high | number | decile of `a`, of `b`, their difference, its band
            """,
            ),
        )
    ),
}


def add_options(parser: argparse.ArgumentParser) -> None:
    """The options of this command."""
    parser.add_argument("runs", nargs="+", metavar="RUN")
    add_reference(parser)
    parser.add_argument(
        "--by", choices=("ordering", "kernel", "ranks", "guarantee", "app"),
        help="one row for each level of this factor instead of one for each name",
    )  # fmt: skip
    parser.add_argument(
        "--transport", action="store_true",
        help="between every two cells of 20 runs or more: distance and shift function of each recorded value",
    )  # fmt: skip
    add_csv(parser)


def run(options: argparse.Namespace) -> Answer:
    """Answers with the table of variability: by name, with --by by factor, with --transport between cells."""
    from analysis.factors import by_factor
    from analysis.headline import headline
    from analysis.page.tables import factor_table, variability_tables
    from analysis.pairs import frame_of, pairs
    from analysis.variability import variability
    from analysis.verdict import judge

    require_directory("--csv", options.csv)
    if options.by and options.transport:
        raise Usage("--by and --transport ask for different tables: choose one")
    frames, against = frames_of(options)
    verdict = headline(judge(frames), frames)
    if options.transport:
        return _transport(frames, verdict)
    compared, equal = pairs(frames, against), list[str]()
    if options.by:
        frame = by_factor(frames, options.by, against, compared)
        name, tables = f"variability-by-{options.by}", [factor_table(frame, options.by)]
    else:
        frame = variability(frames, against, compared)
        name, (tables, equal) = "variability", variability_tables(frame)
        tables = [(f"Variability: {title}", table) for title, table in tables]
    warn(frames)
    shown: list[Part] = [Bold(verdict), "", *tables, *equal]
    whole = {"pairs": frame_of(compared)} if options.csv or options.json else {}
    return Answer(frames, {name: frame, **whole}, shown, verdict=verdict)


def _transport(frames: Frames, verdict: Headline) -> Answer:
    from analysis.page.tables import transport_tables
    from analysis.transport import transport

    distances, shifts, notes = transport(frames)
    warn(frames)
    shown: list[Part] = [Bold(verdict), "", *transport_tables(distances, shifts)]
    tables = {"transport": distances, "shifts": shifts}
    return Answer(frames, tables, shown, notes, verdict=verdict)
