"""Manual regions whose blocks send messages, as a rank calls them. No MPI, no torch."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from miniapps.partition.execution.bound import Operation
from miniapps.partition.manual.messages import Line, Together
from miniapps.partition.rules.manual import MANUAL, parsed


def talks(step: Any) -> bool:
    """Whether a step of a plan, or of a rank, is a region whose blocks send messages."""
    return getattr(step, "kernel", "") == MANUAL and bool(parsed(str(step.args[1])).along)


def lines_of(step: Operation) -> list[Line]:
    """The first place of each call's block along each letter."""
    return [{letter: own[0] for letter, own in call.where} for call in step.calls]


def region_of(step: Operation, function: Callable, comm: Any = None) -> Together:
    """The calls of a region on a rank, side by side. `function`: its forward or backward pass; `comm`: of the ranks
    that have the other blocks along its letters, None without."""
    functions = [partial(function, where=call.where) for call in step.calls]
    return Together(str(step.args[0]), functions, parsed(str(step.args[1])).along, lines_of(step), comm)
