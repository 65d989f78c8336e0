"""Finds models: every module of a package that defines MODEL, with its options."""

from __future__ import annotations

import dataclasses
import typing
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from importlib import import_module
from importlib.resources import files
from typing import Any

from miniapps import applications
from miniapps.errors import UsageError
from miniapps.runner.config import option, options


@cache
def names(package: str) -> tuple[str, ...]:
    """The names of the models in a package, in alphabetical order. Imports none of them."""
    modules = {
        file.name.removesuffix(".py"): file for file in files(package).iterdir() if file.name.endswith(".py")
    }
    return tuple(sorted(name for name, file in modules.items() if applications.defines(file, "MODEL")))


def every(package: str) -> dict[str, Any]:
    """{name: MODEL} of all models of a package."""
    return {name: import_module(f"{package}.{name}").MODEL for name in names(package)}


def section_of(
    found: Mapping[str, Any],
    module: str,
    default: str,
    beside: type | None = None,
    instead: Callable[[], dict[str, str]] | None = None,
) -> type:
    """The section `Model` of a configuration, a dataclass of `module`: the option `name`, and the options of all
    models. `found`: the models by name, each with a dataclass OPTIONS; `beside`: a dataclass of the application's own
    options. Raises TypeError if two models declare an option differently."""
    said = "; ".join(f"{name}: {_first_line(model)}" for name, model in found.items())
    named = option(default, help=said, choices=tuple(found), flag="--model", instead=instead)
    made: list[Any] = [("name", str, named)]
    declared: dict[str, tuple[Any, dataclasses.Field]] = {}
    for name, model in found.items():
        for kind, field in _options(model.OPTIONS):
            first, known = declared.setdefault(field.name, (kind, field))
            if (first, known.default, known.metadata) != (kind, field.default, field.metadata):
                raise TypeError(
                    f"model.{field.name}: {name} and another model declare it differently; declare it once"
                )
    for key, (kind, field) in declared.items():
        hear = _hear(found, key)
        of = "" if len(hear) == len(found) else f"{', '.join(hear)}: "
        metadata = dict(field.metadata) | {"help": of + field.metadata["help"]}
        made.append((key, kind, dataclasses.field(default=field.default, metadata=metadata)))
    made += [(field.name, kind, field) for kind, field in _options(beside)]
    attributes = {"__module__": module, "__doc__": "The network."}
    return dataclasses.make_dataclass("Model", made, namespace=attributes)


def require_heard(section: Any, found: Mapping[str, Any]) -> None:
    """Raise UsageError for a given option of the section `Model` that its model does not have."""
    for field in dataclasses.fields(section):
        hear = _hear(found, field.name)
        if hear and section.name not in hear and getattr(section, field.name) != field.default:
            raise UsageError(
                f"model.{field.name}: --model {section.name} has no such option; leave it out, or choose --model "
                f"{' or '.join(hear)}"
            )


def require_data(config: Any, fits: Mapping[str, Sequence[str]]) -> None:
    """Raise UsageError for data that the model of a configuration cannot learn; `fits`: the possible data by model."""
    name, data = config.model.name, config.data.name
    if data not in fits[name]:
        others = [f"--model {other}" for other, can in fits.items() if data in can]
        raise UsageError(
            f"--model {name} cannot learn --data {data}; choose {' or '.join(others)}, or --data "
            f"{' or '.join(fits[name])}"
        )


def elsewhere(application: str) -> dict[str, str]:
    """{model of another application: message for a user who requests it from `application`}."""
    found = {}
    for other in applications.names():
        if other == application:
            continue
        found[other] = f"it is an application of its own: python -m miniapps.{other}"
        for known in options(applications.app(other).config):
            if known.key == "model.name":
                command = f"python -m miniapps.{other} --model"
                found |= {
                    name: f"another application has it: {command} {name}" for name in known.allowed() or ()
                }
    return found


def _options(of: type | None) -> list[tuple[Any, dataclasses.Field]]:
    """(type, field) of the options of a dataclass."""
    if of is None:
        return []
    hints = typing.get_type_hints(of)
    return [(hints[field.name], field) for field in dataclasses.fields(of)]


def _hear(found: Mapping[str, Any], option: str) -> list[str]:
    """The models that have an option."""
    return [
        name
        for name, model in found.items()
        if option in {field.name for _, field in _options(model.OPTIONS)}
    ]


def _first_line(model: Any) -> str:
    """The description of a model, for the help."""
    return (type(model).__doc__ or "").partition("\n")[0].rstrip(".")
