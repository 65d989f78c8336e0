"""The wires among which policies choose, their checks, and the tensors for which there is a choice."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod

from kernels.allreduce.coding import coding
from kernels.learning.adaprec import AdaPrec
from kernels.learning.cautious import Cautious
from kernels.learning.trials import SEGMENTS, Trials
from kernels.wires import PLAIN, cells_of
from miniapps.errors import UsageError
from miniapps.learning.course.checks import require_clock
from miniapps.learning.course.options import ADAPREC, CAUTIOUS

# For each policy the name of a choice that depends on a clock.
CLOCKED = {"fastest": "fastest", ADAPREC: "task", CAUTIOUS: "task"}


def candidates(config) -> list[str]:
    """The wires of `training.candidates`, for lgreco with --wire, its reference; for a fixed policy only --wire."""
    if config.training.policy == "fixed":
        return [config.training.wire]
    given = config.training.candidates.split()
    return (
        list(dict.fromkeys([*given, config.training.wire])) if config.training.policy == "lgreco" else given
    )


def chosen_for(shapes: Sequence[tuple[int, ...]]) -> list[int]:
    """The tensors that a wire encodes; smaller tensors are sent as float32."""
    return [tensor for tensor, shape in enumerate(shapes) if not cells_of(prod(shape), (shape,)).plain.all()]


def for_all(shapes: Sequence[tuple[int, ...]], wires: dict[int, str], first: str) -> list[str]:
    """A wire for every tensor: tensors missing in `wires` use the wire of the tensor before them, or `first`, so that
    they share its bucket."""
    used: list[str] = []
    for tensor in range(len(shapes)):
        used.append(wires.get(tensor, used[-1] if used else first))
    return used


def trials(config) -> Trials:
    """The state machine of a policy that tries wires. Raises ValueError for a budget that cannot be divided."""
    wires, seconds = candidates(config), config.training.seconds
    if config.training.policy == ADAPREC:
        return AdaPrec(wires, seconds, steps=config.training.steps // SEGMENTS)
    return Cautious(wires, seconds)


def validate(config, options, require: Callable[[str], None]) -> None:
    """Raise UsageError or ChoiceError for an impossible policy; `require(wire)` raises for wires that conflict with
    ordering, accumulation or guarantee."""
    _require_options(config)
    for wire in candidates(config):
        if coding(wire) is None and config.training.policy != "fixed":
            raise UsageError(
                f"--candidates: {wire!r} is not a codec, and the library adds it in its own order; use float32 as the "
                "lossless candidate"
            )
        require(wire)
    if config.training.tries:
        try:
            trials(config)
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
            f"--candidates {config.training.candidates!r}: give the wires among which --policy {policy} chooses, each "
            'once, separated by spaces: "float32 fp8 sign"'
        )
    if policy == "lgreco" and coding(wire) is None:
        raise UsageError(
            f"--policy lgreco minimises bytes subject to the error of --wire, and {wire!r} has no error; name a lossy "
            "wire: --wire table:n=4"
        )
    if policy != "lgreco" and wire != PLAIN:
        raise UsageError(f"--wire {wire}: --policy {policy} chooses the wires; leave one of them out")
    if config.training.tries and not config.training.seconds:
        raise UsageError(f"--policy {policy} divides a time: give it with --seconds")
    if config.output.restart or config.output.checkpoint_every:
        raise UsageError(
            f"--policy {policy}: checkpoints do not contain its state; leave --restart and --checkpoint-every out"
        )


def _require_clock(config, options) -> None:
    """Raise ChoiceError if a clock decides under a guarantee, and UsageError if a replayed run lacks the choices."""
    policy = config.training.policy
    if policy in CLOCKED:
        require_clock(options, f"--policy {policy}", CLOCKED[policy])
    elif config.training.seconds:
        require_clock(options, "--seconds", "time")
