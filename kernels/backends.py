"""Backends of a package of kernels that mirror each other function by function: a module for each."""

from importlib import import_module

from kernels.guarantees import ChoiceError

NAMES = ("reference", "native", "cupy")


def backend(package: str, what: str, name: str):
    """The module `name` of a package; `what` says in errors what it computes.

    Raises ChoiceError for an unknown name or a backend that cannot run here (its message says why).
    """
    if name not in NAMES:
        raise ChoiceError(f"unknown backend of {what} {name!r}; there are: {', '.join(NAMES)}")
    try:
        return import_module(f"{package}.{name}")
    except ImportError as error:
        raise ChoiceError(f"backend {name!r} of {what} cannot run here: {error}") from error
