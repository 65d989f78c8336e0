"""`python -m miniapps.partition explain MODEL`: describes a plan without running it."""

from __future__ import annotations

import argparse
import sys
from dataclasses import dataclass
from math import prod
from typing import Any

from kernels.as_json import Document, columns, document, rows
from kernels.commands.entry import command_line
from kernels.commands.options import add_json, add_loudness, add_version
from kernels.guarantees import LEVELS, ChoiceError, known
from miniapps.errors import UsageError
from miniapps.partition import models
from miniapps.partition.cuts.axes import AxisError
from miniapps.partition.cuts.mesh import (
    Mesh,
    carriers_of,
    pairs,
    parse,
    require_blocks,
    require_fits,
    sizes_of,
)
from miniapps.partition.planning import recipes
from miniapps.partition.showing import picture
from miniapps.partition.showing.explain import as_text, explain
from miniapps.partition.showing.staged import Stages
from miniapps.partition.showing.stages import stages_of
from miniapps.untrusted.arguments import Parser
from miniapps.untrusted.text import tell

PROG = "python -m miniapps.partition"

DOCUMENTS = {
    "partition explain": Document(
        columns("""
            model | text
            problem | text | hash
            mesh | object | {axis: size}
            ranks | integer
            all_reduces | integer | per step
            bytes | integer | sent by all ranks per step
            values | object | {name: `shape`, `dtype`, `cut`, `partial`}
            reasons | object | {node: why it is not cut like its operands}
        """),
        (
            rows(
                "axes",
                "the axes of the problem",
                """
            axis | text
            elements blocks | integer
            carrier | text?
            ranks | integer
            least most | integer | blocks per rank
            """,
            ),
            rows(
                "collectives",
                "the messages of a step",
                """
            kind | text
            axes | list of text
            ranks calls bytes | integer
            """,
            ),
            rows(
                "steps",
                "the nodes of the program",
                """
            node module what | text
            results | list of text
            cut sends | text?
            partial | list of text | axes
            bytes | integer
            """,
            ),
            rows(
                "calls",
                "with `--calls` the kernels that one rank calls, by shape; the last row, without a kernel, has torch's "
                "operations between them",
                """
            kernel | text
            own | boolean | by a kernel of this suite, not torch's
            operands results | list of text | such as `float32[4, 64]`
            calls bytes | integer | per step; `bytes` of operands and results of all calls
            """,
            ),
        ),
    ),
}


def parser(prog: str = PROG) -> argparse.ArgumentParser:
    """The command line; `prog` is what the user typed before the command."""
    example = f"{prog} explain gpt --recipe dp+tp --mesh data=2,model=2"
    top = Parser(
        prog=prog,
        example=example,
        description="Plans one training step over a mesh of ranks, without running it.",
    )
    add_version(top)
    commands = top.add_subparsers(dest="command", required=True, metavar="COMMAND")
    one = commands.add_parser(
        "explain",
        help="shows axes of every value, collectives, bytes of each operation, and operations that are not cut",
        description="Plans a training step on a mesh and shows its values, collectives and bytes. Needs no MPI.",
        example=example,
    )
    one.add_argument("model", metavar="MODEL", help=", ".join(models.names()))
    one.add_argument(
        "--mesh",
        metavar="NAME=SIZE,...",
        help="axes of the mesh; default: one axis of 2 for the recipe's first",
    )
    one.add_argument(
        "--recipe", metavar="NAME", default="dp", help="axes of the problem and their carriers (default: dp)"
    )
    one.add_argument("--axes", metavar="NAME,...", help="axes of the problem, instead of the recipe's")
    one.add_argument(
        "--map", metavar="AXIS=NAME,...", help="axis of the mesh for each axis, instead of the recipe's"
    )
    one.add_argument("--blocks", metavar="AXIS=N,...", default="", help="number of blocks along each axis")
    one.add_argument(
        "--size", metavar="NAME=N,...", default="", help="sizes of the model: width=256,layers=4"
    )
    one.add_argument(
        "--picture",
        metavar="FILE.svg",
        help="draw the stages of the plan: axes that divide work, and messages",
    )
    one.add_argument(
        "--calls",
        metavar="RANK",
        type=int,
        help="list the kernels that this rank calls, with shapes, and how often",
    )
    one.add_argument(
        "--guarantee", choices=LEVELS, default="none", help="of --calls: it decides the kernels (%(default)s)"
    )
    one.add_argument("--no-fuse", action="store_true", help="reduce each value separately")
    add_json(one)
    add_loudness(one, "without the line per operation")
    return top


@command_line
def main(argv: list[str] | None = None, prog: str = PROG) -> int:
    """Runs a command line; returns the exit code. `prog` is what the user typed before the command."""
    options = parser(prog).parse_args(argv)
    try:
        plan, mesh, title = planned(options)
        found = explain(plan, mesh) | {"calls": called(options, plan, mesh)}
        if options.picture:
            draw(stages_of(plan, mesh), f"{title} over {mesh_text(mesh)}", options.picture)
    except (UsageError, ChoiceError, AxisError) as error:
        tell(f"{prog} explain: {error}", sys.stderr, keep="\n")
        return 2
    if options.json:
        tell(document(1, "partition explain", model=options.model, **found), keep="\n")
    else:
        text = [as_text(found, title, not options.quiet)]
        if found["calls"]:
            from miniapps.partition.showing.calls import lines_of

            text += ["", *lines_of(found["calls"], options.calls, options.guarantee)]
        tell("\n".join(text), keep="\n")
    return 0


def called(options: argparse.Namespace, plan, mesh: Mesh) -> list[dict[str, Any]]:
    """The rows of --calls; none without it. Raises UsageError for a rank that the mesh does not have."""
    if options.calls is None:
        return []
    from miniapps.partition.showing.calls import calls_of

    if not 0 <= options.calls < mesh.size:
        raise UsageError(f"--calls {options.calls}: the mesh has ranks 0 to {mesh.size - 1}")
    return calls_of(plan, mesh, options.calls, options.guarantee)


def mesh_text(mesh: Mesh) -> str:
    """`data=2,model=2`."""
    return ",".join(f"{name}={size}" for name, size in mesh.axes)


def draw(found: Stages, title: str, path: str) -> None:
    """Write the picture; raises UsageError."""
    if not picture.drawable(found):
        raise UsageError(
            f"--picture {path}: {len(found.stages)} stages are too many for a picture: at most {picture.ROWS_MOST} "
            "forward and as many backward; choose fewer layers, for example --size layers=2"
        )
    try:
        text = picture.svg(found, title)
        with open(path, "w", encoding="utf-8") as file:
            file.write(text)
    except ImportError as error:
        raise UsageError("--picture: matplotlib is not installed; pip install matplotlib") from error
    except OSError as error:
        raise UsageError(f"--picture {path}: {error.strerror or error}; choose another file") from error


@dataclass(frozen=True)
class Asked:
    """The requested model with its deck, the axes that cut it, and the mesh."""

    model: models.MeshModel
    deck: Any
    names: tuple[str, ...]
    mesh: Mesh


def asked(options: argparse.Namespace) -> Asked:
    """Checks the options as far as no graph is needed. Raises UsageError, ChoiceError, AxisError."""
    known("model", options.model, models.names())
    model = models.model(options.model)
    known("recipe", options.recipe, tuple(model.RECIPES))
    carriers = model.RECIPES[options.recipe]
    blocks = pairs(options.blocks, "--blocks", "batch=8,heads=4")
    there = [axis.name for axis in model.axes(model.Deck())]
    for name in blocks:
        known("axis of --blocks", name, tuple(there))
    deck = recipes.deck_of(model, pairs(options.size, "--size", "width=256") | blocks)
    names = tuple(name.strip() for name in options.axes.split(",")) if options.axes else tuple(carriers)
    axes = recipes.chosen(model, deck, names)
    text = f"{next(iter(carriers.values()))}=2" if options.mesh is None else options.mesh
    ranks = prod(sizes_of(text).values())
    mesh = parse(text, carriers_of(options.map, text, axes, carriers), ranks)
    require_blocks(axes, mesh)
    return Asked(model, deck, names, mesh)


def planned(options: argparse.Namespace):
    """Returns (plan, mesh, title) for the options. Raises UsageError, ChoiceError, AxisError."""
    found = asked(options)
    from miniapps.partition.capture.export import export

    try:
        graph = export(found.model.module(found.deck), found.model.inputs(found.deck))
    except (MemoryError, RuntimeError) as error:  # torch's allocator states the bytes in its message
        raise UsageError(
            f"--size {options.size}: {options.model} with these sizes needs too much memory; choose smaller ones\n"
            f"torch: {error}"
        ) from error
    plan = recipes.plan_of(found.model, found.deck, graph, found.names, not options.no_fuse)
    require_fits(plan, found.mesh)
    return plan, found.mesh, f"{options.model}, {options.recipe}"
