"""The floating-point environment of what keeps a promise: rounding to nearest, subnormals kept, nothing trapped.

A thread rounds, flushes subnormals and traps as the program, or a library that it has loaded, chose last:
`torch.set_flush_denormal`, an object built with -ffast-math, fesetround, feenableexcept. All functions of
`kernels._native` run in the default environment and give the caller its own back, with the flags that it had. Functions
that round in NumPy or torch beside them are decorated: all variants of the registry, and the calls of reducers.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, TypeVar

from kernels import _native

F = TypeVar("F", bound=Callable[..., Any])


def guarded(function: F) -> F:
    """Decorator: `function`, or a method, runs in the default environment, and its caller has its own afterwards.

    A call takes some tens of nanoseconds more. The work of other threads that `function` starts is not covered. A
    function that was decorated before stays as it is.
    """
    if isinstance(function, _native.guarded):
        return function
    made: Any = functools.update_wrapper(_native.guarded(function), function)
    return made


def unguarded(function: F) -> F:
    """What `guarded` decorated: it runs in the environment of the caller."""
    inner: F = function.__wrapped__  # type: ignore[attr-defined]
    return inner


def reset() -> None:
    """Give this thread the default environment, whatever it was; its flags stay."""
    _native.set_default_environment()
