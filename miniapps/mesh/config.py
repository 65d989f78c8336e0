"""Options of training over a mesh."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from miniapps.checkpoints.options import Checkpoints
from miniapps.learning.course.options import AUTO, IMAGES_SAID, Seeds, Steps, directory, evaluations, samples
from miniapps.learning.discovery import section_of
from miniapps.learning.samples.images import IMAGES
from miniapps.partition import models
from miniapps.runner.config import option, section

SAMPLES = {"images": IMAGES, "text": ("text",)}  # --data, by what a model learns from


@dataclass
class Data:
    """Images and their labels, or text."""

    name: str = samples(
        (*IMAGES, "text"), f"text: the help topics that Python brings, byte by byte; or {IMAGES_SAID}"
    )
    dir: str = directory()


if TYPE_CHECKING:
    Model = Any
else:
    Model = section_of(models.every(), __name__, "gpt")


@dataclass
class Cuts:
    """What carries what (docs/explanation/partition.md)."""

    mesh: str = option(
        "",
        help="axes of the mesh with their sizes, data=2,model=2; none: one axis of all ranks",
        role="method",
        effect="spread",
        flag="--mesh",
    )
    recipe: str = option(
        AUTO,
        help="what the axes of the mesh carry; auto: the first of these with the axes of --mesh. dp (samples), tp "
        "(heads, inner widths), dp+tp, zero (samples; parameters are stored in parts), spatial (rows and columns of "
        "images), dp+spatial, expert",
        role="method",
        effect="ownership",
        flag="--recipe",
    )
    map: str = option(
        "",
        help="which axis of the mesh carries each axis of the problem, batch=data,heads=model; none: by the recipe",
        role="method",
        effect="ownership",
        flag="--map",
    )
    axes: str = option(
        "",
        help="axes that cut the problem, batch,heads,ff; runs of one hash have the same ones; none: those of the "
        "recipe",
        flag="--axes",
    )
    blocks: str = option(
        "",
        help="blocks that axes are cut into, ff=16; none: batch by training.micro, others by the model",
        flag="--blocks",
    )
    shapes: str = option(
        "exact",
        help="of what a rank holds: exact, its blocks; padded, as many elements as the rank that has most, as devices "
        "that are handed fixed shapes need",
        choices=("exact", "padded"),
        role="method",
        effect="cost",
        flag="--shapes",
    )
    fuse: bool = option(
        True,
        help="partial sums over equal axes travel as one vector",
        role="method",
        effect="cost",
        flag="--fuse",
    )


@dataclass
class Evaluation:
    """The loss of some test samples."""

    every: int = evaluations("values:test_loss")


@dataclass
class MeshConfig:
    """All options of `python -m miniapps.mesh` beside the common ones."""

    data: Data = section(Data)
    model: Model = section(Model)
    training: Steps = section(Steps)
    mesh: Cuts = section(Cuts)
    seeds: Seeds = section(Seeds)
    evaluation: Evaluation = section(Evaluation)
    output: Checkpoints = section(Checkpoints)
