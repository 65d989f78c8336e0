"""The commands of `python -m analysis`: modules here, and all studies.

A module has `SUMMARY`, `DETAIL` and `EXAMPLES` for the help, `add_options(parser)`, and `run(options) -> Answer`. What
is imported with them is light; frames and figures are imported when one runs.
"""

from __future__ import annotations

from functools import partial
from importlib import import_module
from types import SimpleNamespace
from typing import Any

from analysis import studies

OWN = (
    "report", "divergence", "variability",
    "sharding", "predict", "score", "lint", "chain", "show", "export", "ask",
)  # fmt: skip
COMMANDS = (*OWN, *studies.names())


def command(name: str) -> Any:
    """What has the parts of a command: a module here, or a study with those that all have."""
    if name in OWN:
        return import_module(f"{__name__}.{name}")
    of = import_module(f"{__name__}.study")
    about = studies.about(name)
    return SimpleNamespace(
        SUMMARY=about.SUMMARY, DETAIL=about.DETAIL, EXAMPLES=about.EXAMPLES,
        add_options=partial(of.add_options, name), run=partial(of.run, name),
    )  # fmt: skip
