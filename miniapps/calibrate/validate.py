"""Checks the configuration before a run creates anything."""

from __future__ import annotations

from kernels.allreduce import Reduction
from kernels.allreduce.accumulate import order_free
from miniapps.calibrate.config import WHAT
from miniapps.calibrate.plans import drawn_from, draws_of
from miniapps.errors import UsageError
from miniapps.runner.faults import Targets
from miniapps.system.resources import Need, ranks_on_node

SHAPE = 400_000  # mean bytes of the matrices and images of a drawn shape
OTHERS = 2**27  # bytes of messages and libraries


def validate(config, options, size: int) -> None:
    """Raises ChoiceError for an unknown reduction, UsageError for a reduction without a schedule."""
    draws_of(config.calibrate.plans, 1, options.seed)
    if "programs" in config.calibrate.what and not config.calibrate.plans:
        raise UsageError(
            "--what programs: give the plans whose kernels to measure: --plan 'gpt dp width=64..256'"
        )
    for label in config.calibrate.reductions:
        reduction = Reduction.named(label, (1,))
        if reduction.ordering == "arrival":
            raise UsageError(
                f"--reduction {label}: the network decides its order; choose one with a schedule"
            )
        if order_free(reduction.accumulation) and not reduction.entry.scheduled:
            raise UsageError(f"--reduction {label}: choose an ordering with a schedule")


def memory(config, options, size: int) -> Need:
    """The memory for the arrays of --what memory, for those of all drawn shapes, and for the largest drawn step of an
    application."""
    from miniapps.calibrate.bandwidth import ARRAYS, array_bytes

    given = config.calibrate
    what = given.what or WHAT
    arrays = ARRAYS * array_bytes(ranks_on_node(size)) if "memory" in what else 0
    kernels = SHAPE * given.shapes * len(given.variants) if "kernels" in what else 0
    drawn = drawn_from(given.plans, given.programs, options.seed) if "programs" in what else []
    steps = max((own.memory(step) for own, step in drawn if own is not None), default=0)

    def fitting(share: int) -> str:
        others = " ".join(f"--what {name}" for name in WHAT if name in what and name != "memory")
        if steps > max(kernels, arrays):
            return "choose smaller sizes in --plan"
        if kernels > arrays:
            return f"choose at most --shapes {max(1, (share - OTHERS) // (SHAPE * len(given.variants)))}"
        return f"leave memory out: {others}" if arrays and others else "start fewer ranks on each node"

    options_of = [f"--shapes {given.shapes}"] * bool(kernels) + ["--what memory"] * bool(arrays)
    options_of += [f"--plan {text}" for text in given.plans if steps]
    return Need(arrays + kernels + steps + OTHERS, ", ".join(options_of) or "calibrate", fitting)


def targets(config, options, size: int) -> Targets:
    """The targets of injected faults: none, since the number of steps is known only during the run."""
    return Targets(None)
