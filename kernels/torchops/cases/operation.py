"""Operations under audit: their functions, inputs and factors.

    @operation("index_add", shape=((1000,), (100, 100)), ratio=(0.1, 1.0))
    def index_add(draw, shape, ratio):
        ...
        return prepared(lambda x, index, source: x.index_add(0, index, source), x, index, source, differentiate=(0, 2))

A case is an operation with one value of each factor, forward or backward. The name of the operation, its factors and a
seed determine its inputs.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from kernels.guarantees import ChoiceError

DIRECTIONS = ("forward", "backward")


@dataclass(frozen=True)
class Prepared:
    """The call of a case. `tensors`: the arguments of `call`, in this order; NumPy arrays become torch tensors.

    `differentiate`: numbers of the arguments for which backward differentiates. `batch`: numbers of the arguments whose
    first axis counts independent samples, as the first axis of the result does; empty if there are none. `failures`:
    {change: why it cannot be tried}."""

    call: Callable[..., Any]
    tensors: tuple[Any, ...]
    differentiate: tuple[int, ...] = ()
    batch: tuple[int, ...] = ()
    failures: dict[str, str] = field(default_factory=dict)


def prepared(call: Callable[..., Any], *tensors: Any, differentiate=(), batch=()) -> Prepared:
    """The Prepared of `call(*tensors)`, which the function of an operation returns."""
    return Prepared(call, tensors, tuple(differentiate), tuple(batch))


@dataclass(frozen=True)
class Operation:
    """An operation; `build(draw, **factors) -> Prepared` makes a case. `documented`: its names in torch's
    documentation. `directions`: the audited directions."""

    name: str
    build: Callable[..., Prepared] = field(repr=False)
    factors: dict[str, tuple[Any, ...]]
    documented: tuple[str, ...]
    directions: tuple[str, ...]

    def cases(self) -> list[Case]:
        """A case for each combination of factors and direction."""
        combinations = itertools.product(*self.factors.values())
        return [
            Case(self.name, direction, dict(zip(self.factors, values, strict=True)))
            for values in combinations
            for direction in self.directions
        ]


@dataclass(frozen=True)
class Case:
    """One call under audit."""

    operation: str
    direction: str
    factors: dict[str, Any]

    @property
    def name(self) -> str:
        """The unique name of the case, such as `index_add[shape=100x100 ratio=0.5] backward`."""
        factors = " ".join(f"{key}={shown(value)}" for key, value in self.factors.items())
        return f"{self.operation}{f'[{factors}]' if factors else ''} {self.direction}"


def shown(value: Any) -> str:
    """A factor in the name of a case: 100x100 for a shape."""
    return "x".join(map(str, value)) if isinstance(value, tuple | list) else str(value)


REGISTERED: dict[str, Operation] = {}


def operation(
    name: str, *, documented: tuple[str, ...] = (), directions: tuple[str, ...] = DIRECTIONS, **factors: Any
) -> Callable[[Callable[..., Prepared]], Callable[..., Prepared]]:
    """Decorator that registers a function as the `build` of an operation. Raises ChoiceError for a registered name."""
    if name in REGISTERED:
        raise ChoiceError(f"operation {name!r} is registered already; give the other one another name")

    def register(build: Callable[..., Prepared]) -> Callable[..., Prepared]:
        REGISTERED[name] = Operation(name, build, factors, documented or (name,), directions)
        return build

    return register
