"""Studies: what runs of one kind say, each a package of this one.

Its front is light and says what the study is for: `SUMMARY`, `DETAIL` and `EXAMPLES` for the help, `NEEDS`, what a run
must have recorded, and where it has options `add_options(parser)`. Where `ask` shall name it, `ANSWERS` has the words
of people who would ask, `RECORDED` what there is then in the runs; `UNUSUAL`, where it has that, the facts that the
study may find, and `FACT` one of `ask` that says more than that the study has something to say. Its module `study` has
`STUDY`, a `contract.Study`. The command line, CSV files, documents and their documentation, and the report ask for that
alone.
"""

from __future__ import annotations

import pkgutil
from functools import cache
from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from analysis.studies.contract import Study


@cache
def names() -> tuple[str, ...]:
    """The names of all studies, which are the commands that show them, in alphabetical order."""
    return tuple(sorted(module.name for module in pkgutil.iter_modules(__path__) if module.ispkg))


def about(name: str) -> ModuleType:
    """The front of a study."""
    return import_module(f"{__name__}.{name}")


def study(name: str) -> Study[Any]:
    """The study itself, with all that it imports."""
    found: Study[Any] = import_module(f"{__name__}.{name}.study").STUDY
    return found
