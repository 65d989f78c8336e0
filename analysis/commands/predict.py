"""`python -m analysis predict`. It is no study, since it predicts runs that do not exist yet."""

from __future__ import annotations

import argparse
import hashlib
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any

from analysis.commands.answer import Answer, Bold, Part
from analysis.commands.choice import add_csv, read_machines, require_directory
from analysis.errors import Usage
from kernels.as_json import Document, rows

SUMMARY = "how long a step will take on other ranks, decks, orderings or guarantees, with an interval"
DETAIL = """\
The steps of a traced run are replayed on other ranks: its work priced as fixed + per work, from runs of several sizes,
its messages and the noise of the machine from a calibration (python -m miniapps.calibrate). With --ledger the
predictions are appended to a ledger, which an application started with --ledger vouches for. See
docs/how-to/predict.md."""
EXAMPLES = """\
  python -m analysis predict runs/deck runs/half --calibration cal --ranks 1,2
  python -m analysis predict runs/deck --calibration cal --ranks 2 --ordering ring --ledger predictions.jsonl
  python -m analysis predict runs/deck runs/half --ranks 1 --set grid.ny=256"""
OBJECTIVES = ("p50", "p90", "mean")
MOST_REPLAYS = 100_000
REST = "noise, and the spread between runs"  # the part of a step's time outside regions

DOCUMENTS = {
    "predict": Document(
        rows=(
            rows(
                "predictions",
                "a row per guarantee, rank count and machine ([how](../how-to/predict.md#predicting))",
                """
            machine app problem method guarantee clock extrapolated | text | `machine`: of `--machine`, empty as
              calibrated; `method`: a hash; `clock`: `wall` or `cpu`; `extrapolated`: names of what was not measured,
              `; ` between them
            ranks replays steps | integer | `steps`: of those of the run, how many were replayed
            p50 p90 mean | number, s | per step, that of `--objective` alone
            p05_s p10_s p25_s p50_s p75_s p90_s p95_s | number, s | quantiles of the time per step
            """,
            ),
            rows(
                "regions",
                "a row per region of each prediction, and a last one for noise and the spread between runs. They "
                "add up to the time of the prediction",
                """
            ranks | integer
            machine guarantee clock region how | text | `clock`: that of the prediction; `how`: from what its time
              is
            seconds | number, s | per step, without the regions inside it, mean over ranks
            """,
            ),
            rows(
                "prices",
                "what guarantees cost, where several were predicted "
                "([prices](../how-to/predict.md#prices-of-guarantees)): a row per rank count and guarantee but "
                "the weakest",
                """
            ranks | integer
            clock guarantee weakest extrapolated | text | `weakest`: with which it is compared; `extrapolated`: of
              both
            price low high | number | ratio of the medians, 80 % of paired replays
            told | boolean | 1 is not between `low` and `high`
            """,
            ),
            rows(
                "strategies",
                "with `--search` the fastest ones, of which the tables above are, too "
                "([how](../how-to/predict.md#search))",
                """
            place ranks | integer
            guarantee ordering extrapolated | text | `ordering`: `own` for the run's
            seconds low high | number, s | the objective; 80 % of runs
            slower | number | share of the replays that are slower than the same ones of the first
            told | boolean | whether it can be told from the first
            """,
            ),
            rows(
                "infeasible",
                "with `--search` all strategies that cannot be predicted",
                """
            ranks | integer
            guarantee ordering reason | text
            """,
            ),
            rows(
                "what_if",
                "a row per guarantee, rank count and machine, the calibration's first; only with `--machine`",
                """
            machine app problem method guarantee clock extrapolated | text | `machine`: `as calibrated`, or its name
            ranks | integer
            median_s low_s high_s | number, s | per step; 80 % of runs are between the last two
            ratio | number | of the median to that as calibrated
            """,
            ),
        )
    ),
}


def add_options(parser: argparse.ArgumentParser) -> None:
    """The options of this command."""
    parser.add_argument("runs", nargs="+", metavar="RUN", help="best on one rank: the deck, and half of it")
    parser.add_argument(
        "--calibration", action="append", default=[], metavar="DIR",
        help="a run of miniapps.calibrate, best on as many ranks as are predicted; may be repeated, also for launches "
        "of one calibration",
    )  # fmt: skip
    parser.add_argument("--ranks", type=_ranks, metavar="P,...", help="rank counts (those of the runs)")
    parser.add_argument(
        "--deck", metavar="FILE", help="another deck, a TOML file; its options of the problem count"
    )
    parser.add_argument(
        "--set",
        action="append",
        default=[],
        metavar="SECTION.NAME=VALUE",
        help="another option of the problem",
    )
    parser.add_argument(
        "--guarantee",
        metavar="LEVEL,...",
        type=_names,
        help="those of the runs to predict, or others, marked (all)",
    )
    parser.add_argument("--ordering", metavar="NAME", help="of the reductions: 'ring', 'direct in exact'")
    parser.add_argument(
        "--machine", action="append", default=[], metavar="FILE",
        help="a machine that was not measured, a TOML file: name, cores, speed, memory, latency, bandwidth; may be "
        "repeated",
    )  # fmt: skip
    parser.add_argument(
        "--any-machine", action="store_true", help="take a calibration of another machine or software"
    )
    parser.add_argument(
        "--search", type=_names, metavar="WHAT,...",
        help="the fastest strategies over these: ordering, ranks, guarantee",
    )  # fmt: skip
    add_replays(parser)
    parser.add_argument(
        "--objective",
        choices=OBJECTIVES,
        default="p50",
        help="the figure that the answer gives first (%(default)s)",
    )
    parser.add_argument("--ledger", type=Path, metavar="FILE", help="append the predictions to this ledger")
    add_anchor(parser)
    add_csv(parser)


def add_replays(parser: argparse.ArgumentParser) -> None:
    """The options of replays: their number, their clock, and their seed."""
    parser.add_argument("--replays", type=_replays, default=200, metavar="N", help="(%(default)s)")
    parser.add_argument(
        "--clock", choices=("cpu", "wall"), default="cpu", help="of the seconds (%(default)s)"
    )
    parser.add_argument("--seed", type=int, default=1, metavar="N", help="of the replays (%(default)s)")


def add_anchor(parser: argparse.ArgumentParser) -> None:
    """The option of the rows of a ledger."""
    parser.add_argument(
        "--anchor", metavar="TEXT|FILE",
        help="with --ledger: what nobody knew before today, such as a headline or a published hash, or a file with it; "
        "the row has it, and so is younger",
    )  # fmt: skip


def require_seed(seed: int) -> None:
    """Raises Usage for a seed below 0."""
    if seed < 0:
        raise Usage(f"--seed {seed}: give 0 or more")


def _ranks(text: str) -> list[int]:
    parts = text.split(",")
    if not all(part.isdecimal() and 1 <= int(part) <= 4096 for part in parts):
        raise argparse.ArgumentTypeError(f"{text!r}: give rank counts from 1 to 4096, such as 1,2,4")
    return [int(part) for part in parts]


def _names(text: str) -> list[str]:
    names = list(dict.fromkeys(part.strip() for part in text.split(",")))
    if not all(names):
        raise argparse.ArgumentTypeError(f"{text!r}: give names with commas between them")
    return names


def _replays(text: str) -> int:
    if not text.isdecimal() or not 2 <= int(text) <= MOST_REPLAYS:
        raise argparse.ArgumentTypeError(f"{text!r}: give 2 to {MOST_REPLAYS:,} replays")
    return int(text)


def run(options: argparse.Namespace) -> Answer:
    """Predicts the time per step from the runs."""
    from analysis.errors import Unreachable
    from analysis.load.find import find_runs
    from analysis.predict.choices.prices import levels, targeted
    from analysis.predict.choices.whatif import nearest
    from analysis.predict.reading.launches import read_calibrations
    from analysis.predict.reading.skeleton import skeleton
    from analysis.predict.simulation.model import predict

    require_directory("--csv", options.csv)
    require_seed(options.seed)
    settings, anchor = _settings(options), anchor_of(options)
    machines = read_machines(options.machine)
    for option, given in (("--ledger", options.ledger), ("--search", options.search)):
        if given and len(machines) > 1:
            raise Usage(f"{option}: is of one machine; give one --machine with it, or none")
    runs = [skeleton(path) for path in find_runs(options.runs)]
    calibrations = read_calibrations(options.calibration)
    found, what_ifs = None, []

    def predicted(runs: list, size: int, level: str, reduction: str | None, machine):
        calibration = nearest(calibrations, size)
        chosen = targeted(runs, size, settings, level, reduction, calibration)
        wrong = on_another_machine(calibration, chosen.program, options)
        return predict(
            chosen, calibration, replays=options.replays, clock=options.clock, seed=options.seed, machine=machine,
            elsewhere=wrong,
        )  # fmt: skip

    try:
        if options.search:
            machine = machines[0] if machines else None
            found = _search(runs, calibrations, options, partial(predicted, machine=machine))
            answers = [(machine, each) for each in found.best]
        else:
            sizes = options.ranks or sorted({run.size for run in runs})
            ordering = _reduction(options.ordering)
            each = product(options.guarantee or levels(runs), sizes, (None, *machines))
            what_ifs = [
                (machine, predicted(runs, size, level, ordering, machine)) for level, size, machine in each
            ]
            answers = [pair for pair in what_ifs if pair[0] is not None or not machines]
    except (Unreachable, ValueError) as error:
        raise Usage(str(error)) from None
    files = (
        append_to(options.ledger, [answer.prediction for _, answer in answers], anchor)
        if options.ledger
        else []
    )
    answer = _answer(answers, options, files, found, what_ifs if machines else [])
    note = f"Note: the rows of {options.ledger} have the anchor: {anchor}"
    return replace(answer, notes=[*answer.notes, note]) if anchor else answer


def _search(runs: list, calibrations: list, options: argparse.Namespace, predicted):
    """The fastest strategies (`analysis.predict.choices.strategies.Found`)."""
    from analysis.predict.choices import strategies
    from analysis.predict.choices.orderings import offered
    from analysis.predict.choices.whatif import nearest

    if unknown := [name for name in options.search if name not in strategies.DIMENSIONS]:
        raise Usage(
            f"--search {unknown[0]}: cannot be searched; there are: {', '.join(strategies.DIMENSIONS)}"
        )
    ranks = options.ranks or sorted({run.size for run in runs})
    if "ranks" in options.search and not options.ranks:
        environments = [each.environment for each in calibrations] + [runs[0].attributes["environment"]]
        cores = [each["cores"] for each in environments if isinstance(each.get("cores"), int)]
        ranks = range(1, min(max(cores, default=1), 4096) + 1)
    orderings = [_reduction(options.ordering) or strategies.OWN]
    if "ordering" in options.search:
        orderings += sorted({label for each in calibrations for label in offered(each)} - {*orderings})
    known = sorted({run.attributes.get("guarantee", "none") for run in runs})
    given = strategies.strategies(options.search, ranks, options.guarantee or known, orderings)
    return strategies.search(
        given,
        lambda each: predicted(runs, each.ranks, each.guarantee, each.reduction),
        lambda size: nearest(calibrations, size),
        lambda each: _objective(each, options),
    )


def _objective(each, options: argparse.Namespace) -> float:
    p = each.prediction
    return {"p50": p.median, "p90": p.interval[1], "mean": float(each.samples.mean())}[options.objective]


def _answer(
    answers: list, options: argparse.Namespace, files: list[str], found=None, what_ifs: Sequence = ()
) -> Answer:
    """The Answer with all tables; `answers` and `what_ifs` are pairs (machine or None for calibrated, prediction)."""
    import pandas as pd

    from analysis.page.sections import Table
    from analysis.predict.choices.prices import prices
    from analysis.predict.choices.strategies import INFEASIBLE, STRATEGIES
    from analysis.predict.choices.whatif import HERE, what_if_frame, what_if_table
    from analysis.predict.choices.words import price_table, strategy_tables
    from miniapps.untrusted.prediction import PERCENTS

    several = len({each.target.guarantee for _, each in answers}) > 1
    rows, regions = [], []
    shown: list[Part] = []
    notes: dict[str, None] = {}
    for machine, each in answers:
        p, level, name = each.prediction, each.target.guarantee, machine.name if machine else ""
        best = _objective(each, options)
        low, high = p.interval
        on = f"{p.app} on {p.ranks} rank{'s' * (p.ranks > 1)}{f', {level}' * several}{f' of {name}' * bool(name)}"
        marks = f"; extrapolated: {', '.join(p.extrapolated)}" * bool(p.extrapolated)
        shown.append(
            Bold(f"{on}: {_ms(best)} ms per step ({options.objective}, {p.clock} time), 80 % of runs from {_ms(low)} "
                 f"to {_ms(high)} ms{marks}")
        )  # fmt: skip
        quantiles = {f"p{percent:02d}_s": q for percent, q in zip(PERCENTS, p.quantiles, strict=True)}
        rows.append(
            {"machine": name, "app": p.app, "problem": p.problem, "method": p.method, "guarantee": level,
             "ranks": p.ranks, "clock": p.clock, options.objective: best, **quantiles, "replays": len(each.samples),
             "steps": each.replays.steps, "extrapolated": "; ".join(p.extrapolated)}
        )  # fmt: skip
        rest = {"region": REST, "seconds": best - each.regions["seconds"].sum(), "how": "replays"}
        own = pd.concat([each.regions, pd.DataFrame([rest])], ignore_index=True)
        own = own.assign(machine=name, ranks=p.ranks, guarantee=level, clock=p.clock)
        regions.append(own[["machine", "guarantee", "ranks", "clock", "region", "seconds", "how"]])
        notes |= dict.fromkeys(f"Note: {remark}." for remark in p.remarks)
    first_machine = [each for machine, each in answers if machine is answers[0][0]]
    tables = {"predictions": pd.DataFrame(rows), "regions": pd.concat(regions, ignore_index=True),
              "prices": prices(first_machine if found is None else found.own),
              "strategies": pd.DataFrame(columns=list(STRATEGIES)) if found is None else found.table,
              "infeasible": pd.DataFrame(columns=list(INFEASIBLE)) if found is None else found.infeasible,
              "what_if": what_if_frame(what_ifs)}  # fmt: skip
    if found is not None:
        first, place = found.table.iloc[0], found.best[0].prediction
        shown = [
            Bold(f"Predicted to be the fastest of {found.replayed} strategies: {first['guarantee']} on {place.ranks} "
                 f"rank{'s' * (place.ranks > 1)}, ordering {first['ordering']}, {_ms(first['seconds'])} ms per step "
                 f"({options.objective}, {p.clock} time), 80 % of runs from {_ms(first['low'])} to "
                 f"{_ms(first['high'])} ms; {found.alike} others cannot be told from it"),
            *strategy_tables(found.table, found.infeasible),
        ]  # fmt: skip
        notes[
            "Note: all strategies were replayed from the same seed; one differs from the first where nine of ten of "
            f"its replays or more are slower than the same ones of the first. {len(found.infeasible)} strategies "
            "cannot be predicted. Guarantees are those of the runs given, orderings those of the calibration."
        ] = None
    if what_ifs:
        shown.append(("What if", what_if_table(tables["what_if"])))
    columns = ("machine", "guarantee", "ranks", "region", "ms per step", "from")
    lines = [
        (row.machine or HERE, row.guarantee, row.ranks, row.region, _ms(row.seconds), row.how)
        for row in tables["regions"].itertuples(index=False)
    ]
    clock = {"cpu": "CPU", "wall": "wall"}[answers[0][1].prediction.clock]
    title = f"Regions, mean over ranks, {clock} time: those of a prediction add up to its {options.objective} above"
    table = (title, Table(columns, lines, numbers=("ranks", "ms per step")))
    return Answer(None, tables, [*shown, *price_table(tables["prices"]), table], list(notes), files=files)


def _ms(seconds: float) -> str:
    return f"{seconds * 1e3:.4g}"


def _settings(options: argparse.Namespace) -> dict[str, Any]:
    """The options of the problem from --deck and --set: {section.name: value}; --set wins."""
    settings: dict[str, Any] = {}
    if options.deck is not None:
        settings = {
            key: value for key, value in _toml("--deck", options.deck).items() if not key.startswith("run.")
        }
    for text in options.set:
        key, equals, value = text.partition("=")
        if not equals or "." not in key:
            raise Usage(f"--set {text}: give SECTION.NAME=VALUE")
        settings[key] = value
    return settings


def _toml(option: str, path: str) -> dict[str, Any]:
    """The values of a TOML file by `section.name`, values outside sections by `name`. Raises Usage."""
    from miniapps.untrusted import Refused
    from miniapps.untrusted.records import parse_toml
    from miniapps.untrusted.regular import read_text

    try:
        content = parse_toml(read_text(path, 2**20))
    except (Refused, OSError, ValueError) as error:
        raise Usage(f"{option} {path}: {error}") from None
    return {
        key: value
        for section, own in content.items()
        for key, value in (
            {f"{section}.{name}": v for name, v in own.items()} if isinstance(own, dict) else {section: own}
        ).items()
    }


def on_another_machine(calibration, program, options: argparse.Namespace) -> list[str]:
    """The differences between the machine of the calibration and of the run; raises Usage without --any-machine."""
    from analysis.predict.reading.calibration import elsewhere, of_another

    if calibration is None:
        return []
    wrong = elsewhere(calibration, program.attributes["environment"])
    if wrong and not options.any_machine:
        raise Usage(of_another(calibration, program.path, wrong))
    return wrong


def _reduction(text: str | None) -> str | None:
    if text is not None and not text.strip():
        raise Usage("--ordering: give a name, such as ring or 'direct in exact'")
    return text


def anchor_of(options: argparse.Namespace) -> str:
    """The anchor of the rows: the text, or the SHA-256 and the name of a file; empty without one."""
    from miniapps.untrusted.ledger import ANCHOR_MOST
    from miniapps.untrusted.regular import Refused, open_regular

    if options.anchor is None:
        return ""
    if not options.ledger:
        raise Usage("--anchor: belongs to rows of a ledger; give --ledger FILE too")
    text, path = options.anchor.strip(), Path(options.anchor)
    try:
        found = path.exists()
    except (OSError, ValueError):  # a text too long for a name, or with a NUL
        found = False
    if found:
        try:
            with open_regular(path, 2**26, links=True) as file:
                text = f"SHA-256 {hashlib.sha256(file.read()).hexdigest()} of {path.name}"
        except (Refused, OSError) as error:
            raise Usage(f"--anchor {options.anchor}: {error}") from None
    if not text or not text.isprintable() or len(text) > ANCHOR_MOST:
        raise Usage(f"--anchor: give a line of 1 to {ANCHOR_MOST} letters, or a file")
    return text


def append_to(path: Path, predictions: Sequence, anchor: str) -> list[str]:
    """Appends predictions to a ledger; returns the written files. Raises Usage."""
    from analysis.predict.scoring.ledger import append
    from miniapps.untrusted import Refused

    try:
        for each in predictions:
            append(path, each, anchor)
    except (Refused, OSError) as error:
        raise Usage(f"--ledger {path}: {error}") from None
    return [str(path)]
