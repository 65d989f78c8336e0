"""Numerical and communication kernels whose order of additions is stated, chosen and tested."""

from __future__ import annotations

import sys

# `python -m` puts the current directory first on the path, and files there may hide modules of this suite. Each package
# of the suite repeats these lines before any other import, because any of them may be imported first.
if (
    sys.argv[:1] == ["-m"]
    and sys.orig_argv[-len(sys.argv)].removeprefix("-m").partition(".")[0] == __name__
    and not sys.flags.safe_path
    and sys.path[0] != __path__[0].rpartition("/")[0]
):
    del sys.path[0]

from importlib import import_module
from pathlib import Path
from types import ModuleType

__version__ = "0.1.0"  # of the whole package; pyproject.toml and CITATION.cff have it too
VERSION = f"fpna-miniapps {__version__}"  # what --version prints

NOT_BUILT = (
    "the C++ kernels are not built in {place}. Build them: make environment, or pip install -e . there; or start from "
    "another directory, where Python does not take this checkout for the installed package"
)


def __getattr__(name: str) -> ModuleType:
    """Returns the module `_native`; the error says how to build it. Raises AttributeError for other names."""
    if name != "_native":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    try:
        return import_module("kernels._native")
    except ModuleNotFoundError as error:
        where = Path(__file__).resolve().parent
        raise ModuleNotFoundError(NOT_BUILT.format(place=where), name=error.name) from None
