"""Studies: each subpackage analyses runs of one kind.

The `__init__` of a study imports little and describes it: `SUMMARY`, `DETAIL` and `EXAMPLES` for the help; `NEEDS`, the
records that a run must have; and `add_options(parser)` if the study has options. `ask` offers a study with `ANSWERS`,
the words of people who would ask for it, and `RECORDED`, a phrase for its records. Optional are `UNUSUAL`, facts that
the study may find, and `FACT`, a fact of `ask` that is more specific than that the study applies. The module `study`
has `STUDY`, a `contract.Study`. The command line, CSV files, documents and the report use only `STUDY`.
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
    """The names of all studies, which are also their commands, in alphabetical order."""
    return tuple(sorted(module.name for module in pkgutil.iter_modules(__path__) if module.ispkg))


def about(name: str) -> ModuleType:
    """The package of a study, which describes it without importing its modules."""
    return import_module(f"{__name__}.{name}")


def study(name: str) -> Study[Any]:
    """The study itself; imports all its modules."""
    found: Study[Any] = import_module(f"{__name__}.{name}.study").STUDY
    return found
