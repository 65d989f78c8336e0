"""Figures that look alike wherever they are drawn: no file `matplotlibrc` has a say in them.

When it is imported, matplotlib reads a `matplotlibrc`, and that of the current directory first, which somebody else may
have put there: one that is no text ends the import, and a fifo holds it up for ever.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator, Mapping
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from matplotlib.figure import Figure

# Colours of series, after Okabe and Ito: told apart by people who are colour-blind, with 3:1 contrast on white.
SERIES = ("#0072b2", "#d55e00", "#008060", "#a8508a", "#8a6d00", "#3b8fc2", "#6b6b6b")
INK = "#1a1b1c"  # of text and lines


@contextlib.contextmanager
def styled(settings: Mapping[Any, Any]) -> Iterator[type[Figure]]:
    """The class of figures of matplotlib, drawn inside by its own defaults and these `settings` (rcParams) alone.

    Raises ImportError without matplotlib.
    """
    with _elsewhere():
        import matplotlib
        from matplotlib.figure import Figure
    with matplotlib.rc_context():
        matplotlib.rcdefaults()
        matplotlib.rcParams.update(settings)
        yield Figure


@contextlib.contextmanager
def _elsewhere() -> Iterator[None]:
    """Inside, the current directory is that of matplotlib, which holds no `matplotlibrc` itself."""
    found = find_spec("matplotlib")
    if found is None or not found.submodule_search_locations:
        raise ModuleNotFoundError("No module named 'matplotlib'", name="matplotlib")
    here = os.open(".", getattr(os, "O_PATH", os.O_RDONLY) | os.O_CLOEXEC)  # its path may be gone
    try:
        os.chdir(found.submodule_search_locations[0])
        yield
    finally:
        os.fchdir(here)
        os.close(here)
