"""The options of applications that write checkpoints and go on from them."""

from dataclasses import dataclass

from miniapps.runner.config import INT32, option


@dataclass
class Output:
    """Files beside the trace."""

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


def complete(output: Output) -> None:
    """Write back how often the state is rounded, which decides on bits where --checkpoint-every does not."""
    output.rounded_every = output.checkpoint_every or None if output.checkpoint_bits else None
