"""The options of applications that write checkpoints and continue from them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from miniapps.errors import UsageError
from miniapps.runner.config import INT32, option

if TYPE_CHECKING:
    from miniapps.runner.options import RunOptions


@dataclass
class Checkpoints:
    """Files beside the trace, and the checkpoint from which a run continues."""

    checkpoint_every: int = option(
        0,
        help="steps between checkpoints; 0: none",
        role="control",
        flag="--checkpoint-every",
        minimum=0,
        maximum=INT32,
    )
    restart: str = option(
        "",
        help="checkpoint file to continue from",
        role="control",
        flag="--restart",
        effect="restart",
    )
    checkpoint_bits: int | None = option(
        None,
        help="mantissa bits that a checkpoint keeps of every number; the run continues with the rounded state; none: "
        "all",
        role="method",
        flag="--checkpoint-bits",
        minimum=1,
        maximum=52,
    )
    rounded_every: int | None = option(
        None,
        help="steps between roundings of the state; set to --checkpoint-every if --checkpoint-bits is given",
        role="method",
        minimum=1,
        maximum=INT32,
    )


@dataclass
class Output(Checkpoints):
    """Checkpoints of an application that may redistribute its blocks."""

    shares: str = option(
        "even",
        help="blocks of a rank: even; or auto: redistributes blocks at checkpoints so that unequal ranks take equal "
        "time for a step (the bits stay under layout and exact)",
        choices=("even", "auto"),
        role="method",
        effect="ownership",
        flag="--shares",
    )


def complete(output: Checkpoints) -> None:
    """Set `rounded_every`: with --checkpoint-bits the interval of checkpoints decides on bits."""
    output.rounded_every = output.checkpoint_every or None if output.checkpoint_bits else None


def require_movable(output: Output, options: RunOptions) -> None:
    """Raise UsageError for `auto` shares without checkpoints, or where a clock would decide on bits."""
    if output.shares == "auto" and options.guarantee == "run" and options.replay is None:
        raise UsageError(
            "--shares auto: the bits of --guarantee run depend on the owners of blocks, and a clock would choose them; "
            "choose --guarantee layout, or repeat the choices of a run under none with --replay RUN"
        )
    if output.shares == "auto" and not output.checkpoint_every:
        raise UsageError(
            "--shares auto moves blocks at checkpoints, and this run writes none: add --checkpoint-every N (steps)"
        )
