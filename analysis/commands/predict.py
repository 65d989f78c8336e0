"""`python -m analysis predict`."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from analysis.commands.answer import Answer, Bold, Shown
from analysis.commands.choice import Usage, add_csv, read_machines, require_directory

SUMMARY = "how long a step will take on other ranks, decks, orderings or guarantees, as a distribution"
DETAIL = """\
The steps of a traced run are replayed on other ranks: its work priced as fixed + per work, from runs of several sizes,
its messages and the noise of the machine from a calibration (python -m miniapps.calibrate). With --ledger the
predictions are appended to a ledger, which an application started with --ledger vouches for. See docs/predict.md."""
EXAMPLES = """\
  python -m analysis predict runs/deck runs/half --calibration cal --ranks 1,2
  python -m analysis predict runs/deck --calibration cal --ranks 2 --ordering ring --ledger predictions.jsonl
  python -m analysis predict runs/deck runs/half --ranks 1 --set grid.ny=256"""
OBJECTIVES = ("p50", "p90", "mean")
MOST_REPLAYS = 100_000


def add_options(parser: argparse.ArgumentParser) -> None:
    """The options of this command."""
    parser.add_argument("runs", nargs="+", metavar="RUN", help="best on one rank: the deck, and half of it")
    parser.add_argument(
        "--calibration", action="append", default=[], metavar="DIR",
        help="a run of miniapps.calibrate, best on as many ranks as are predicted; may be repeated",
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
        "--guarantee", metavar="LEVEL", help="of which the runs are, where they are of several"
    )
    parser.add_argument("--ordering", metavar="NAME", help="of the reductions: 'ring', 'direct in exact'")
    parser.add_argument("--mesh", metavar="MESH", help="of which the runs are; others are not modelled")
    parser.add_argument(
        "--machine", action="append", default=[], metavar="FILE",
        help="a machine that was not measured, a TOML file: name, cores, speed, latency, bandwidth; may be repeated",
    )  # fmt: skip
    parser.add_argument(
        "--any-machine", action="store_true", help="take a calibration of another machine or software"
    )
    parser.add_argument("--replays", type=_replays, default=200, metavar="N", help="(%(default)s)")
    parser.add_argument(
        "--clock", choices=("cpu", "wall"), default="cpu", help="of the seconds (%(default)s)"
    )
    parser.add_argument(
        "--objective", choices=OBJECTIVES, default="p50", help="what is told first (%(default)s)"
    )
    parser.add_argument("--seed", type=int, default=1, metavar="N", help="of the replays (%(default)s)")
    parser.add_argument("--ledger", type=Path, metavar="FILE", help="append the predictions to this ledger")
    add_csv(parser)


def _ranks(text: str) -> list[int]:
    parts = text.split(",")
    if not all(part.isdecimal() and 1 <= int(part) <= 4096 for part in parts):
        raise argparse.ArgumentTypeError(f"{text!r}: give rank counts from 1 to 4096, such as 1,2,4")
    return [int(part) for part in parts]


def _replays(text: str) -> int:
    if not text.isdecimal() or not 2 <= int(text) <= MOST_REPLAYS:
        raise argparse.ArgumentTypeError(f"{text!r}: give 2 to {MOST_REPLAYS:,} replays")
    return int(text)


def run(options: argparse.Namespace) -> Answer:
    """What the runs lead to."""
    from analysis.load.find import find_runs
    from analysis.predict.model import predict
    from analysis.predict.skeleton import skeleton
    from analysis.predict.target import Unreachable, target
    from analysis.predict.whatif import nearest

    require_directory("--csv", options.csv)
    if options.seed < 0:
        raise Usage(f"--seed {options.seed}: give 0 or more")
    if options.mesh is not None:
        raise Usage("--mesh: what another mesh would compute is not modelled yet; give a run on that mesh, and predict "
                    "its own ranks")  # fmt: skip
    settings = _settings(options)
    machines = read_machines(options.machine)
    if options.ledger and len(machines) > 1:
        raise Usage("--ledger: a run is made on one machine; give one --machine with it, or none")
    runs = [skeleton(path) for path in find_runs(options.runs)]
    calibrations = _calibrations(options.calibration)
    answers: list = []
    here: list = []
    try:
        for size in options.ranks or sorted({run.size for run in runs}):
            chosen = target(runs, size, settings, options.guarantee, _reduction(options.ordering))
            calibration = nearest(calibrations, size)
            wrong = _elsewhere(calibration, chosen.program, options)
            made = [
                predict(
                    chosen, calibration, replays=options.replays, clock=options.clock, seed=options.seed,
                    machine=machine, elsewhere=wrong,
                )
                for machine in (None, *machines)
            ]  # fmt: skip
            here += zip((None, *machines), made, strict=True)
            answers += made[1:] or made
    except (Unreachable, ValueError) as error:
        raise Usage(str(error)) from None
    files = _append(options.ledger, answers) if options.ledger else []
    return _answer(answers, options, files, here if machines else [], [each.name for each in machines])


def _answer(
    answers: list, options: argparse.Namespace, files: list[str], what_ifs: list, machines: list[str]
) -> Answer:
    """`what_ifs`: (machine or None, answer); `machines`: their names, in turn those of `answers`."""
    import pandas as pd

    from analysis.page.sections import Table
    from analysis.predict.prediction import PERCENTS
    from analysis.predict.whatif import HERE, what_if_frame, what_if_table

    rows, regions, shown = [], [], []
    notes: dict[str, None] = {}
    for i, each in enumerate(answers):
        p, name = each.prediction, machines[i % len(machines)] if machines else ""
        samples = each.replays.wall if p.clock == "wall" else each.replays.cpu
        best = {"p50": p.median, "p90": p.interval[1], "mean": float(samples.mean())}[options.objective]
        low, high = p.interval
        of = f" of {name}" if name else ""
        shown.append(
            Bold(f"{p.app} on {p.ranks} rank{'s' * (p.ranks > 1)}{of}: {_ms(best)} ms per step ({options.objective}, "
                 f"{p.clock} time), 80 % of runs from {_ms(low)} to {_ms(high)} ms"
                 + (f"; extrapolated: {', '.join(p.extrapolated)}" if p.extrapolated else ""))
        )  # fmt: skip
        quantiles = {f"p{percent:02d}_s": q for percent, q in zip(PERCENTS, p.quantiles, strict=True)}
        rows.append(
            {"machine": name, "app": p.app, "problem": p.problem, "method": p.method, "ranks": p.ranks,
             "clock": p.clock, options.objective: best, **quantiles, "replays": len(samples),
             "steps": each.replays.steps, "extrapolated": "; ".join(p.extrapolated)}
        )  # fmt: skip
        regions.append(
            each.regions.assign(ranks=p.ranks, machine=name)[["machine", "ranks", "region", "seconds", "how"]]
        )
        notes |= dict.fromkeys(f"Note: {remark}." for remark in p.remarks)
    tables = {"predictions": pd.DataFrame(rows), "regions": pd.concat(regions, ignore_index=True)}
    columns = ("machine", "ranks", "region", "ms per step", "from")
    lines = [
        (row.machine or HERE, row.ranks, row.region, _ms(row.seconds), row.how)
        for row in tables["regions"].itertuples(index=False)
    ]
    table: list[Shown] = [("Regions", Table(columns, lines, numbers=("ranks", "ms per step")))]
    if what_ifs:
        tables["what_if"] = what_if_frame(what_ifs)
        table.insert(0, ("What if", what_if_table(tables["what_if"])))
    return Answer(None, tables, [*shown, *table], list(notes), files=files)


def _ms(seconds: float) -> str:
    return f"{seconds * 1e3:.4g}"


def _settings(options: argparse.Namespace) -> dict[str, Any]:
    """What --deck and --set say of the problem, by key."""
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
    """The values of a TOML file by `section.name`, those of its top by `name`."""
    from miniapps.received import Refused
    from miniapps.received.records import parse_toml
    from miniapps.received.regular import read_text

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


def _calibrations(paths: list[str]) -> list:
    from analysis.predict.calibration import read_calibration

    return [read_calibration(path) for path in paths]


def _elsewhere(calibration, program, options: argparse.Namespace) -> list[str]:
    """In what the calibration is of another machine, where that is allowed; raises Usage where it is not."""
    from analysis.predict.calibration import elsewhere

    if calibration is None:
        return []
    wrong = elsewhere(calibration, program.attributes["environment"])
    if wrong and not options.any_machine:
        raise Usage(
            f"{calibration.path}: is of another machine or version than {program.path} ({'; '.join(wrong)}); calibrate "
            "beside the run, or take it all the same with --any-machine"
        )
    return wrong


def _reduction(text: str | None) -> str | None:
    if text is not None and not text.strip():
        raise Usage("--ordering: give a name, such as ring or 'direct in exact'")
    return text


def _append(path: Path, answers: list) -> list[str]:
    from analysis.predict.ledger import append
    from miniapps.received import Refused

    try:
        for each in answers:
            append(path, each.prediction)
    except (Refused, OSError) as error:
        raise Usage(f"--ledger {path}: {error}") from None
    return [str(path)]
