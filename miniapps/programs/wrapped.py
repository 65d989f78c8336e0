"""The base of all wrapped communicators: their guarantee, the methods of mpi4py's class, and the handle."""

from __future__ import annotations

import ctypes
import functools
import sys
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Self

import numpy as np
from mpi4py import MPI

from kernels.guarantees import ChoiceError
from miniapps.programs import handles, methods
from miniapps.programs.messages import message
from miniapps.programs.operations import operation_of, rounding, rounds_nothing
from miniapps.programs.plans import Observer, Plans
from miniapps.runner.policy import Policy
from miniapps.runner.replay import Replay

_OWN: dict[type, Any] = {}  # the class of wrapped communicators by class of mpi4py


@dataclass(frozen=True)
class Promise:
    """The arguments of `wrap`. `exact_ops`: operations of the program that round nothing."""

    policy: Policy
    check: bool = False
    replay: Replay | None = None
    exact_ops: tuple[Any, ...] = ()


class Wrapped:
    """The base of wrapped communicators of all kinds. `plain` is the communicator without a guarantee; communicators
    made from this one get the same guarantee."""

    plain: Any

    def __new__(cls, comm: MPI.Comm, promise: Promise) -> Self:
        native: Any = MPI.Intracomm if issubclass(cls, MPI.Intracomm) else MPI.Intercomm
        made: Self = native.__new__(cls, comm)
        return made

    def __init__(self, comm: MPI.Comm, promise: Promise):
        self.plain = comm.plain if isinstance(comm, Wrapped) else comm
        self._promise = promise
        self._plans = Plans(self.plain, promise.check, promise.replay)

    def __getattr__(self, name: str) -> Any:
        """Attributes that a class of the program has added to the communicator."""
        if name == "plain":  # not set yet
            raise AttributeError(name)
        return getattr(self.plain, name)

    def __reduce__(self) -> Any:
        return wrapped_alike, (self.plain, replace(self._promise, replay=None))

    @property
    def guarantee(self) -> str:
        """The guarantee, such as "layout"."""
        return self._promise.policy.level

    @property
    def policy(self) -> Policy:
        """The policy that chooses orderings of reductions."""
        return self._promise.policy

    @property
    def observer(self) -> Observer | None:
        """The recording of the reductions; None without one."""
        return self._plans.observer

    @observer.setter
    def observer(self, observer: Observer | None) -> None:
        self._plans.observer = observer

    def release(self) -> None:
        """Wait for all pending reductions and free all plans. Collective; the communicator stays usable."""
        self._plans.release()

    def Free(self) -> None:
        """Free the plans, and the communicator."""
        self._end("Free")

    def free(self) -> None:
        """As `Free`, unless the communicator is freed already."""
        if self != MPI.COMM_NULL:
            self._end("Free")

    def Disconnect(self) -> None:
        """Free the plans, and disconnect the communicator."""
        self._end("Disconnect")

    def _end(self, name: str) -> None:
        self.release()
        getattr(self.plain, name)()
        self.__init__(self.plain, self._promise)  # type: ignore[misc]
        _take_handle(self, self.plain)


def wraps(native: type, refused: tuple[str, ...]) -> Callable[[Any], Any]:
    """Decorator of the class for communicators of mpi4py's class `native`: gives it the methods of `methods`."""

    def complete(own: Any) -> Any:
        _OWN[native] = own
        for names, make in ((methods.WRAPPED, _wrapping), (refused, _unpromised)):
            for name in names:
                if hasattr(native, name):
                    setattr(own, name, _named(make(name), getattr(native, name)))
        own.handle = property(_noted("handle"), doc=MPI.Comm.handle.__doc__)
        for name in methods.TAKING:
            if hasattr(native, name):
                setattr(own, name, _named(_noted(name), getattr(native, name)))
        return own

    return complete


def wrapped_alike(comm: Any, promise: Promise) -> Any:
    """`comm` with the guarantee, as a class derived from its own; COMM_NULL unchanged."""
    kind: Any = type(comm)
    return comm if comm == MPI.COMM_NULL else _class_of(kind)(comm, promise)


@functools.cache
def _class_of(kind: Any) -> Any:
    """The class of wrapped communicators derived from the class `kind`."""
    if issubclass(kind, Wrapped):
        return kind
    own = _OWN[MPI.Intercomm if issubclass(kind, MPI.Intercomm) else MPI.Intracomm]
    if issubclass(own, kind):
        return own
    members = {"__doc__": own.__doc__, "__module__": own.__module__}
    for name in methods.WRAPPED:
        if hasattr(kind, name) and not hasattr(own, name):
            members[name] = _named(_wrapping(name), getattr(kind, name))
    return type(own.__name__, (own, kind), members)


def _named(method: Callable[..., Any], native: Any) -> Callable[..., Any]:
    """`method` with the name and the documentation of mpi4py's method."""
    method.__name__, method.__doc__ = native.__name__, native.__doc__
    return method


def _take_handle(to: Any, of: MPI.Comm) -> None:
    """Copy the handle of `of` to `to`; mpi4py sets it to COMM_NULL when it frees a communicator."""
    ctypes.memmove(MPI._addressof(to), MPI._addressof(of), MPI._sizeof(MPI.Comm))


def _wrapping(name: str) -> Callable[..., Any]:
    """The method `name` of a communicator, with its result wrapped under the same guarantee."""

    def made(self: Wrapped, *arguments: Any, **named: Any) -> Any:
        alike = replace(self._promise, replay=None)
        result = getattr(self.plain, name)(*arguments, **named)
        if isinstance(result, tuple):  # and a request
            return (wrapped_alike(result[0], alike), *result[1:])
        return wrapped_alike(result, alike)

    return made


def _unpromised(name: str) -> Callable[..., Any]:
    """The method `name`, a reduction without an ordering here: raises ChoiceError under a guarantee if it rounds."""

    def left(self: Wrapped, *arguments: Any, **named: Any) -> Any:
        if self.guarantee != "none" and _rounds(name, arguments, named, self._promise.exact_ops):
            raise ChoiceError(
                f"{name}: the MPI library chooses its order, so it cannot keep guarantee {self.guarantee!r}; "
                f"{', '.join(methods.OURS)} of intracommunicators can. Without a guarantee: comm.plain.{name}"
            )
        return getattr(self.plain, name)(*arguments, **named)

    return left


def _noted(name: str) -> Callable[[Wrapped], Any]:
    """The method `name`, or the attribute `handle`, which returns the handle; under a guarantee it notes the caller."""

    def given(self: Wrapped) -> Any:
        if self.guarantee != "none":
            handles.take(name, sys._getframe(1).f_globals.get("__name__", "code"), 2)
        found = getattr(self.plain, name)
        return found() if callable(found) else found

    return given


def _rounds(name: str, arguments: tuple[Any, ...], named: dict[str, Any], exact: tuple[Any, ...]) -> bool:
    """Whether a reduction with these arguments may give other bits in another order."""
    given = [*arguments, *named.values()]
    if any(
        (isinstance(each, MPI.Op) or callable(each))
        and (operation_of(each) in ("min", "max") or rounds_nothing(each, exact))
        for each in given
    ):
        return False
    sent = (
        given[1] if given and (given[0] is None or given[0] is MPI.IN_PLACE) else given[0] if given else None
    )
    if name[0].islower():
        return not isinstance(sent, int | np.integer | np.bool_)
    return sent is not None and rounding(message(sent, name).dtype)
