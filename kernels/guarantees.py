"""The four levels of promise about bits, and the error that a wrong choice raises."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal, get_args

# Weakest first: each level keeps the promises of those before it.
Level = Literal["none", "run", "layout", "exact"]
LEVELS: tuple[str, ...] = get_args(Level)

MEANINGS = {
    "none": "nothing: atomics, arrival order, library defaults",
    "run": "same bits on repeats with the same layout",
    "layout": "same bits for any rank count, ownership, arrival order and thread count",
    "exact": "layout, and every global sum correctly rounded",
}

# What a level takes for granted: runs that differ in one of these may have other bits, and no promise is broken.
# `exact` fixes every global sum on any machine with IEEE arithmetic, but not what is summed: products, stencils and
# networks are computed by the same libraries as under `layout`.
SCOPE = {
    "none": (),
    "run": ("processor", "libraries", "settings", "threads"),
    "layout": ("processor", "libraries", "settings"),
    "exact": ("processor", "libraries", "settings"),
}
WHY = {
    "processor": "libraries choose their kernels, and with them the order of operations, by what the processor can do",
    "libraries": "another version may compute in another order, and so may another version of these programs",
    "settings": "variables make libraries choose other kernels on the same processor",
    "threads": "a library that is not told a number of threads divides its work among as many as it finds",
}


class ChoiceError(ValueError):
    """A name, level or backend that cannot be chosen here; the message lists what can."""


def known(what: str, name: str, names: Iterable[str]) -> str:
    """`name` if it is one of `names`; raises ChoiceError that says what it was meant to be and lists them."""
    names = list(names)
    if name not in names:
        raise ChoiceError(
            f"unknown {what} {name!r}: choose one of {', '.join(names) or 'none (nothing registered)'}"
        )
    return name


def meets(level: str, asked: str) -> bool:
    """Whether what promises `level` may serve where `asked` is asked for; ChoiceError for unknown levels."""
    return LEVELS.index(known("guarantee", level, LEVELS)) >= LEVELS.index(known("guarantee", asked, LEVELS))
