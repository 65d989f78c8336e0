"""Figures that look the same everywhere: no file `matplotlibrc` affects them.

On import, matplotlib reads a `matplotlibrc`, first in the current directory, where somebody else may have put it. A
binary file ends the import with an error, and a fifo blocks it for ever.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator, Mapping
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from matplotlib.figure import Figure

# Colours of series, after Okabe and Ito: colour-blind readers can distinguish them; contrast on white at least 3:1.
SERIES = ("#0072b2", "#d55e00", "#008060", "#a8508a", "#8a6d00", "#3b8fc2", "#6b6b6b")
INK = "#1a1b1c"  # colour of text and lines


@contextlib.contextmanager
def styled(settings: Mapping[Any, Any]) -> Iterator[type[Figure]]:
    """Gives matplotlib's class Figure; figures inside use only its defaults and these `settings` (rcParams).

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
    """Inside, the current directory is that of the package matplotlib, which has no `matplotlibrc`."""
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
