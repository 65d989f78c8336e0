"""`python -m miniapps.partition explain MODEL` describes a plan; `run MODEL`, under mpirun, executes it."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Any

from kernels.as_json import Document, columns, document, rows
from kernels.commands.entry import command_line
from kernels.commands.options import add_json, add_loudness, add_version
from kernels.guarantees import LEVELS, ChoiceError
from kernels.wires import PLAIN
from miniapps.errors import UsageError
from miniapps.partition import models
from miniapps.partition.asking import Planned, many_layers, planned
from miniapps.partition.cuts.axes import AxisError
from miniapps.partition.cuts.mesh import ONE_EACH, SCHEDULES, Mesh
from miniapps.partition.execution.orderings import usual
from miniapps.partition.execution.wires import require_wire
from miniapps.partition.own.losses import LOSSES
from miniapps.partition.planning.early import OFF, OVERLAPS
from miniapps.partition.planning.smaller.attention import ATTENTION, GATHERED
from miniapps.partition.showing import picture
from miniapps.partition.showing.explain import as_text, explain
from miniapps.partition.showing.price import lines_of as price_lines
from miniapps.partition.showing.price import priced
from miniapps.partition.showing.staged import Stages
from miniapps.partition.showing.stages import stages_of
from miniapps.system.world import parsed
from miniapps.untrusted.arguments import Parser
from miniapps.untrusted.program import to_json
from miniapps.untrusted.text import tell

PROG = "python -m miniapps.partition"
SHOWN = 20  # plans of a search in text

DOCUMENTS = {
    "partition explain": Document(
        columns("""
            model | text
            problem | text? | hash; null with more than 24 layers, of which one is exported for all
            mesh | object | {axis: size}
            ranks | integer
            all_reduces | integer | per step
            bytes | integer | sent by all ranks per step
            values | object | {name: `shape`, `dtype`, `cut`, `partial`}
            reasons | object | {node: why it is not cut like its operands}
            price | object? | with `--calibration` what `fpna price --json` says of the plan
            notes | list of text | of your own module: sentences about its inputs and its pairs of linear layers
            pipeline | object | {} without the axis stage; else `stages`, `ranks` along them, `micro_batches`,
            `schedule`, and `bubble`, the part of the ranks' time in which they wait, from the work of each stage
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
            owners | text | which ranks own the blocks
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
                "uncut",
                "operations that are not cut like their operands, or that no axis cuts although they have FLOPs",
                """
            node module operation why | text
            whole | boolean | whether every rank does all of it
            flops | number, % | its share of the model FLOPs
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
    "partition search": Document(
        columns("""
            model | text
            price | object | what `fpna price --json` says of all different programs, without their files
            seconds | number, s | that the search took
            unmeasured | list of text | with `--search ordering` orderings that no calibration has
        """),
        (
            rows(
                "candidates",
                "the compared candidates",
                """
            candidate plan | text | `plan`: the title of its program in `price`, that of another with an equal program
            recipe schedule guarantee attention overlap ordering | text
            mesh | object | {axis: size}
            zigzag | list of text | axes of which a rank owns early and late blocks
            blocks | object | {axis: number}, with `--search blocks`
            micro_batches | integer
            """,
            ),
            rows(
                "impossible",
                "candidates that sizes, blocks or the memory of a device do not allow",
                """
            candidate reason | text
            """,
            ),
            rows(
                "slower",
                "candidates without a price: their operations alone take longer than the fastest plan",
                """
            candidate | text
            least_s | number, s
            """,
            ),
        ),
    ),
    "partition run": Document(
        columns("""
            model | text
            problem | text | hash
            mesh | object | {axis: size}
            guarantee | text
            losses | list of number | of each step
            fingerprint | text | hash of the losses, the gradients of the first step and the final weights
            error | number? | largest difference of a gradient of the first step from torch's on one rank in float64,
              over the largest gradient; null if the step draws random numbers
        """),
    ),
}


def parser(prog: str = PROG) -> argparse.ArgumentParser:
    """The command line; `prog` is what the user typed before the command."""
    example = f"{prog} explain gpt --recipe dp+tp --mesh data=2,model=2"
    top = Parser(
        prog=prog,
        example=example,
        description="Plans one training step over a mesh of ranks, and executes it.",
    )
    add_version(top)
    commands = top.add_subparsers(dest="command", required=True, metavar="COMMAND")
    one = commands.add_parser(
        "explain",
        help="shows axes of every value, collectives, bytes of each operation, and operations that are not cut",
        description="Plans a training step on a mesh and shows its values, collectives and bytes. Needs no MPI.",
        example=example,
    )
    add_problem(one)
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
        "--guarantee",
        choices=LEVELS,
        default="none",
        help="it decides the kernels of --calls and prices (%(default)s)",
    )
    add_prices(one)
    add_wire(one)
    one.add_argument(
        "--save",
        metavar="FILE",
        help="write what each rank computes and sends, for fpna price and for other machines",
    )
    add_json(one)
    add_loudness(one, "without the line per operation")
    three = commands.add_parser(
        "search",
        help="the fastest recipe and mesh of some ranks, before any run, by calibrated kernels and messages",
        description="Plans a training step for every recipe and mesh of the ranks, and prices all of them.",
        example=f"{prog} search gpt --ranks 4 --calibration cal --size width=256",
    )
    add_problem(three, cuts=False)
    three.add_argument("--ranks", type=int, required=True, metavar="P", help="ranks of the meshes")
    three.add_argument("--recipe", metavar="NAME,...", help="recipes to compare (all)")
    three.add_argument("--guarantee", choices=LEVELS, default="none", help="of the run (%(default)s)")
    three.add_argument(
        "--search",
        metavar="WHAT,...",
        default="mesh",
        help="beside recipes and meshes: blocks, micro-batches, schedule, guarantee (from that of --guarantee on), "
        "wire, attention, owners, overlap, ordering",
    )
    three.add_argument(
        "--schedule",
        choices=SCHEDULES,
        default=ONE_EACH,
        help="of pipelines, if it is not searched (%(default)s)",
    )
    add_messages(three)
    add_prices(three)
    add_json(three)
    two = commands.add_parser(
        "run",
        help="executes the plan on the ranks of this launch: losses, a hash of all bits, the error of gradients",
        description="Plans a training step as `explain` does and executes it with Adam, on random or given inputs. "
        "Under `layout` the fingerprint is the same on every mesh.",
        example=f'mpirun -n 3 {prog} run mine.py:Model --inputs "float32[32,784] int64[32]" --loss cross_entropy',
    )
    add_problem(two)
    two.add_argument("--steps", metavar="N", type=int, default=3, help="steps of Adam (%(default)s)")
    two.add_argument(
        "--guarantee", choices=LEVELS, default="layout", help="which bits must not change (%(default)s)"
    )
    add_wire(two)
    two.add_argument("--threads", metavar="N", type=int, default=1, help="threads of each rank (%(default)s)")
    add_json(two)
    return top


def add_wire(one: argparse.ArgumentParser) -> None:
    """Add the option of the encoding of gradients."""
    one.add_argument(
        "--wire",
        metavar="NAME",
        default=PLAIN,
        help="encoding of gradients in messages: fp8, table:n=4, ... (%(default)s)",
    )


def add_prices(one: argparse.ArgumentParser) -> None:
    """Add the options of prices."""
    one.add_argument(
        "--calibration", action="append", default=[], metavar="DIR",
        help="price the step: a run of fpna calibrate --plan, best on as many ranks; may be repeated",
    )  # fmt: skip
    one.add_argument(
        "--machine", metavar="FILE", help="price it on another machine: a TOML file, see fpna price"
    )
    one.add_argument("--clock", choices=("cpu", "wall"), default="wall", help="of the price (%(default)s)")


def add_problem(one: argparse.ArgumentParser, cuts: bool = True) -> None:
    """Add the model, and with `cuts` the options of its cuts and mesh."""
    one.add_argument(
        "model",
        metavar="MODEL",
        help=f"{', '.join(models.names())}, or a module of yours: FILE.py:NAME or PACKAGE.MODULE:NAME, a "
        "torch.nn.Module, its class, or a function that returns one, without arguments",
    )
    one.add_argument(
        "--inputs",
        metavar="TEXT",
        help='of your module: types and shapes, "float32[32,784] int64[32]", integers being 0 or 1; a dim may be '
        "named as an axis, batch:32, else the first dims are the batch; or FILE.py:FUNCTION that returns a tuple of "
        "tensors",
    )
    one.add_argument(
        "--loss",
        choices=LOSSES,
        help="of your module if it returns no scalar: cross_entropy and mse compare its result (the first of several) "
        "with the last input; mean",
    )
    one.add_argument(
        "--layers",
        metavar="NAME,...",
        help="of your module, for recipes with pp: the module whose children are the layers of the stages, or the "
        "layers themselves, first to last; default: the longest nn.Sequential or nn.ModuleList of equal modules",
    )
    one.add_argument(
        "--micro-batches",
        metavar="N",
        type=int,
        default=1,
        help="of your module: equal parts of the batch that go through a pipeline one after the other; the loss is the "
        "mean of theirs (%(default)s)",
    )
    one.add_argument("--blocks", metavar="AXIS=N,...", default="", help="number of blocks along each axis")
    one.add_argument(
        "--size", metavar="NAME=N,...", default="", help="sizes of a model named above: width=256,layers=4"
    )
    if not cuts:
        return
    one.add_argument(
        "--mesh",
        metavar="NAME=SIZE,...",
        help="axes of the mesh; default: one axis for the recipe's first, of 2 ranks, in `run` of all",
    )
    one.add_argument(
        "--recipe",
        metavar="NAME",
        default="dp",
        help="axes of the problem and their carriers: dp, tp, dp+tp, zero, ... (default: dp)",
    )
    one.add_argument("--axes", metavar="NAME,...", help="axes of the problem, instead of the recipe's")
    one.add_argument(
        "--map", metavar="AXIS=NAME,...", help="axis of the mesh for each axis, instead of the recipe's"
    )
    one.add_argument(
        "--owners",
        metavar="AXIS=zigzag,...",
        default="",
        help="axes of which a rank owns early and late blocks instead of neighbouring ones: tokens=zigzag balances the "
        "work of causal attention with --attention ring",
    )
    one.add_argument(
        "--schedule",
        choices=SCHEDULES,
        default=ONE_EACH,
        help="order of stages and micro-batches on a rank, with the axis stage (%(default)s)",
    )
    one.add_argument("--no-fuse", action="store_true", help="reduce each value separately")
    add_messages(one)


def add_messages(one: argparse.ArgumentParser) -> None:
    """Add the options of attention and of messages that begin early."""
    one.add_argument(
        "--attention",
        choices=ATTENTION,
        default=GATHERED,
        help="where an axis cuts tokens: gathered, a rank gets all keys and values; ring, one block after the other, "
        "with less memory and other bits (%(default)s)",
    )
    one.add_argument(
        "--overlap",
        choices=OVERLAPS,
        default=OFF,
        help="messages that begin as soon as they can: the sums of gradients; also other sums, and gathers of stored "
        "parameters; also sums of products, part by part (%(default)s)",
    )


@command_line
def main(argv: list[str] | None = None, prog: str = PROG) -> int:
    """Runs a command line; returns the exit code. `prog` is what the user typed before the command."""
    options = parsed(parser(prog), argv)
    if options.command == "run":
        from miniapps.partition.running import run

        return run(options, f"{prog} run")
    try:
        if options.command == "search":
            return searched(options)
        found = planned(options)
        plan, mesh = found.plan, found.mesh
        shown = explain(plan, mesh, found.graph, not many_layers(found)) | {
            "calls": called(options, plan, mesh),
            "notes": found.notes(),
        }
        shown["price"] = prices(options, found)
        if options.picture:
            draw(stages_of(plan, mesh), f"{found.title} over {mesh}", options.picture)
    except (UsageError, ChoiceError, AxisError) as error:
        tell(f"{prog} {options.command}: {error}", sys.stderr, keep="\n")
        return 2
    if options.json:
        tell(document(1, "partition explain", model=options.model, **shown), keep="\n")
    else:
        text = [as_text(shown, found.title, not options.quiet)]
        if shown["calls"]:
            from miniapps.partition.showing.calls import lines_of

            text += ["", *lines_of(shown["calls"], options.calls, options.guarantee)]
        if shown["price"]:
            text += ["", *price_lines(shown["price"])]
        tell("\n".join(text), keep="\n")
    return 0


def prices(options: argparse.Namespace, found: Planned) -> dict[str, Any] | None:
    """The price of the plan, None without --calibration and --machine; writes the file of --save. Raises UsageError."""
    if not (options.calibration or options.machine or options.save):
        return None
    from miniapps.partition.graphs.flops import model_flops
    from miniapps.partition.pricing.program import program_of

    title = f"{found.title} over {found.mesh}"
    require_wire(options.wire, options.guarantee)
    program = program_of(
        found.plan, found.mesh, options.guarantee, title, model_flops(found.graph), wire=options.wire
    )
    if options.save:
        try:
            Path(options.save).write_bytes(to_json(program))
        except OSError as error:
            raise UsageError(
                f"--save {options.save}: {error.strerror or error}; choose another file"
            ) from error
    return priced([program], *of_prices(options)) if options.calibration or options.machine else None


def of_prices(options: argparse.Namespace) -> tuple[list[str], str | None, str]:
    """The values of the options of `add_prices`."""
    return options.calibration, options.machine, options.clock


def searched(options: argparse.Namespace) -> int:
    """Prints the prices of all candidates; returns the exit code. Raises UsageError, ChoiceError, AxisError."""
    from miniapps.partition.asking import searched as found_by

    found = found_by(options)
    if options.json:
        told = {
            "candidates": [
                {"candidate": str(one), "plan": plan, "recipe": one.recipe, "mesh": dict(one.mesh.axes),
                 "zigzag": list(one.mesh.zigzag), "blocks": dict(one.blocks), "micro_batches": one.micro_batches,
                 "schedule": one.mesh.schedule, "guarantee": one.level, "attention": one.attention,
                 "overlap": one.overlap, "ordering": one.ordering or usual(one.level)}
                for one, plan in found.plans
            ],
            "impossible": [{"candidate": name, "reason": reason} for name, reason in found.impossible],
            "slower": [{"candidate": name, "least_s": seconds} for name, seconds in found.slower],
        }  # fmt: skip
        about = {
            "model": options.model,
            "price": found.price,
            "seconds": found.seconds,
            "unmeasured": found.unmeasured,
        }
        tell(document(1, "partition search", **about, **told), keep="\n")
    else:
        same = [f"With the program of the fastest: {one}" for one in found.best[1:]]
        lines = [f"Impossible: {name}: {reason}" for name, reason in found.impossible[:SHOWN]]
        tell("\n".join([found.sentence(), *price_lines(found.price, SHOWN), *same, *lines]), keep="\n")
    return 0


def called(options: argparse.Namespace, plan, mesh: Mesh) -> list[dict[str, Any]]:
    """The rows of --calls; none without it. Raises UsageError for a rank that the mesh does not have."""
    if options.calls is None:
        return []
    from miniapps.partition.showing.calls import calls_of

    if not 0 <= options.calls < mesh.size:
        raise UsageError(f"--calls {options.calls}: the mesh has ranks 0 to {mesh.size - 1}")
    return calls_of(plan, mesh, options.calls, options.guarantee)


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
