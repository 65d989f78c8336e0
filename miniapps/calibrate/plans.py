"""The plans that a calibration draws: of the partitioned models, and of applications with a module `drawn`.

Such a module has `space_of(text)`, whose `draw(rng)` returns a step that `str` writes as text again. Of a step it has
`program(step, threads)`, what each of its `ranks` does; `rehearsal(step, threads)`, whose `run()` returns the seconds
of each work of a rank alone, and whose `close()` ends it; `together(comm, step, threads)`, the functions that do a step
on all ranks and end it.
"""

from __future__ import annotations

from importlib import import_module
from importlib.util import find_spec
from typing import Any

from kernels.guarantees import known
from miniapps import applications
from miniapps.partition import models
from miniapps.partition.pricing import space


def drawing(name: str) -> Any | None:
    """The module `drawn` of the application `name`; None if there is none."""
    module = f"miniapps.{name}.drawn"
    there = name in applications.names() and find_spec(module) is not None
    return import_module(module) if there else None


def space_of(text: str) -> Any:
    """The space that a text describes. Raises UsageError, ChoiceError."""
    name = (text.split() or [""])[0]
    if (own := drawing(name)) is not None:
        return own.space_of(text)
    known("model of --plan", name, (*models.names(), *filter(drawing, applications.names())))
    return space.space_of(text)
