"""Pictures of the plans of runs over a mesh, and tables of their stages."""

from __future__ import annotations

import pandas as pd

from analysis.page.sections import Shown, Table, table_of
from analysis.page.svg import Figure, figure_of
from analysis.studies.utilisation.runs import Used
from miniapps.partition.showing import picture
from miniapps.partition.showing.staged import LEAVING, Stages, decode

DRAWN = 3  # most plans


def plans(known: Used) -> dict[str, Stages]:
    """{case and mesh: plan} of the first DRAWN recorded plans; leaves out invalid ones."""
    found: dict[str, Stages] = {}
    for case, text in known.stages.items():
        try:
            stages = decode(text)
        except ValueError:
            continue
        if picture.drawable(stages):
            found[f"{case}, over {stages.mesh}"] = stages
    return dict(list(found.items())[:DRAWN])


def figure(name: str, title: str, stages: Stages) -> Figure:
    """The picture of a plan; its text alternative is the table of stages."""
    size = picture.size_text(sum(edge.bytes for edge in stages.edges))
    where = "at the bold arrows and in the boxes"
    caption = (
        f"{stages.operations} operations on {picture.ranks_text(stages.ranks)} in {len(stages.stages)} stages. "
        "Operations of a stage belong to one layer and divide their work by the same axes. A step sends "
        f"{size}, {where}. The picture leaves out reads of the backward pass from the forward pass."
    )
    legend = [(number, picture.axes_text(axes)) for axes, number in picture.looks(stages).items()]
    data = pd.DataFrame(_stages(stages), columns=["pass", "stage", "axes", "operations", "travels"])
    return figure_of(
        name, f"The plan of {title}", lambda axes: picture.plot(axes, stages), caption, picture.height_in(stages),
        legend, data=data,
    )  # fmt: skip


STAGE = (
    Shown("pass", lambda when, stage, axes, operations, travels: when),
    Shown("stage", lambda when, stage, axes, operations, travels: stage),
    Shown("work divided by", lambda when, stage, axes, operations, travels: axes),
    Shown("operations", lambda when, stage, axes, operations, travels: operations, number=True),
    Shown("travels to it", lambda when, stage, axes, operations, travels: travels),
)


def stage_table(title: str, stages: Stages) -> tuple[str, Table]:
    """(title, table): a row for each stage."""
    return f"The plan of {title} in stages", table_of(_stages(stages), STAGE, folded=True)


def _stages(stages: Stages) -> list[tuple[object, ...]]:
    """A row per stage: pass, name, axes, operations, data that travels to it; the last row is the step's output."""
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
