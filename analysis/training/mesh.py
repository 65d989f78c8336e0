"""How well runs over a mesh used their cores: model FLOPs over what the cores could have done in that time.

Rank 0 records the floating-point operations of a step of the unsharded model, the rate of one core, and of each step
the utilisation by its clock (`miniapps.trace.schema`). All ranks record their processor time, from which follows what
the utilisation would be if each rank had its core to itself: the figure for a machine that others use.
"""

from __future__ import annotations

import json
from dataclasses import dataclass

import numpy as np
import pandas as pd

from analysis.groups import problem_names
from analysis.load.frames import Frames
from analysis.page.sections import Section, Table, folded
from analysis.page.text import interval, number
from analysis.runs import ids
from miniapps.trace.schema import CORE_RATE, CPU_TIME, MODEL_FLOPS, UTILISATION

USED = {"problem": "str", "model": "str", "recipe": "str", "mesh": "str", "guarantee": "str", "ranks": "int64",
        "run": "str", "repeat": "int64", "steps": "int64", "flops": "float64", "rate": "float64",
        "seconds": "float64", "utilisation": "float64", "least": "float64", "most": "float64",
        "of_processor_time": "float64"}  # fmt: skip
COLUMNS = ("model", "recipe", "mesh", "guarantee", "runs", "steps", "GFLOP per step", "GFLOP/s of a core", "s per step",
           "utilisation, %", "all steps, %", "of processor time, %")  # fmt: skip
TITLE = "Training over a mesh: utilisation"


@dataclass(frozen=True)
class Used:
    """A row per repeat, columns USED: `seconds` of a step, `utilisation` and `of_processor_time` are medians over all
    steps but the first of the repeat, `least` and `most` their range by the clock."""

    runs: pd.DataFrame


def used(frames: Frames) -> Used:
    """What the runs among `frames` that recorded their utilisation hold of it."""
    known = [UTILISATION in set(frames.of("usage", *run)["name"]) for run in ids(frames.runs)]
    runs = frames.runs[np.array(known, bool)]
    names = problem_names(runs) if len(runs) else {}
    rows = [_row(frames, run, names[run["problem"]]) for run in runs.to_dict("records")]
    return Used(pd.DataFrame(rows, columns=list(USED)).astype(USED))


def _row(frames: Frames, run: dict, problem: str) -> dict[str, object]:
    """The row of USED of one repeat."""
    config = json.loads(run["config"])
    usage = frames.of("usage", run["run"], run["repeat"])
    steps = usage[usage["name"] == UTILISATION].set_index("step")["value"].sort_index()
    later = steps.iloc[1:] if len(steps) > 1 else steps  # the first step plans and allocates
    flops, rate = (float(usage[usage["name"] == name]["value"].iloc[0]) for name in (MODEL_FLOPS, CORE_RATE))
    cpu = usage[(usage["name"] == CPU_TIME).to_numpy()].groupby("step")["value"].sum()
    cores = run["size"] * int(config["run"]["threads"])
    own = flops / (cpu.reindex(later.index) * rate)
    return {
        "problem": problem, "model": str(config["model"]["name"]), "recipe": str(config["mesh"]["recipe"]),
        "mesh": str(config["mesh"]["mesh"]), "guarantee": run["guarantee"], "ranks": run["size"], "run": run["run"],
        "repeat": run["repeat"], "steps": len(steps), "flops": flops, "rate": rate,
        "seconds": (flops / (later * cores * rate)).median(), "utilisation": later.median(), "least": later.min(),
        "most": later.max(), "of_processor_time": own.median(),
    }  # fmt: skip


def tables(known: Used) -> list[tuple[str, Table]]:
    """(title, table): a row per problem, mesh and guarantee, medians over runs; none where no run recorded it."""
    if known.runs.empty:
        return []
    by = ["problem", "model", "recipe", "mesh", "guarantee"]
    rows = []
    for (problem, model, recipe, mesh, guarantee), same in known.runs.groupby(by, sort=False):
        middle = same[["flops", "rate", "seconds", "utilisation", "of_processor_time"]].median()
        rows.append(
            (
                " ".join(filter(None, [model, problem])), recipe, mesh, guarantee, len(same), same["steps"].sum(),
                number(middle["flops"] / 1e9), number(middle["rate"] / 1e9), number(middle["seconds"]),
                percent(middle["utilisation"]), interval(same["least"].min(), same["most"].max(), percent),
                percent(middle["of_processor_time"]),
            )
        )  # fmt: skip
    return [("Utilisation by model, mesh and guarantee", Table(COLUMNS, rows, COLUMNS[4:]))]


def sentences(known: Used) -> list[str]:
    """The best and the worst mesh, or the one there is."""
    if known.runs.empty:
        return []
    ordered = known.runs.sort_values("utilisation", ascending=False, kind="stable")
    told = [
        f"{row.model}, {row.recipe} over {row.mesh}, {row.guarantee}: utilisation {percent(row.utilisation)} %, "
        f"{percent(row.of_processor_time)} % of processor time."
        for row in ordered.itertuples(index=False)
    ]
    return list(dict.fromkeys([told[0], told[-1]]))


def percent(x: float) -> str:
    """A fraction in percent, one digit behind the point; empty where there is none."""
    return "" if x != x else f"{100 * x:.1f}"


def section(known: Used) -> Section:
    """The section of the report."""
    intro = (
        "Floating-point operations of a step of the unsharded model (products of matrices, convolutions, attention; "
        "forward and backward) over what the cores could have done in that time, at the rate of one core in products "
        "of 512 x 512 matrices before the first step. By the clock of rank 0, without the recording of weights; `of "
        "processor time` takes what all ranks used in place of the clock, recording included: that is the figure where "
        "others use the machine too. Medians over all steps but the first."
    )
    nothing = "No run over a mesh recorded its utilisation."
    return Section(TITLE, nothing, intro if len(known.runs) else "", [], folded(tables(known)))
