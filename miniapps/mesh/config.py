"""Options of training over a mesh."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from miniapps.checkpoints.options import Checkpoints
from miniapps.learning.course.options import (
    AUTO,
    IMAGES_SAID,
    Judging,
    Seeds,
    Steps,
    directory,
    evaluations,
    policy,
    samples,
    seconds,
    wire,
    wires_of_policy,
)
from miniapps.learning.discovery import section_of
from miniapps.learning.samples.images import IMAGES
from miniapps.partition import models
from miniapps.partition.cuts.mesh import ONE_EACH, SCHEDULES
from miniapps.partition.planning.early import OFF, OVERLAPS
from miniapps.partition.planning.smaller.attention import ATTENTION, GATHERED
from miniapps.runner.config import SEEDS, option, section

SAMPLES = {"images": IMAGES, "text": ("text",)}  # values of --data by kind of sample


@dataclass
class Data:
    """Images and their labels, or text."""

    name: str = samples(
        (*IMAGES, "text"), f"text: the help topics in Python's library, byte by byte; or {IMAGES_SAID}"
    )
    dir: str = directory()


if TYPE_CHECKING:
    Model = Any
else:
    Model = section_of(models.every(), __name__, "gpt")


@dataclass
class Cuts:
    """The mesh, and the axes of the problem that its axes carry (docs/explanation/partition.md)."""

    mesh: str = option(
        "",
        help="axes of the mesh with their sizes, data=2,model=2; none: one axis of all ranks; auto: the recipe and "
        "mesh that are predicted to be the fastest (--calibration)",
        role="method",
        effect="spread",
        flag="--mesh",
    )
    recipe: str = option(
        AUTO,
        help="axes of the problem that the mesh carries: dp (samples), tp (heads, inner widths), dp+tp, zero (samples; "
        "each rank stores a part of the parameters), sp (tokens), dp+sp, tp+sp, tp+norms (as Megatron-LM: tokens where "
        "heads are whole), dp+tp+norms, tp+vocabulary, dp+tp+vocabulary, "
        "spatial (rows and columns of images), dp+spatial, expert, pp (layers, one after the other), dp+pp, tp+pp, "
        "dp+tp+pp, tp+norms+pp, dp+tp+norms+pp; auto: the first of these with the axes of --mesh",
        role="method",
        effect="ownership",
        flag="--recipe",
    )
    map: str = option(
        "",
        help="axis of the mesh for each axis of the problem, batch=data,heads=model; none: from the recipe",
        role="method",
        effect="ownership",
        flag="--map",
    )
    owners: str = option(
        "",
        help="axes of which a rank owns early and late blocks instead of neighbouring ones: tokens=zigzag balances the "
        "work of causal attention with --attention ring",
        role="method",
        effect="ownership",
        flag="--owners",
    )
    axes: str = option(
        "",
        help="axes along which the problem is cut, batch,heads,ff; part of the problem's hash; none: from the recipe",
        flag="--axes",
    )
    blocks: str = option(
        "",
        help="number of blocks along each axis, ff=16; none: batch from training.micro, others from the model",
        flag="--blocks",
    )
    shapes: str = option(
        "exact",
        help="size of a rank's arrays: exact, its own blocks; padded, as many elements as the rank with most, as "
        "devices with fixed shapes need",
        choices=("exact", "padded"),
        role="method",
        effect="cost",
        flag="--shapes",
    )
    micro_batches: int = option(
        1,
        help="equal parts of a step's samples that are computed one after the other, as a pipeline needs; the loss is "
        "the mean of theirs; part of the problem's hash",
        minimum=1,
        maximum=2**20,
        flag="--micro-batches",
    )
    schedule: str = option(
        ONE_EACH,
        help="order of stages and micro-batches on a rank: gpipe, all forward passes first; 1f1b, forward and backward "
        "passes in turn, with less memory; circular, ranks own stages in turn and wait less",
        choices=SCHEDULES,
        role="method",
        effect="ownership",
        flag="--schedule",
    )
    fuse: bool = option(
        True,
        help="send partial sums over equal axes as one vector",
        role="method",
        effect="cost",
        flag="--fuse",
    )
    attention: str = option(
        GATHERED,
        help="where an axis cuts tokens: gathered, a rank gets all keys and values; ring, one block after the other, "
        "with less memory and other bits; part of the problem's hash",
        choices=ATTENTION,
        flag="--attention",
    )
    overlap: str = option(
        OFF,
        help="messages that begin as soon as they can, and end where they are needed: off; gradients, the sums of "
        "gradients; sums, also other sums beside which a product is computed, and gathers of stored parameters; rings, "
        "also sums of single products, part by part while the next part is computed",
        choices=OVERLAPS,
        role="method",
        effect="cost",
        flag="--overlap",
    )
    calibration: tuple[str, ...] = option(
        (),
        help="for --mesh auto: a run of fpna calibrate --plan, best on as many ranks; may be given several times",
        role="control",
        flag="--calibration",
    )
    save_plan: str = option(
        "",
        help="write what each rank computes and sends to this file instead of training; fpna price predicts its time",
        role="control",
        flag="--save-plan",
    )


@dataclass
class MeshSteps(Steps, Judging):
    """Steps, and the encoding of gradients in messages."""

    wire: str = wire()
    policy: str = policy()
    candidates: str = wires_of_policy()
    seconds: float = seconds()


@dataclass
class MeshSeeds(Seeds):
    """Seeds of random draws, one each; none: the seed of the run."""

    dropout: int | None = option(None, help="seed of dropout; none: --seed", minimum=0, maximum=SEEDS)


@dataclass
class Evaluation:
    """The loss on some test samples."""

    every: int = evaluations("values:test_loss")


@dataclass
class MeshConfig:
    """All options of `python -m miniapps.mesh` beside the common ones."""

    data: Data = section(Data)
    model: Model = section(Model)
    training: MeshSteps = section(MeshSteps)
    mesh: Cuts = section(Cuts)
    seeds: MeshSeeds = section(MeshSeeds)
    evaluation: Evaluation = section(Evaluation)
    output: Checkpoints = section(Checkpoints)
