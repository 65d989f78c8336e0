"""What cannot be measured, refused before anything is created."""

from __future__ import annotations

from kernels.allreduce import Reduction
from kernels.allreduce.accumulate import order_free
from miniapps.errors import UsageError


def validate(config, options, size: int) -> None:
    """Raises ChoiceError for a reduction that is none, UsageError for one that has no price of its own and for a
    device."""
    if options.device != "cpu":
        raise UsageError("calibrate: --device cuda is not measured yet; calibrate with --device cpu")
    for label in config.calibrate.reductions:
        reduction = Reduction.named(label, (1,))
        if reduction.ordering == "arrival":
            raise UsageError(
                f"--reduction {label}: the network decides on its order; choose one with a schedule"
            )
        if order_free(reduction.accumulation) and not reduction.entry.scheduled:
            raise UsageError(f"--reduction {label}: choose an ordering with a schedule")
