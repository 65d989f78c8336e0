"""Orderings and their registration.

A schedule function `(size, *, parameters) -> Schedule | None` is registered by the decorator `ordering`; None means
that we have no schedule: the MPI library decides (library), or the network does (arrival). The functions themselves
are in `kernels.allreduce.schedules`, and `kernels.allreduce.catalog` finds them by name.

A user may give parameters after the name: `k-nomial:k=4`, `permuted:seed=7`, `trees:links=FILE`. The plan of a reducer
supplies three more: `nodes`, the node of every rank; `owners`, the rank that owns each block; `packing`, the spanning
trees from a file of links.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from functools import cache
from typing import Any

from kernels.allreduce.schedule import Schedule
from kernels.guarantees import LEVELS, ChoiceError, known
from kernels.ranges import SEEDS, Range

CONTEXT = ("nodes", "owners", "packing")  # parameters that the plan supplies, not the user
# Ranges of the parameters that are numbers, the same for all orderings.
RANGES = {
    "k": Range(2, 65536),
    "segments": Range(1, 1024),  # a message of each to and from every rank: more take memory and save nothing
    "seed": Range(0, SEEDS),
    "start": Range(-65536, 65536),
}
EQUAL = "equal"  # instead of a file of links
# Descriptions of the parameters that name a file.
FILES = {"links": f"{EQUAL}, or a file of the command `links`, its name without commas"}


@dataclass(frozen=True)
class Ordering:
    """A named ordering, its guarantee, and the reason for it; `name` includes the given parameters."""

    name: str
    guarantee: str
    why: str
    function: Callable[..., Schedule | None] = field(repr=False)
    # The same additions in fewer rounds with more bytes, for short vectors.
    short: Callable[..., Schedule] | None = field(default=None, repr=False)
    given: dict[str, Any] = field(default_factory=dict)
    choices: dict[str, tuple[str, ...]] = field(default_factory=dict)  # of parameters that are text
    # Contributions to an element meet unchanged: messages carry contributions and totals, never partial sums.
    contributions_meet: bool = False

    @property
    def summary(self) -> str:
        """The first paragraph of its description."""
        return " ".join((self.function.__doc__ or "").split("\n\n")[0].split())

    @property
    def parameters(self) -> dict[str, Any]:
        """The parameters that a user may give, with their values."""
        return _parameters(self.function) | self.given

    def allowed(self, parameter: str) -> str:
        """The values that a parameter may have, in words."""
        if parameter in FILES:
            return FILES[parameter]
        return ", ".join(self.choices[parameter]) if parameter in self.choices else str(RANGES[parameter])

    def read(self, parameter: str, text: str) -> Any:
        """The value of a parameter from `text`. Raises ChoiceError, with the allowed values, for any other text."""
        if parameter in self.choices:
            return known(parameter, text, self.choices[parameter])
        if parameter not in FILES:
            return RANGES[parameter].read(text)
        if not text:
            raise ChoiceError(f"choose {FILES[parameter]}")
        return text

    @property
    def needs(self) -> tuple[str, ...]:
        """The names in CONTEXT that the schedule depends on."""
        return _needs(self.function)

    @property
    def scheduled(self) -> bool:
        """Whether there is a schedule of ours."""
        given = {key: value for key, value in self.given.items() if key not in FILES}
        return replace(self, given=given)._schedule(1, nodes=(0,), owners=(0,)) is not None

    def schedule(self, size: int, short: bool = False, **context) -> Schedule:
        """The schedule for `size` ranks; of `context` (nodes, owners, packing) the ordering uses what it needs.

        `short`: the variant for short vectors, if there is one. Both make the same additions. Raises ChoiceError for
        an ordering without a schedule (`scheduled`), and for a parameter that this size cannot have.
        """
        schedule = self._schedule(size, short, **context)
        if schedule is None:
            raise ChoiceError(f"ordering {self.name!r} has no schedule: {self.why}; choose {scheduled()}")
        return schedule

    def _schedule(self, size: int, short: bool = False, **context) -> Schedule | None:
        function = self.short if short and self.short else self.function
        arguments = self.given | {name: context[name] for name in self.needs if name in context}
        return function(size, **arguments)


@cache  # every plan calls it, and `signature` is the slowest part of a plan's checks
def _parameters(function: Callable) -> dict[str, Any]:
    arguments = inspect.signature(function).parameters.values()
    return {p.name: p.default for p in arguments if p.kind is p.KEYWORD_ONLY and p.name not in CONTEXT}


@cache
def _needs(function: Callable) -> tuple[str, ...]:
    return tuple(name for name in CONTEXT if name in inspect.signature(function).parameters)


_orderings: dict[str, Ordering] = {}


def ordering(
    name: str,
    *,
    guarantee: str,
    why: str,
    short: Callable[..., Schedule] | None = None,
    choices: dict[str, Iterable[str]] | None = None,
    contributions_meet: bool = False,
) -> Callable[[Callable], Callable]:
    """Decorator that registers `function(size, *, parameters) -> Schedule | None` and returns it unchanged.

    `choices`: the values of parameters that are text; RANGES has those of numbers, FILES those of files.
    `contributions_meet` as in `Ordering`. Raises TypeError for a parameter that is in none of these.
    """
    known("guarantee", guarantee, LEVELS)
    listed = {parameter: tuple(values) for parameter, values in (choices or {}).items()}

    def register(function):
        entry = Ordering(
            name, guarantee, why, function, short, choices=listed, contributions_meet=contributions_meet
        )
        if missing := set(entry.parameters) - {*RANGES, *FILES, *listed}:
            raise TypeError(f"ordering {name!r}: no values are declared for {', '.join(sorted(missing))}")
        _orderings[name] = entry
        orderings.cache_clear()
        return function

    return register


@cache
def orderings() -> tuple[Ordering, ...]:
    """All orderings that are registered, with default parameters, weakest guarantee first."""
    return tuple(sorted(_orderings.values(), key=lambda o: LEVELS.index(o.guarantee)))


def scheduled() -> str:
    """Names of the orderings with a schedule, separated by commas."""
    return ", ".join(o.name for o in orderings() if o.scheduled)
