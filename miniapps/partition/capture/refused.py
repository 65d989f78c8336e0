"""Reasons to refuse a step: a graph would change its meaning, or ranks would compute different values."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from miniapps.partition.graphs.graph import Graph
from miniapps.partition.rules.random import NAMES as KEYED

TYPES = ("float32", "float64")
HOOKS = {
    "_backward_hooks": "register_hook", "_post_accumulate_grad_hooks": "register_post_accumulate_grad_hook",
}  # fmt: skip


def hooked(module: Any) -> str:
    """The message about hooks of parameters and buffers, which a graph would not call; "" without hooks."""
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
        f"hooks of {', '.join(found)} would not be called: remove them, and do their work in the module or on the "
        "gradients of the step"
    )


def cyclic(module: Any) -> str:
    """The message about a module that contains itself; "" for a tree of modules."""
    path: dict[int, str] = {}

    def walk(inner: Any, name: str) -> str:
        if id(inner) in path:
            return (
                f"module {name} is {path[id(inner)] or 'the whole module'}, which contains it: hold one of them where "
                "torch does not register it, for example in a tuple, self.outer = (module,)"
            )
        path[id(inner)] = name
        for key, child in inner._modules.items():
            if child is not None and (found := walk(child, f"{name}.{key}".lstrip("."))):
                return found
        del path[id(inner)]
        return ""

    return walk(module, "")


class Outside:
    """The state outside of tensors that a step could read and change: plain attributes of modules, and random
    generators of Python and NumPy. A graph would keep the values of its export for ever."""

    def __init__(self, module: Any):
        self.module = module
        self.attributes, self.random = self._attributes(), self._random()

    def changed(self) -> str:
        """The message about what changed since construction; "" for nothing."""
        now = self._attributes()
        found = [name for name, value in self.attributes.items() if name in now and now[name] != value]
        if found:
            return (
                f"the step changes its attributes {', '.join(found)}, which a graph cannot do: make them buffers "
                "(register_buffer), or change them outside of forward"
            )
        if names := [name for name, state in self._random().items() if state != self.random[name]]:
            return (
                f"the step draws random numbers of {' and '.join(names)}, which a graph would draw once: draw them by "
                "torch, or pass them as an input"
            )
        return ""

    def _attributes(self) -> dict[str, Any]:
        return {
            f"{name}.{key}".lstrip("."): value
            for name, inner in self.module.named_modules()
            for key, value in vars(inner).items()
            if isinstance(value, bool | int | float | str)
        }

    def _random(self) -> dict[str, Any]:
        state: Any = np.random.get_state()
        return {"Python's random": random.getstate(), "NumPy": (state[1].tobytes(), state[2:])}


def mutated(signature: Any) -> str:
    """The message about inputs and parameters that a step changes; "" if it changes only buffers."""
    inputs = [str(signature.user_inputs.index(name)) for name in signature.user_inputs_to_mutate.values()]
    if inputs:
        return (
            f"the step changes its input {', '.join(inputs)} in place, which a graph cannot do: change a copy, "
            "x = x.clone()"
        )
    parameters = [name.removeprefix("step.") for name in signature.parameters_to_mutate.values()]
    return _changes(parameters) if parameters else ""


def changed(module: Any, inputs: tuple[Any, ...], call: Callable) -> str:
    """The message about parameters that a step changes in place, found by a step in eager mode that is undone; "" for
    none."""
    import torch

    kept = {name: (p, p._version, p.detach().clone()) for name, p in module.named_parameters()}
    call(module, *[x.detach().clone().requires_grad_(x.requires_grad) for x in inputs])
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


def indivisible(inputs: Sequence[Any], micro_batches: int) -> str:
    """The message about inputs whose samples cannot be divided into `micro_batches` equal parts; "" if they can."""
    for position, x in enumerate(inputs):
        if micro_batches > 1 and (not x.shape or x.shape[0] % micro_batches):
            samples = f"{x.shape[0]} samples" if x.shape else "no dim of samples"
            return (
                f"input {position} has {samples}, which cannot be divided into {micro_batches} equal micro-batches; "
                "choose a divisor of the samples"
            )
    return ""


def updated(graph: Graph, micro_batches: int) -> str:
    """The message about buffers that a step of several micro-batches would change once per micro-batch; "" without
    them."""
    if micro_batches == 1 or not graph.updates:
        return ""
    names = ", ".join(key for key, _ in graph.updates[:4])
    return (
        f"the step changes buffers ({names}), whose values would depend on the order of its micro-batches: choose 1 "
        "micro-batch, or a normalisation without running means"
    )


def of_other_types(graph: Graph) -> str:
    """The message about the first value of a type without a guarantee; "" for none."""
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
        f"{what} is {dtype}: a step must compute in {' or '.join(TYPES)}; export the module in one of these, without "
        "autocast"
    )


def unkeyed(target: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> str:
    """The name of a random operation whose numbers are not keyed by element, so that ranks would draw different ones;
    "" for other operations."""
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
    """The message about a random operation without keys."""
    inside = f" in module {where}" if where else ""
    return (
        f"{name}{inside} draws random numbers that would differ between ranks: draw by {', '.join(KEYED)}, or pass "
        "the numbers as an input"
    )
