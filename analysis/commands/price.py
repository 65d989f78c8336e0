"""`python -m analysis price`. It is no study, since it prices plans of which no run exists."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import replace
from math import log
from pathlib import Path
from typing import TYPE_CHECKING

from analysis.commands.answer import Answer, Bold, Part
from analysis.commands.choice import add_csv, read_machines, require_directory
from analysis.commands.predict import (
    add_anchor,
    add_replays,
    anchor_of,
    append_to,
    require_seed,
)
from analysis.errors import Usage
from kernels.as_json import Document, rows
from miniapps.untrusted.prediction import PERCENTS

if TYPE_CHECKING:
    from analysis.predict.plans.price import Priced
    from analysis.predict.reading.calibration import Calibration
    from miniapps.untrusted.program import Program

SUMMARY = "how long a step of a plan over a mesh will take, before any run of it, and where its time goes"
DETAIL = """\
A plan's program (fpna partition explain MODEL --save FILE) says what each rank computes and sends. Its kernels are
priced by a calibration that timed such kernels (fpna calibrate --plan), its messages by the calibration's collectives,
and a replay of all ranks with the machine's noise gives the distribution. Several plans are compared. See
docs/how-to/plans.md."""
EXAMPLES = """\
  python -m analysis price gpt.json --calibration cal
  python -m analysis price dp.json tp.json --calibration cal1 --calibration cal2 --clock wall"""

DOCUMENTS = {
    "price": Document(
        rows=(
            rows(
                "plans",
                "a row per plan, the fastest first ([what they say](../how-to/plans.md#the-price))",
                """
            file title guarantee clock extrapolated | text | `clock`: `wall` or `cpu`; `extrapolated`: what was not
              measured, `; ` between
            ranks replays | integer
            p05_s p10_s p25_s p50_s p75_s p90_s p95_s | number, s | quantiles of a step; of devices of a machine file
              the median alone
            compute_s overhead_s communication_s overlapped_s waiting_s | number, s | on a quiet machine, mean over
              ranks: kernels, all between them, messages that add to the step, messages that pass while ranks work,
              waiting for ranks that are late
            memory_bytes | number | weights, the optimiser's state and the most that a step holds, of the rank with most
            flops_per_s | number | operations of the model per second and rank
            slower | number | share of the replays that are slower than the same ones of the first
            told | boolean | whether it can be told from the first; not on devices of a machine file, whose prices have
              no known error
            """,
            ),
            rows(
                "kernels",
                "where the time of the first plan goes, with `--kernels all` of every plan: a row per kernel and size, "
                "longest first",
                """
            title | text | of the plan
            kernel | text | its key in calibrations and plans: the operation, whose kernel, dtypes (`'`: strided), and
              how many dims count
            dims | text | its size, `x` between
            calls seconds share | number | per step, mean over ranks; `share` of all kernels
            """,
            ),
            rows(
                "unpriced",
                "plans that could not be priced",
                """
            file title reason | text
            """,
            ),
        )
    ),
}
TOLD = 0.9  # share of slower replays from which a plan can be told from the first
KERNELS = 12  # rows of the table of kernels


def add_options(parser: argparse.ArgumentParser) -> None:
    """The options of this command."""
    parser.add_argument("plans", nargs="+", metavar="PLAN", help="programs of plans, from explain --save")
    parser.add_argument(
        "--calibration", action="append", default=[], metavar="DIR",
        help="a run of miniapps.calibrate with --plan, best on as many ranks as the plan has; may be repeated, also "
        "for launches of one calibration",
    )  # fmt: skip
    parser.add_argument(
        "--machine", action="append", default=[], metavar="FILE",
        help="a machine that was not measured, a TOML file: cores, latency and bandwidth, or devices and links",
    )  # fmt: skip
    parser.add_argument(
        "--any-machine", action="store_true",
        help="take a calibration of another machine or software than that of the run that saved a plan, and mark it",
    )  # fmt: skip
    parser.add_argument(
        "--kernels",
        choices=("first", "all"),
        default="first",
        help="plans whose kernels --json and --csv list (%(default)s)",
    )
    add_replays(parser)
    parser.add_argument("--ledger", type=Path, metavar="FILE", help="append the predictions to this ledger")
    add_anchor(parser)
    add_csv(parser)


def run(options: argparse.Namespace) -> Answer:
    """Prices the plans and compares them."""
    import numpy as np
    import pandas as pd

    from analysis.errors import Unreachable
    from analysis.page.sections import Table
    from analysis.predict.plans.kernels import readable
    from analysis.predict.plans.price import Prices, kernels_of, prediction_of
    from analysis.predict.reading.launches import read_calibrations
    from miniapps.untrusted import Refused
    from miniapps.untrusted.program import read_program

    require_directory("--csv", options.csv)
    require_seed(options.seed)
    anchor, machines = anchor_of(options), read_machines(options.machine)
    if len(machines) > 1:
        raise Usage("--machine: give one; prices of several are several commands")
    programs = []
    for path in options.plans:
        try:
            programs.append((path, read_program(path)))
        except (Refused, OSError) as error:
            raise Usage(f"{error}; write a plan by fpna partition explain MODEL --save FILE") from None
    if not options.calibration and not any(machine.device for machine in machines):
        raise Usage(
            "--calibration DIR is missing: time kernels and messages by mpirun -n 2 fpna calibrate --out cal --plan "
            "'MODEL RECIPE SIZE=LOW..HIGH', or describe devices in a file (--machine)"
        )
    calibrations = read_calibrations(options.calibration)
    wrong = {
        path: on_other_machines(calibrations, path, program, options.any_machine)
        for path, program in programs
    }
    prices = Prices(calibrations, machines[0] if machines else None)
    found, unpriced = [], []
    for path, program in programs:
        try:
            priced = prices.of(program, replays=options.replays, clock=options.clock, seed=options.seed)
        except Unreachable as error:
            unpriced.append((path, program.title, str(error)))
            continue
        priced = replace(priced, extrapolated=(*priced.extrapolated, *wrong[path]))
        found.append((float(np.median(priced.samples)), path, priced))
    if not found:
        raise Usage(unpriced[0][-1])
    found.sort(key=lambda each: each[0])
    first = found[0][2]
    rows, lines = [], []
    for median, path, each in found:
        program = each.program
        count = min(len(each.samples), len(first.samples))
        slower = float(np.mean(each.samples[:count] > first.samples[:count]))
        quantiles = np.quantile(each.samples, np.array(PERCENTS) / 100).tolist()
        if not prices.measured:
            quantiles = [
                value if percent == 50 else np.nan for percent, value in zip(PERCENTS, quantiles, strict=True)
            ]
        told = prices.measured and slower >= TOLD
        parts = [
            float(part.mean())
            for part in (each.compute, each.overhead, each.communication, each.overlapped, each.waiting)
        ]
        memory = float(each.memory.max())
        rows.append(
            (path, program.title, program.guarantee, options.clock, "; ".join(each.extrapolated), program.size,
             len(each.samples), *quantiles, *parts, memory, program.model_flops / median / program.size, slower,
             told)
        )  # fmt: skip
        low, high = quantiles[PERCENTS.index(10)], quantiles[PERCENTS.index(90)]
        within = f"{_ms(low)} to {_ms(high)}" if prices.measured else "unknown"
        lines.append(
            (program.title, program.guarantee, program.size, _ms(median), within,
             *map(_ms, parts), f"{memory / 1e6:,.1f}", "yes" if told else "no")
        )  # fmt: skip
    plans = pd.DataFrame(
        rows,
        columns=["file", "title", "guarantee", "clock", "extrapolated", "ranks", "replays",
                 *(f"p{percent:02d}_s" for percent in PERCENTS), "compute_s", "overhead_s", "communication_s",
                 "overlapped_s", "waiting_s", "memory_bytes", "flops_per_s", "slower", "told"],
    )  # fmt: skip
    listed = [each for _, _, each in found] if options.kernels == "all" else [first]
    kernels = pd.DataFrame(
        [(each.program.title, *row) for each in listed for row in kernels_of(each)],
        columns=["title", "kernel", "dims", "calls", "seconds", "share"],
    )
    tables = {
        "plans": plans,
        "kernels": kernels,
        "unpriced": pd.DataFrame(unpriced, columns=["file", "title", "reason"]),
    }
    columns = ("plan", "guarantee", "ranks", "ms", "80 % of it", "kernels", "between", "messages", "overlapped",
               "waiting", "MB per rank", "told from the first")  # fmt: skip
    of_first = pd.DataFrame(kernels_of(first), columns=kernels.columns[1:])
    named = (
        of_first.assign(kernel=of_first["kernel"].map(readable))
        .groupby("kernel", sort=False, as_index=False)[["calls", "seconds", "share"]]
        .sum()
    )
    longest = [
        (name, f"{calls:.4g}", _ms(seconds), f"{share:.0%}")
        for name, calls, seconds, share in named.nlargest(KERNELS, "seconds").itertuples(index=False)
    ]
    shown: list[Part] = [
        Bold(said(first, rows, options.clock)),
        ("Plans, ms per step", Table(columns, lines, numbers=columns[2:11])),
        ("Kernels of the first", Table(("kernel", "calls", "ms", "share"), longest, numbers=("calls", "ms", "share"))),
    ]  # fmt: skip
    notes = [f"Note: not priced: {title}: {reason}." for _, title, reason in unpriced]
    marks = dict.fromkeys(mark for _, _, each in found for mark in each.extrapolated)
    notes += [f"Note: extrapolated: {', '.join(marks)}."] * bool(marks)
    if not prices.measured:
        notes.append(
            "Note: a machine file does not say how far off its prices are, so plans cannot be distinguished."
        )
    if first.fit.freedom:
        fit, longer = first.fit, first.fit.growth * log(2)
        notes.append(
            f"Note: steps that the calibration ran whole took {fit.kernels:.2f} times the kernels of their replays "
            f"({longer:+.2f} for each doubling of these), {fit.rest:.2f} times what is between them and "
            f"{fit.messages:.2f} times the messages; prices have these factors, and the interval the error that "
            f"remains, {fit.error:.1%}."
        )
    notes.append(
        "Note: kernels, between (lines of the program, copies, views), messages that add to the step and waiting for "
        "late ranks are of a quiet machine; the median has its noise, too. Overlapped messages pass while ranks work."
    )
    files = (
        append_to(options.ledger, [prediction_of(each) for _, _, each in found], anchor)
        if options.ledger
        else []
    )
    return Answer(None, tables, shown, notes, files=files)


def on_other_machines(
    calibrations: Sequence[Calibration], path: str, program: Program, any_machine: bool
) -> list[str]:
    """How the machines of calibrations differ from that of the run that saved a plan, in words; nothing for a plan that
    no run saved. Raises Usage without `any_machine`."""
    from analysis.predict.reading.calibration import elsewhere, of_another

    marks: dict[str, None] = {}
    for calibration in calibrations if program.environment else ():
        wrong = elsewhere(calibration, program.environment)
        if wrong and not any_machine:
            raise Usage(of_another(calibration, path, wrong))
        marks |= dict.fromkeys(f"the calibration is of another machine or software: {each}" for each in wrong)
    return list(marks)


def said(first: Priced, rows: Sequence[tuple], clock: str) -> str:
    """The sentence about the first plan, and how many others cannot be told from it."""
    program, quantiles = first.program, dict(zip(PERCENTS, rows[0][7:], strict=False))
    several = len(rows) > 1
    alike = sum(not row[-1] for row in rows) - 1
    others = f"; {alike} other{'s' * (alike != 1)} cannot be told from it"
    low, high = quantiles[10], quantiles[90]
    within = f"80 % of runs from {_ms(low)} to {_ms(high)} ms" if low <= high else "without a known error"
    return (
        f"{f'Predicted to be the fastest of {len(rows)} plans: ' * several}{program.title}, {program.guarantee}: "
        f"{_ms(quantiles[50])} ms per step on {program.size} rank{'s' * (program.size > 1)} ({clock} time), "
        f"{within}{others * several}"
    )


def _ms(seconds: float) -> str:
    return f"{seconds * 1e3:.4g}"
