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
