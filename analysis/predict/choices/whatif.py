"""What if: predictions for the same runs on other machines, beside the calibrated machine."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import pandas as pd

from analysis.errors import Unreachable
from analysis.page import svg
from analysis.page.axes import plain_ticks
from analysis.page.sections import Section, Table
from analysis.page.svg import Figure, figure_of
from analysis.predict.costs.machines import Machine
from analysis.predict.reading.calibration import Calibration, elsewhere, of_another
from analysis.predict.reading.skeleton import Skeleton
from analysis.predict.simulation.model import Predicted, predict
from analysis.predict.simulation.target import alike, target

HERE = "as calibrated"
TITLE = "What if"
COLOURS = 7


@dataclass(frozen=True)
class WhatIf:
    """`rows` of `what_if_frame`; `notes` are sentences on runs without a prediction, and on assumptions."""

    rows: pd.DataFrame
    notes: list[str]


def nearest(calibrations: Sequence[Calibration], size: int) -> Calibration | None:
    """The calibration whose rank count is nearest to `size`, the larger one of two; None without calibrations."""
    return min(calibrations, key=lambda each: (abs(each.size - size), -each.size), default=None)


def what_if(
    runs: Sequence[Skeleton],
    calibrations: Sequence[Calibration],
    machines: Sequence[Machine],
    any_machine: bool = False,
) -> WhatIf:
    """Predicts the wall time of `runs` on their own rank counts, each method by itself, on the calibrated machine and
    on each of `machines`. Leaves out runs of another machine or software than their calibration, with a note; with
    `any_machine` it keeps and marks them."""
    answers: list[tuple[Machine | None, Predicted]] = []
    notes: dict[str, None] = {}
    groups: dict[tuple[str, str], list[Skeleton]] = {}
    for run in sorted(runs, key=lambda run: -run.work):
        groups.setdefault((run.attributes["app"], alike(run)), []).append(run)
    for own in groups.values():
        if min(run.size for run in own) > 1:
            app = own[0].attributes["app"]
            notes[f"{app}: no run on one rank was given; predictions from one are the most accurate"] = None
        for size in sorted({run.size for run in own}):
            calibration = nearest(calibrations, size)
            try:
                chosen = target(own, size, {})
                wrong = (
                    elsewhere(calibration, chosen.program.attributes["environment"]) if calibration else []
                )
                if wrong and calibration and not any_machine:
                    notes[f"left out: {of_another(calibration, chosen.program.path, wrong)}"] = None
                    continue
                for machine in (None, *machines):
                    answers.append(
                        (
                            machine,
                            predict(chosen, calibration, clock="wall", machine=machine, elsewhere=wrong),
                        )
                    )
            except (Unreachable, ValueError) as error:
                notes[str(error)] = None
    for _, answer in answers:
        notes |= dict.fromkeys(answer.prediction.remarks)
    return WhatIf(what_if_frame(answers), list(notes))


def what_if_frame(answers: Sequence[tuple[Machine | None, Predicted]]) -> pd.DataFrame:
    """A row per machine, problem and rank count: `machine`, `app`, `problem`, `method`, `guarantee`, `ranks`, `clock`,
    `median_s`, `low_s`, `high_s` (80 % of runs), `ratio` of the median to the calibrated machine's, `extrapolated`."""
    rows = []
    for machine, answer in answers:
        p = answer.prediction
        rows.append(
            {"machine": HERE if machine is None else machine.name, "app": p.app, "problem": p.problem,
             "method": p.method, "guarantee": answer.target.guarantee, "ranks": p.ranks, "clock": p.clock,
             "median_s": p.median, "low_s": p.interval[0], "high_s": p.interval[1],
             "extrapolated": "; ".join(p.extrapolated)}
        )  # fmt: skip
    columns = [
        "machine",
        "app",
        "problem",
        "method",
        "guarantee",
        "ranks",
        "clock",
        "median_s",
        "low_s",
        "high_s",
        "extrapolated",
    ]
    table = pd.DataFrame(rows, columns=columns)
    keys = ["app", "problem", "method", "ranks"]
    here = table[table["machine"] == HERE].set_index(keys)["median_s"]
    at = pd.MultiIndex.from_frame(table[keys])
    table.insert(10, "ratio", table["median_s"].to_numpy() / here.reindex(at).to_numpy(float))
    return table


def what_if_table(rows: pd.DataFrame) -> Table:
    """The table for the report, machines in their given order."""
    columns = (
        "machine",
        "app",
        "guarantee",
        "ranks",
        "median, ms",
        "80 % of runs, ms",
        "ratio",
        "extrapolated",
    )
    lines = [
        (row.machine, row.app, row.guarantee, row.ranks, f"{1e3 * row.median_s:.4g}", f"{1e3 * row.low_s:.4g} to "
         f"{1e3 * row.high_s:.4g}", f"{row.ratio:.3g}", row.extrapolated or "nothing")
        for row in rows.itertuples(index=False)
    ]  # fmt: skip
    return Table(columns, lines, numbers=("ranks", "median, ms", "ratio"))


def what_if_figure(rows: pd.DataFrame) -> Figure:
    """Median and interval of each machine by rank count."""
    machines = list(dict.fromkeys(rows["machine"]))
    caption = (
        "Time per step by number of ranks: the point is the predicted median, the bar the interval of 80 % of runs. "
        "Only the calibrated machine was measured; the others are extrapolated."
    )

    def plot(axes) -> None:
        axes.set(xlabel="ranks", ylabel="time, ms per step", xscale="log", yscale="log")
        for k, name in enumerate(machines):
            own, look = rows[rows["machine"] == name], svg.series(k % COLOURS)
            x = own["ranks"] * 2 ** (0.08 * (k - (len(machines) - 1) / 2))  # beside each other
            axes.vlines(x, 1e3 * own["low_s"], 1e3 * own["high_s"], color=look["color"], linewidth=1.6)
            axes.plot(x, 1e3 * own["median_s"], linestyle="none", **look)
        ranks = sorted(set(rows["ranks"]))
        axes.set_xticks(ranks, list(map(str, ranks)))
        axes.set_xticks([], minor=True)
        axes.set_xlim(ranks[0] / 1.5, ranks[-1] * 1.5)
        plain_ticks(axes.yaxis)

    legend = tuple((k % COLOURS, name) for k, name in enumerate(machines))
    return figure_of("what-if", "Predicted times on other machines", plot, caption, 3.2, legend, data=rows)


def verdict(rows: pd.DataFrame) -> str:
    """A sentence with the time on each machine over the calibrated one; empty without other machines."""
    ratios = []
    for name, own in rows[rows["machine"] != HERE].groupby("machine", sort=False):
        low, high = (f"{x:.3g}" for x in (own["ratio"].min(), own["ratio"].max()))
        ratios.append(f"{name}, {low if low == high else f'{low} to {high}'} times")
    return f"Predicted time of a step over the calibrated machine's: {'; '.join(ratios)}. " if ratios else ""


def what_if_sections(found: WhatIf | None) -> list[Section]:
    """The section of the report; none without a prediction."""
    if found is None:
        return []
    notes = [f"{note[:1].upper()}{note[1:]}." for note in found.notes]
    if found.rows.empty:
        return [
            Section("what-if", TITLE, "No time per step could be predicted from these runs.", notes=notes)
        ]
    intro = (
        f"{verdict(found.rows)}The model replays the traced steps with the costs of the calibration, and with those of "
        "machines that files describe. All times are predictions; those for other machines are extrapolated."
    )
    table = what_if_table(found.rows)
    return [
        Section(
            "what-if",
            TITLE,
            "",
            intro,
            [what_if_figure(found.rows)],
            [("Predicted times per step", table)],
            notes=notes,
        )
    ]
