"""The plans that a calibration draws: of the partitioned models, of modules of the user's own, and of applications with
a module `drawn`.

Such a module has `space_of(text)`, whose `draws(rng, count)` returns `pricing.turns.Draws` of steps that `str` writes
as text again, and whose `draw(rng)` returns one. Of a step it has
`memory(step)`, the bytes that a rank needs; `program(step, threads)`, what each of its `ranks` does;
`rehearsal(step, threads)`, whose `run()` returns the seconds of each work of a rank alone, and whose `close()` ends it;
`together(comm, step, threads)`, the functions that do a step on all ranks and end it.
"""

from __future__ import annotations

from collections.abc import Sequence
from importlib import import_module
from importlib.util import find_spec
from typing import Any

import numpy as np

from kernels.guarantees import known
from miniapps import applications
from miniapps.partition import models
from miniapps.partition.own.loading import is_name
from miniapps.partition.pricing import space
from miniapps.partition.pricing.turns import Draws


def drawing(name: str) -> Any | None:
    """The module `drawn` of the application `name`; None if there is none."""
    module = f"miniapps.{name}.drawn"
    there = name in applications.names() and find_spec(module) is not None
    return import_module(module) if there else None


def drawn_from(texts: Sequence[str], count: int, seed: int) -> list[tuple[Any | None, Any]]:
    """(the module that `drawing` returns, a plan) for `count` plans of each text, drawn by `seed`, each plan once."""
    rng = np.random.default_rng([seed, 2])
    drawn = dict.fromkeys(str(one) for draws in draws_of(texts, count, seed) for one in draws.found)
    return [(drawing(space.words_of(text)[0]), space_of(text).draw(rng)) for text in drawn]


def draws_of(texts: Sequence[str], count: int, seed: int) -> list[Draws]:
    """`count` plans of each text, drawn by `seed`. Raises UsageError, ChoiceError."""
    rng = np.random.default_rng([seed, 2])
    return [space_of(text).draws(rng, count) for text in texts]


def space_of(text: str) -> Any:
    """The space that a text describes. Raises UsageError, ChoiceError."""
    name = space.words_of(text)[0]
    if (own := drawing(name)) is not None:
        return own.space_of(text)
    if not is_name(name):
        known("model of --plan", name, (*models.names(), *filter(drawing, applications.names())))
    return space.space_of(text)
