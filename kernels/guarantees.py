"""The four guarantees about bits, and the error for a wrong choice."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal, get_args

# Weakest first: each level includes the promises of the weaker ones.
Level = Literal["none", "run", "layout", "exact"]
LEVELS: tuple[str, ...] = get_args(Level)

MEANINGS = {
    "none": "nothing: atomics, arrival order, library defaults",
    "run": "same bits on repeats with the same layout",
    "layout": "same bits for any rank count, ownership, arrival order and thread count",
    "exact": "layout, and every global sum correctly rounded",
}

# The conditions of each level: runs that differ in one of these may have other bits without breaking the promise.
# `exact` fixes every global sum on any machine with IEEE arithmetic, but not its terms: the same libraries compute
# products, stencils and networks as under `layout`.
SCOPE = {
    "none": (),
    "run": ("processor", "libraries", "settings", "threads"),
    "layout": ("processor", "libraries", "settings"),
    "exact": ("processor", "libraries", "settings"),
}
# Over which processors a guarantee holds, by the choice of a run. `any` takes two conditions away: a run that states it
# lets no library that chooses its kernels by the processor compute a bit that it records.
PROCESSORS = {
    "this": "this kind of processor, with its libraries and their settings",
    "any": "any processor with IEEE 754 arithmetic",
}
BY_PROCESSOR = ("processor", "settings")
WHY = {
    "processor": "libraries choose kernels, and with them the order of operations, by the processor's instruction sets",
    "libraries": "another version may compute in another order, and so may another version of these programs",
    "settings": "environment variables make libraries choose other kernels on the same processor",
    "threads": "without a set number of threads, a library divides its work among all cores that it finds",
}


class ChoiceError(ValueError):
    """A name, level or backend that cannot be chosen here; the message lists the possible ones."""


def known(what: str, name: str, names: Iterable[str]) -> str:
    """Returns `name` if it is one of `names`; else raises ChoiceError, which names `what` and lists `names`."""
    names = list(names)
    if name not in names:
        raise ChoiceError(
            f"unknown {what} {name!r}: choose one of {', '.join(names) or 'none (nothing registered)'}"
        )
    return name


def conditions(level: str, processor: str = "this") -> tuple[str, ...]:
    """The conditions of a guarantee in SCOPE under which it holds for a run that states this choice of PROCESSORS; none
    for an unknown guarantee."""
    return tuple(
        aspect for aspect in SCOPE.get(level, ()) if processor != "any" or aspect not in BY_PROCESSOR
    )


def meets(level: str, asked: str) -> bool:
    """Whether the guarantee `level` is at least `asked`; raises ChoiceError for unknown levels."""
    return LEVELS.index(known("guarantee", level, LEVELS)) >= LEVELS.index(known("guarantee", asked, LEVELS))
