"""Backends of a package of kernels: one module each, with the same functions."""

from importlib import import_module

from kernels.guarantees import ChoiceError

NAMES = ("reference", "native", "cupy")


def backend(package: str, what: str, name: str):
    """Returns the module `name` of a package; errors name the computation by `what`.

    Raises ChoiceError for an unknown name or a backend that cannot run here (the message says why).
    """
    if name not in NAMES:
        raise ChoiceError(f"unknown backend of {what} {name!r}; there are: {', '.join(NAMES)}")
    try:
        return import_module(f"{package}.{name}")
    except ImportError as error:
        raise ChoiceError(f"backend {name!r} of {what} cannot run here: {error}") from error
