"""The layers of a user's module that the stages of a pipeline run over: equal modules of a list, or those of --layers.

No MPI; the modules are torch's.
"""

from __future__ import annotations

from typing import Any

from kernels.guarantees import ChoiceError

LEAST = 2  # layers of a pipeline
LISTS = ("Sequential", "ModuleList")


def layers_of(module: Any, given: str | None) -> tuple[tuple[str, ...], str]:
    """(names of the layers, first to last; ""), or (none, the reason). `given`: the value of --layers, a module whose
    children are the layers, or several modules. Raises ChoiceError for names that are no layers."""
    if given is None:
        return found(module)
    known = dict(module.named_modules())
    names = [name.strip() for name in given.split(",")]
    for name in names:
        if name not in known or not name:
            there = ", ".join(list(filter(None, known))[:8])
            raise ChoiceError(
                f"--layers {given}: the module has no submodule {name!r}; it has {there or 'none'}"
            )
    if len(names) == 1:
        children = [f"{names[0]}.{child}" for child, _ in known[names[0]].named_children()]
        names = [name for name in children if learned(known[name])]
    if len(names) < LEAST:
        raise ChoiceError(
            f"--layers {given}: a pipeline needs {LEAST} layers with parameters; name a module with more of them, or "
            "several modules, first to last"
        )
    for name in names:
        if not learned(known[name]):
            raise ChoiceError(f"--layers {given}: {name} has no parameters; leave it out")
        if inside := [other for other in names if other != name and name.startswith(f"{other}.")]:
            raise ChoiceError(f"--layers {given}: {name} is inside {inside[0]}; name one of them")
    return tuple(names), ""


def found(module: Any) -> tuple[tuple[str, ...], str]:
    """The longest list of equal modules with parameters, of equal ones the first; without one the reason."""
    best: tuple[str, ...] = ()
    seen: list[str] = []
    for name, each in module.named_modules():
        if kind(each) not in LISTS or not name:
            continue
        children = [(f"{name}.{key}", child) for key, child in each.named_children() if learned(child)]
        seen.append(name)
        if len({form(child) for _, child in children}) == 1 and len(children) > max(len(best), LEAST - 1):
            best = tuple(key for key, _ in children)
    if best:
        return best, ""
    if not seen:
        return (), "it has no nn.Sequential and no nn.ModuleList; name its layers by --layers"
    return (
        (),
        f"the modules in {', '.join(seen[:4])} are not {LEAST} or more equal layers; name layers by --layers",
    )


def kind(module: Any) -> str:
    """The list of torch that a module is, or derives from; else its class."""
    return next(
        (base.__name__ for base in type(module).__mro__ if base.__name__ in LISTS), type(module).__name__
    )


def form(module: Any) -> tuple:
    """What equal layers share: class, and names and shapes of parameters."""
    return type(module), tuple((name, tuple(p.shape), p.dtype) for name, p in module.named_parameters())


def learned(module: Any) -> bool:
    """Whether a module has parameters."""
    return next(iter(module.parameters()), None) is not None
