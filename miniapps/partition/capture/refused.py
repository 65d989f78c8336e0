"""What a step may not have, since a graph of it would leave it out, or ranks would not agree on it."""

from __future__ import annotations

from typing import Any

from miniapps.partition.graphs.graph import Graph
from miniapps.partition.rules.random import NAMES as KEYED

TYPES = ("float32", "float64")
HOOKS = {
    "_backward_hooks": "register_hook", "_post_accumulate_grad_hooks": "register_post_accumulate_grad_hook",
}  # fmt: skip


def hooked(module: Any) -> str:
    """What hooks of parameters and buffers a graph would leave out; "" where there are none."""
    named = (*module.named_parameters(), *module.named_buffers())
    found = [
        f"{name} ({how})"
        for name, tensor in named
        for kept, how in HOOKS.items()
        if getattr(tensor, kept, None)
    ]
    if not found:
        return ""
    return (
        f"hooks of {', '.join(found)} would not be called: remove them, and do what they do in the module or with the "
        "gradients of the step"
    )


def mutated(signature: Any) -> str:
    """What a step changes that is no buffer; "" where there is nothing."""
    inputs = [str(signature.user_inputs.index(name)) for name in signature.user_inputs_to_mutate.values()]
    if inputs:
        return (
            f"the step changes its input {', '.join(inputs)} in place, which would be left out: change a copy, "
            "x = x.clone()"
        )
    parameters = [name.removeprefix("step.") for name in signature.parameters_to_mutate.values()]
    return _changes(parameters) if parameters else ""


def changed(module: Any, inputs: tuple[Any, ...]) -> str:
    """Which parameters a step changes in place, from a step in eager mode, of which nothing stays; "" where it changes
    none."""
    import torch

    kept = {name: (p, p._version, p.detach().clone()) for name, p in module.named_parameters()}
    module(*[x.detach().clone().requires_grad_(x.requires_grad) for x in inputs])
    found = [name for name, (p, version, _) in kept.items() if p._version != version]
    with torch.no_grad():
        for name in found:
            kept[name][0].copy_(kept[name][2])
    return _changes(found)


def _changes(parameters: list[str]) -> str:
    if not parameters:
        return ""
    return (
        f"the step changes its parameters {', '.join(parameters)} in place: let the optimiser change them, or make "
        "them buffers"
    )


def of_other_types(graph: Graph) -> str:
    """The first value in a floating-point type in which no promise is kept; "" where there is none."""
    for source in graph.sources:
        if _other(source.tensor.dtype):
            return _in_type(f"{source.kind} {source.key}", source.tensor.dtype)
    for node in graph.nodes:
        for tensor in node.results:
            if _other(tensor.dtype):
                where = f" of module {node.where}" if node.where else ""
                return _in_type(f"a result of {node.target}{where}", tensor.dtype)
    return ""


def _other(dtype: str) -> bool:
    return dtype.startswith(("float", "bfloat", "complex")) and dtype not in TYPES


def _in_type(what: str, dtype: str) -> str:
    return (
        f"{what} is {dtype}: steps are partitioned in {' and '.join(TYPES)}; export the module in one of these, "
        "without autocast"
    )


def unkeyed(target: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> str:
    """The name of a random operation whose numbers are not keyed by element, so that every rank would draw others; ""
    for all others."""
    import torch

    if torch.Tag.nondeterministic_seeded not in getattr(target, "tags", ()):
        return ""
    name = target._schema.name.partition("::")[2]
    if name in KEYED:
        return ""
    if _argument(target, args, kwargs, "dropout_p") == 0:
        return ""
    if name.startswith("rrelu") and _argument(target, args, kwargs, "training") is False:
        return ""
    return name


def _argument(target: Any, args: tuple[Any, ...], kwargs: dict[str, Any], name: str) -> Any:
    for place, argument in enumerate(target._schema.arguments):
        if argument.name == name:
            return args[place] if place < len(args) else kwargs.get(name, argument.default_value)
    return None


def random_operation(name: str, where: str) -> str:
    """What is said of one."""
    inside = f" in module {where}" if where else ""
    return (
        f"{name}{inside} draws random numbers that every rank would draw for itself: draw by {', '.join(KEYED)}, or "
        "pass what was drawn as an input"
    )
