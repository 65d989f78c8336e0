"""Warn a program whose ranks are of several kinds (`miniapps.system.kinds`), at the line that called this package."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Sequence
from pathlib import Path

from miniapps.system.kinds import Kind, sentence

OWN = str(Path(__file__).parent)  # calls from files in this directory are not the program's

_told: set[str] = set()  # so that a communicator, its parts and a recording tell it once


class KindsWarning(UserWarning):
    """Ranks differ in processor, libraries or settings, so they may compute other bits from the same data."""


def warn_of_kinds(who: str, apart: Sequence[Kind], rank: int, promised: str = "") -> None:
    """Warn on rank 0 of the kinds `apart`, once for each set of kinds. `who`: the name of the called function;
    `promised`: what its guarantee means for them."""
    if not apart or rank or (ranks := sentence(apart)) in _told:
        return
    _told.add(ranks)
    warnings.warn(f"{who}: {sentence(apart, promised)}", KindsWarning, stacklevel=caller())


def caller() -> int:
    """The stacklevel, from the caller of this function, of the line of the program that called this package."""
    frame, level = sys._getframe(1), 1
    while frame.f_back is not None and frame.f_code.co_filename.startswith(OWN):
        frame, level = frame.f_back, level + 1
    return level
