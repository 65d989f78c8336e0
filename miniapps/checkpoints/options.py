"""The options of applications that write checkpoints and go on from them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from miniapps.errors import UsageError
from miniapps.runner.config import INT32, option

if TYPE_CHECKING:
    from miniapps.runner.options import RunOptions


@dataclass
class Checkpoints:
    """Files beside the trace, and where a run continues from."""

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
        help="bits of mantissa that a checkpoint keeps of every number, and that the run goes on with; none: all",
        role="method",
        flag="--checkpoint-bits",
        minimum=1,
        maximum=52,
    )
    rounded_every: int | None = option(
        None,
        help="steps between roundings of the state: --checkpoint-every where --checkpoint-bits is given",
        role="method",
        minimum=1,
        maximum=INT32,
    )


@dataclass
class Output(Checkpoints):
    """Files beside the trace, of an application whose blocks may change their owners."""

    shares: str = option(
        "even",
        help="blocks of a rank: even; or auto, which moves blocks at checkpoints so that unequal ranks take equal time "
        "for a step (their bits stay under layout and exact)",
        choices=("even", "auto"),
        role="method",
        effect="ownership",
        flag="--shares",
    )


def complete(output: Checkpoints) -> None:
    """Write back how often the state is rounded, which decides on bits where --checkpoint-every does not."""
    output.rounded_every = output.checkpoint_every or None if output.checkpoint_bits else None


def require_movable(output: Output, options: RunOptions) -> None:
    """Raise UsageError for shares that are never dealt anew, or whose bits would depend on a clock."""
    if output.shares == "auto" and options.guarantee == "run" and options.replay is None:
        raise UsageError(
            "--shares auto: the bits of --guarantee run depend on who owns what, which a clock would decide; choose "
            "--guarantee layout, or repeat the choices of a run under none with --replay RUN"
        )
    if output.shares == "auto" and not output.checkpoint_every:
        raise UsageError(
            "--shares auto moves blocks at checkpoints, and there are none: add --checkpoint-every N (steps)"
        )
