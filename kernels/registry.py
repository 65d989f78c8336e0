"""Variants of the operations, by (operation, name, backend).

Importing a package of kernels (`kernels.sums`, `kernels.stencil`, ...) registers its variants. The choices of command
lines, their lists and the documentation are made from the registry, so they agree.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass, field

from kernels.environment import guarded
from kernels.guarantees import LEVELS, ChoiceError, known, meets


@dataclass(frozen=True)
class Variant:
    """One implementation of an operation, with its guarantee and the reason for it."""

    operation: str
    name: str
    backend: str
    guarantee: str
    why: str
    function: Callable = field(repr=False)
    available: Callable[[], str | None] | None = field(default=None, repr=False)

    def unavailable(self) -> str | None:
        """Why it cannot run here, or None when it can."""
        return self.available() if self.available else None

    @property
    def parameters(self) -> tuple[str, ...]:
        """Names of the parameters with a default other than None: the options, without the data."""
        signature = inspect.signature(self.function)
        return tuple(name for name, p in signature.parameters.items() if p.default not in (p.empty, None))

    def __call__(self, *args, **kwargs):
        return self.function(*args, **kwargs)


VARIANTS: dict[tuple[str, str, str], Variant] = {}


def variant(
    operation: str,
    name: str,
    *,
    backend: str,
    guarantee: str,
    why: str,
    available: Callable[[], str | None] | None = None,
) -> Callable[[Callable], Callable]:
    """Decorator that registers a function as a variant and returns it, in the default floating-point environment.

    `available()` returns None, or the reason why the variant cannot run here; it is asked when needed, never
    at import. Raises ChoiceError for an unknown guarantee and for a key that is taken.
    """
    known("guarantee", guarantee, LEVELS)
    key = (operation, name, backend)
    if key in VARIANTS:
        raise ChoiceError(
            f"{operation} {name!r} ({backend}) is registered already; give the new variant another name"
        )

    def register(function: Callable) -> Callable:
        function = guarded(function)
        VARIANTS[key] = Variant(operation, name, backend, guarantee, why, function, available)
        return function

    return register


def operations() -> list[str]:
    """Names of the operations that have variants, in order of registration."""
    return list(dict.fromkeys(key[0] for key in VARIANTS))


def variants(operation: str) -> list[Variant]:
    """All variants of an operation, in order of registration; ChoiceError for an unknown operation."""
    known("operation", operation, operations())
    return [v for v in VARIANTS.values() if v.operation == operation]


def get(operation: str, name: str, backend: str | None = None) -> Variant:
    """The variant of that name; of several backends the first that can run here, unless one is named.

    Raises ChoiceError for an unknown operation, name or backend (the message lists those that exist), and
    for a backend that cannot run here (the message says why).
    """
    known_variants = variants(operation)
    known(operation, name, dict.fromkeys(v.name for v in known_variants))
    known_variants = [v for v in known_variants if v.name == name]
    if backend is not None:
        known(f"backend of {operation} {name!r}", backend, [v.backend for v in known_variants])
        known_variants = [v for v in known_variants if v.backend == backend]
    reasons = []
    for v in known_variants:
        reason = v.unavailable()
        if reason is None:
            return v
        reasons.append(f"{v.backend}: {reason}")
    raise ChoiceError(f"{operation} {name!r} cannot run here: {'; '.join(reasons)}")


def check(operation: str, name: str, asked: str, backend: str | None = None) -> Variant:
    """As `get`; raises ChoiceError, which lists the variants that would do, below the level asked for."""
    v = get(operation, name, backend)
    if not meets(v.guarantee, asked):
        enough = dict.fromkeys(o.name for o in variants(operation) if meets(o.guarantee, asked))
        raise ChoiceError(
            f"{operation} {name!r} promises {v.guarantee!r}, less than the {asked!r} asked for: {v.why}. "
            f"These meet {asked!r}: {', '.join(enough) or 'none'}"
        )
    return v
