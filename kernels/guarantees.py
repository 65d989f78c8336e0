"""The four levels of promise about bits, and the error that a wrong choice raises."""

from __future__ import annotations

from collections.abc import Iterable

# Weakest first: each level keeps the promises of those before it.
LEVELS = ("none", "run", "layout", "exact")

MEANINGS = {
    "none": "nothing: atomics, arrival order, library defaults",
    "run": "same bits on repeats with the same layout",
    "layout": "same bits for any rank count, ownership, arrival order and thread count",
    "exact": "layout, and every global sum correctly rounded",
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
