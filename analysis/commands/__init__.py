"""The commands of `python -m analysis`: the modules of this package, and all studies.

A module has `SUMMARY`, `DETAIL` and `EXAMPLES` for the help, `add_options(parser)`, and `run(options) -> Answer`. Its
import is cheap: `run` imports frames and figures.
"""

from __future__ import annotations

from functools import partial
from importlib import import_module
from types import SimpleNamespace
from typing import Any

from analysis import studies

OWN = (
    "report", "divergence", "variability",
    "predict", "price", "score", "lint", "chain", "show", "export", "ask",
)  # fmt: skip
COMMANDS = (*OWN, *studies.names())


def command(name: str) -> Any:
    """The module of a command; for a study a namespace with the same attributes."""
    if name in OWN:
        return import_module(f"{__name__}.{name}")
    of = import_module(f"{__name__}.study")
    about = studies.about(name)
    return SimpleNamespace(
        SUMMARY=about.SUMMARY, DETAIL=about.DETAIL, EXAMPLES=about.EXAMPLES,
        add_options=partial(of.add_options, name), run=partial(of.run, name),
    )  # fmt: skip
