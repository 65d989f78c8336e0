"""Turns the result of a user's module into a scalar loss, by the option --loss."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

from miniapps.errors import UsageError

TARGETED = ("cross_entropy", "mse")  # the last input is the target
LOSSES = (*TARGETED, "mean")
GIVE = (
    "return a scalar, or give --loss cross_entropy or --loss mse, for which the last input is the target, or --loss "
    "mean"
)


def step_of(module: Any, loss: str | None, name: str, inputs: tuple[Any, ...]) -> Callable:
    """A function call(module, *inputs) that returns the scalar loss of a step.

    Raises UsageError if the inputs do not fit forward; the function raises it if the result is no scalar loss."""
    given = len(inputs) - (loss in TARGETED)
    if given < 1:
        raise UsageError(f"--loss {loss}: the last input is the target, so --inputs must have one more")
    signature = inspect.signature(module.forward)
    try:
        signature.bind(*inputs[:given])
    except TypeError as error:
        besides = f" besides the target of --loss {loss}" if loss in TARGETED else ""
        raise UsageError(
            f"{name}: forward({', '.join(signature.parameters)}) does not take {given} inputs: {error}; --inputs must "
            f"have one tensor for each argument{besides}"
        ) from error

    def call(module: Any, *inputs: Any) -> Any:
        result = module(*inputs[:given])
        if loss is None:
            return scalar(result, name)
        return finished(loss, first_tensor(result, loss, name), inputs[given:], name)

    return call


def scalar(result: Any, name: str) -> Any:
    """The result if it is a scalar that depends on a parameter. Raises UsageError."""
    import torch

    if not isinstance(result, torch.Tensor) or result.dim() or not result.is_floating_point():
        raise UsageError(f"{name} returns {described(result)}, which is no scalar loss: {GIVE}")
    if not result.requires_grad:
        raise UsageError(
            f"{name} returns a scalar that depends on no parameter, so there is nothing to train"
        )
    return result


def first_tensor(result: Any, loss: str, name: str) -> Any:
    """The result, or the first of several, as recurrent layers return. Raises UsageError."""
    import torch

    first = result[0] if isinstance(result, tuple | list) and result else result
    if not isinstance(first, torch.Tensor) or not first.is_floating_point():
        raise UsageError(f"{name} returns {described(result)}: --loss {loss} needs a tensor of floating type")
    return first


def finished(loss: str, result: Any, targets: tuple[Any, ...], name: str) -> Any:
    """The loss of a result. Classes are dim 1, as in torch, or else the last dim. Raises UsageError."""
    from torch.nn import functional

    if loss == "mean":
        return result.mean()
    (target,) = targets
    shape, wanted = tuple(result.shape), tuple(target.shape)
    both = f"--loss {loss}: {name} returns {described(result)} for the target {described(target)}"
    if loss == "mse":
        if shape != wanted or not target.is_floating_point():
            raise UsageError(f"{both}: both must be of floating type and have one shape")
        return functional.mse_loss(result, target)
    if target.is_floating_point() or target.dim() + 1 != result.dim():
        raise UsageError(f"{both}: the target must be int64, with one dim fewer, that of the classes")
    target = target.long()
    if (shape[0], *shape[2:]) == wanted:
        return functional.cross_entropy(result, target)
    if shape[:-1] == wanted:
        return functional.cross_entropy(result.flatten(0, -2), target.flatten())
    raise UsageError(f"{both}: without the dim of the classes, 1 or the last, the shapes must agree")


def described(value: Any) -> str:
    """A value in words: `float32[4, 10]`, `a tuple of 2`."""
    import torch

    if isinstance(value, torch.Tensor):
        return f"{str(value.dtype).removeprefix('torch.')}{list(value.shape)}"
    if isinstance(value, tuple | list):
        return f"a {type(value).__name__} of {len(value)}"
    return f"a {type(value).__name__}"
