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
from analysis.page.svg import Figure, figure_of
from analysis.page.text import interval, number
from analysis.runs import ids
from miniapps.partition.showing import picture
from miniapps.partition.showing.staged import LEAVING, Stages, decode
from miniapps.trace.records import STAGES
from miniapps.trace.schema import CORE_RATE, CPU_TIME, MODEL_FLOPS, UTILISATION

USED = {"problem": "str", "model": "str", "recipe": "str", "mesh": "str", "guarantee": "str", "ranks": "int64",
        "run": "str", "repeat": "int64", "steps": "int64", "flops": "float64", "rate": "float64",
        "seconds": "float64", "utilisation": "float64", "least": "float64", "most": "float64",
        "of_processor_time": "float64", "stages": "str"}  # fmt: skip
COLUMNS = ("model", "recipe", "mesh", "guarantee", "runs", "steps", "GFLOP per step", "GFLOP/s of a core", "s per step",
           "utilisation, %", "all steps, %", "of processor time, %")  # fmt: skip
STAGE_COLUMNS = ("pass", "stage", "work divided by", "operations", "travels to it")
TITLE = "Training over a mesh"
DRAWN = 3  # plans, at most


@dataclass(frozen=True)
class Used:
    """A row per repeat, columns USED: `seconds` of a step, `utilisation` and `of_processor_time` are medians over all
    steps but the first of the repeat, `least` and `most` their range by the clock; `stages`: of the plan, as recorded
    (`miniapps.partition.showing.staged`), empty where they were not."""

    runs: pd.DataFrame


def used(frames: Frames) -> Used:
    """What the runs among `frames` that recorded their utilisation hold of it."""
    needed = {UTILISATION, MODEL_FLOPS, CORE_RATE}
    some = needed <= set(frames.names)
    known = [some and needed <= set(frames.of("usage", *run)["name"]) for run in ids(frames.runs)]
    runs = frames.runs[np.array(known, bool)]
    names = problem_names(runs) if len(runs) else {}
    rows = [_row(frames, run, names[run["problem"]]) for run in runs.to_dict("records")]
    return Used(pd.DataFrame(rows, columns=list(USED)).astype(USED))


def _row(frames: Frames, run: dict, problem: str) -> dict[str, object]:
    """The row of USED of one repeat."""
    config = json.loads(run["config"])
    usage = frames.of("usage", run["run"], run["repeat"])
    steps = usage[(usage["name"] == UTILISATION).to_numpy()].groupby("step")["value"].first()
    later = steps.iloc[1:] if len(steps) > 1 else steps  # the first step plans and allocates
    flops, rate = (float(usage[usage["name"] == name]["value"].iloc[0]) for name in (MODEL_FLOPS, CORE_RATE))
    cpu = usage[(usage["name"] == CPU_TIME).to_numpy()].groupby("step")["value"].sum()
    choices = frames.of("choices", run["run"], run["repeat"])
    staged = choices[(choices["name"] == STAGES).to_numpy()]["choice"]
    threads = _option(config, "run", "threads")
    cores = run["size"] * (threads if isinstance(threads, int) and threads > 0 else 1)
    with np.errstate(divide="ignore", invalid="ignore"):
        seconds = np.float64(flops) / (later * cores * rate)
        own = np.float64(flops) / (cpu.reindex(later.index) * rate)
    return {
        "problem": problem, "model": str(_option(config, "model", "name")),
        "recipe": str(_option(config, "mesh", "recipe")), "mesh": str(_option(config, "mesh", "mesh")),
        "guarantee": run["guarantee"], "ranks": run["size"], "run": run["run"], "repeat": run["repeat"],
        "steps": len(steps), "flops": flops, "rate": rate, "seconds": seconds.median(), "utilisation": later.median(),
        "least": later.min(), "most": later.max(), "of_processor_time": own.median(),
        "stages": str(staged.iloc[0]) if len(staged) else "",
    }  # fmt: skip


def _option(config: dict, section: str, name: str):
    """An option as recorded; empty where there is none."""
    return config.get(section, {}).get(name, "")


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


def plans(known: Used) -> dict[str, Stages]:
    """The plans that were recorded, by what was run: each once, the first DRAWN. What is no plan is left out."""
    found: dict[str, Stages] = {}
    for row in known.runs.drop_duplicates("stages").itertuples(index=False):
        try:
            stages = decode(row.stages)
        except ValueError:
            continue
        if picture.drawable(stages):
            found[" ".join(filter(None, [row.model, row.problem])) + f", {row.recipe} over {row.mesh}"] = (
                stages
            )
    return dict(list(found.items())[:DRAWN])


def figure(name: str, title: str, stages: Stages) -> Figure:
    """The picture of a plan; its text alternative is the table of stages."""
    size = picture.size_text(sum(edge.bytes for edge in stages.edges))
    where = "at the bold arrows and in the boxes"
    caption = (
        f"{stages.operations} operations on {picture.ranks_text(stages.ranks)} in {len(stages.stages)} stages: of one "
        f"layer, their work divided by the same axes. A step sends {size}, {where}. What the backward pass reads of "
        "the forward pass is not drawn."
    )
    legend = [(number, picture.axes_text(axes)) for axes, number in picture.looks(stages).items()]
    rows = [
        dict(zip(("pass", "stage", "axes", "operations", "travels"), row, strict=True))
        for row in _stages(stages)
    ]
    return figure_of(
        name, f"The plan of {title}", lambda axes: picture.plot(axes, stages), caption, picture.height_in(stages),
        legend, data=pd.DataFrame(rows),
    )  # fmt: skip


def _stages(stages: Stages) -> list[tuple[object, ...]]:
    """A row for each stage: pass, name, axes, operations, what travels to it; the last is what leaves the step."""
    sent: dict[int, list[str]] = {}
    for edge in stages.edges:
        if edge.kind:
            sent.setdefault(edge.target, []).append(picture.sent_text(edge))
    rows: list[tuple[object, ...]] = [
        (
            "backward" if stage.backward else "forward", picture.name_text(stage), picture.axes_text(stage.axes),
            stage.operations, "; ".join(sent.get(k, ())),
        )
        for k, stage in enumerate(stages.stages)
    ]  # fmt: skip
    return [*rows, ("", f"loss, {stages.gradients} gradients", "", "", "; ".join(sent.get(LEAVING, ())))]


def section(known: Used) -> Section:
    """The section of the report."""
    intro = (
        "Utilisation: floating-point operations of a step of the unsharded model (products of matrices, convolutions, "
        "attention; forward and backward) over what the cores could have done in that time, at the rate of one core in "
        "products of 512 x 512 matrices before the first step. By the clock of rank 0, without the recording of "
        "weights; `of processor time` takes what all ranks used in place of the clock, recording included: that is the "
        "figure where others use the machine too. Medians over all steps but the first."
    )
    drawn = plans(known)
    figures = [figure(f"plan{k}", title, stages) for k, (title, stages) in enumerate(drawn.items())]
    staged = [
        (
            f"The plan of {title} in stages",
            Table(STAGE_COLUMNS, _stages(stages), ("operations",), folded=True),
        )
        for title, stages in drawn.items()
    ]
    nothing = "No run over a mesh recorded its utilisation."
    return Section(
        "mesh",
        TITLE,
        nothing,
        intro if len(known.runs) else "",
        figures,
        [*folded(tables(known)), *staged],
        opened=True,
    )
