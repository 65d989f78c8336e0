"""The floating-point environment in which guarantees hold: rounding to nearest, subnormals kept, no traps.

The program or a library can change how a thread rounds, flushes subnormals and traps: `torch.set_flush_denormal`, an
object built with -ffast-math, fesetround, feenableexcept. All functions of `kernels._native` run in the default
environment and restore the caller's, including its flags. Functions that round in NumPy or torch are decorated by
`guarded`: all variants of the registry, and the calls of reducers.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, TypeVar

from kernels import _native

F = TypeVar("F", bound=Callable[..., Any])


def guarded(function: F) -> F:
    """Decorator: runs a function or method in the default environment, then restores the caller's.

    A call takes some tens of nanoseconds more. Threads that `function` starts are not covered. A function that is
    already decorated is returned as it is.
    """
    if isinstance(function, _native.guarded):
        return function
    made: Any = functools.update_wrapper(_native.guarded(function), function)
    return made


def unguarded(function: F) -> F:
    """The function that `guarded` decorated; it runs in the caller's environment."""
    inner: F = function.__wrapped__  # type: ignore[attr-defined]
    return inner


def reset() -> None:
    """Sets the default environment in this thread; its exception flags stay."""
    _native.set_default_environment()
