"""What policies choose from, what is refused of that, and which tensors there is something to choose for."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from kernels.allreduce import Reduction
from kernels.allreduce.coding import coding
from kernels.learning.adaprec import SEGMENTS, AdaPrec
from kernels.wires import PLAIN, cells_of
from miniapps.errors import UsageError
from miniapps.learning.course.checks import require_clock
from miniapps.learning.gradients.buckets import cut

# Of each policy, the name of a choice that it takes from a clock.
CLOCKED = {"fastest": "fastest", "adaprec": "task", "adaprec-poster": "task"}


def candidates(config) -> list[str]:
    """The wires of `policy.candidates`, and under lgreco that to be compared with; of a fixed policy its own."""
    if config.training.policy == "fixed":
        return [config.training.wire]
    given = config.training.candidates.split()
    return (
        list(dict.fromkeys([*given, config.training.wire])) if config.training.policy == "lgreco" else given
    )


def chosen_for(shapes: Sequence[tuple[int, ...]]) -> list[int]:
    """The tensors that a wire encodes: the others are so small that they travel as float32."""
    return [
        tensor
        for tensor, shape in enumerate(shapes)
        if not cells_of(int(np.prod(shape)), (shape,)).plain.all()
    ]


def for_all(shapes: Sequence[tuple[int, ...]], wires: dict[int, str], first: str) -> list[str]:
    """A wire for every tensor: those that are not in `wires` go with the one before them, or over `first`, so that they
    share its bucket."""
    used: list[str] = []
    for tensor in range(len(shapes)):
        used.append(wires.get(tensor, used[-1] if used else first))
    return used


def adaprec(config) -> AdaPrec:
    """The state machine of the policy. Raises ValueError for a budget that cannot be divided."""
    form = "poster" if config.training.policy == "adaprec-poster" else "improved"
    steps = config.training.steps // SEGMENTS
    return AdaPrec(candidates(config), config.training.seconds, form=form, steps=steps)


def validate(config, options, shapes: Sequence[tuple[int, ...]]) -> None:
    """Raise UsageError or ChoiceError for a policy that cannot be, and wires that do not go with ordering, accumulation
    or guarantee."""
    _require_options(config)
    for wire in candidates(config):
        used = coding(wire)
        if used is None and config.training.policy != "fixed":
            raise UsageError(
                f"--candidates: {wire!r} loses nothing, and is added as the library likes; float32 is the candidate "
                "that loses nothing"
            )
        for bucket in cut(shapes, config.training.bucket, [wire] * len(shapes)):
            ordering, accumulation = options.policy.of(bucket.size, wire)
            own = (bucket.size,), np.dtype("float32")
            reduction = Reduction(ordering, *own, accumulation=accumulation, **bucket.over())
            if used is not None:
                reduction.require(options.policy.level)
    if config.training.tries:
        try:
            adaprec(config)
        except ValueError as error:
            raise UsageError(f"--policy {config.training.policy}: {error}") from error
    _require_clock(config, options)


def _require_options(config) -> None:
    policy, wire = config.training.policy, config.training.wire
    if policy == "fixed":
        return
    given = config.training.candidates.split()
    if not given or len(set(given)) < len(given):
        raise UsageError(
            f"--candidates {config.training.candidates!r}: give the wires that --policy {policy} chooses from, each "
            'once, with spaces between: "float32 fp8 sign"'
        )
    if policy == "lgreco" and coding(wire) is None:
        raise UsageError(
            f"--policy lgreco saves bytes at no more error than --wire, and {wire!r} makes none; name the wire to be "
            "compared with: --wire table:n=4"
        )
    if policy != "lgreco" and wire != PLAIN:
        raise UsageError(f"--wire {wire}: --policy {policy} chooses the wires; leave one of both out")
    if config.training.tries and not config.training.seconds:
        raise UsageError(f"--policy {policy} divides a time: give it with --seconds")
    if config.output.restart or config.output.checkpoint_every:
        raise UsageError(
            f"--policy {policy}: checkpoints do not hold what it knows; leave --restart and --checkpoint-every out"
        )


def _require_clock(config, options) -> None:
    """Raise UsageError where a clock decides, and nobody has promised what it says."""
    policy = config.training.policy
    if policy in CLOCKED:
        require_clock(options, f"--policy {policy}", CLOCKED[policy])
    elif config.training.seconds:
        require_clock(options, "--seconds", "time")
