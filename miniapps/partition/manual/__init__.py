"""Regions of a module that the user partitions: a function that gets the shards of its tensors.

    @manual("n., .. -> n.")
    def scaled(where, x, weight):            # x: some samples, where["n"]: their numbers; weight: whole
        return torch.tanh(x @ weight)

    y = scaled(x, weight)                    # in forward of a module

A letter is a dim that may be cut, the same letter a common cut; a dot is a dim that every call gets whole. The function
must compute each place along a letter without the others. Without a plan it is called once, on whole tensors. In a
plan it is called on the shard of a rank or, under `layout` and `exact`, on one block after the other, so that its bits
do not follow the mesh. The backward pass calls it again and differentiates it; gradients of tensors without a letter
are summed over its blocks, like all partial sums (GSPMD's manual subgroups, arXiv 2105.04663; jax's shard_map).

With `along="n"` the function may send messages between blocks of n: `where.psum`, `where.all_gather` and
`where.ppermute` (`manual.messages`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextvars import ContextVar
from functools import cache, update_wrapper
from typing import Any

import numpy as np

from kernels.guarantees import ChoiceError
from miniapps.errors import UsageError
from miniapps.partition.manual.messages import OneBlock, Seat, Where
from miniapps.partition.rules.manual import ALONG, Spec, parsed

Places = tuple[tuple[str, tuple[int, ...]], ...]  # the same in a plan
_functions: dict[str, Callable[..., Any]] = {}
capturing: ContextVar[bool] = ContextVar("capturing", default=False)  # whether an export traces a module


def manual(spec: str, along: str = "") -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Decorates a function of (where, tensors ...) that returns a tensor or a tuple of tensors; the result is called
    with the tensors. `along`: letters along which the function sends messages, by `where.psum`, `where.all_gather` and
    `where.ppermute`. Raises ChoiceError for a spec that is none."""
    spec += f" {ALONG} {along}" if along else ""
    parsed(spec)

    def decorated(function: Callable[..., Any]) -> Callable[..., Any]:
        key = f"{function.__module__}:{function.__qualname__}"
        _functions[key] = function

        def call(*tensors: Any) -> Any:
            dims = [getattr(x, "ndim", None) for x in tensors]
            if dims != [len(letters) for letters in parsed(spec).operands]:
                raise UsageError(
                    f"manual region {key}: called with tensors of {dims} dims, but its spec is {spec!r}"
                )
            region = _operations()[0] if capturing.get() else forward
            found = region(key, spec, list(tensors))
            return found[0] if len(parsed(spec).results) == 1 else tuple(found)

        update_wrapper(call, function)
        return call

    return decorated


def forward(
    key: str, spec: str, tensors: Sequence[Any], where: Places | None = None, at: Seat | None = None
) -> list[Any]:
    """The results of a region on shards at the places `where`. Raises ChoiceError if their number or dims are not those
    of the spec."""
    function = _functions.get(key)
    if function is None:
        raise ChoiceError(
            f"manual region {key}: this process has not imported it; import its module on every rank"
        )
    known = parsed(spec)
    places = whole(known, tensors) if where is None else {letter: np.array(own) for letter, own in where}
    found = function(Where(places, at or OneBlock(known.along)), *tensors)
    results = list(found) if isinstance(found, tuple | list) else [found]
    dims = [getattr(each, "ndim", None) for each in results]
    wanted = [len(letters) for letters in known.results]
    if dims != wanted:
        raise ChoiceError(
            f"manual region {key}: it returns tensors of {dims} dims, but {spec!r} has {wanted}"
        )
    return results


def backward(
    key: str,
    spec: str,
    gradients: Sequence[Any],
    tensors: Sequence[Any],
    where: Places | None = None,
    at: Seat | None = None,
) -> list[Any]:
    """The gradients of the tensors of a region, zeros for tensors without one, by calling it again."""
    import torch

    with torch.enable_grad():
        leaves = [x.detach().requires_grad_(x.is_floating_point()) for x in tensors]
        results = forward(key, spec, leaves, where, at)
        learned = [x for x in leaves if x.requires_grad]
        pairs = [(y, g) for y, g in zip(results, gradients, strict=True) if y.requires_grad]
        found = torch.autograd.grad([y for y, _ in pairs], learned, [g for _, g in pairs], allow_unused=True)
    by_leaf = {id(x): g for x, g in zip(learned, found, strict=True)}
    return [torch.zeros_like(x) if (g := by_leaf.get(id(x))) is None else g for x in leaves]


def whole(spec: Spec, tensors: Sequence[Any]) -> Mapping[str, np.ndarray]:
    """All places along each letter."""
    return {
        letter: np.arange(n)
        for letters, x in zip(spec.operands, tensors, strict=True)
        for letter, n in zip(letters, x.shape, strict=True)
        if letter != "."
    }


@cache
def _operations() -> tuple[Any, Any]:
    """torch's operations of a region, forward and backward, which an export keeps as nodes."""
    import torch

    def copied(found: list[Any], tensors: Sequence[Any]) -> list[Any]:
        """The results; torch forbids results that are operands."""
        return [x.clone() if any(x is y for y in tensors) else x for x in found]

    def region(key: str, spec: str, tensors: list[torch.Tensor]) -> list[torch.Tensor]:
        return copied(forward(key, spec, tensors), tensors)

    def gradients_of(
        key: str, spec: str, gradients: list[torch.Tensor], tensors: list[torch.Tensor]
    ) -> list[torch.Tensor]:
        return copied(backward(key, spec, gradients, tensors), [*gradients, *tensors])

    # Not from annotations, which are texts in this file.
    one = torch.library.custom_op(
        "fpna::manual", region, mutates_args=(), schema="(str key, str spec, Tensor[] tensors) -> Tensor[]"
    )
    other = torch.library.custom_op(
        "fpna::manual_backward", gradients_of, mutates_args=(),
        schema="(str key, str spec, Tensor[] gradients, Tensor[] tensors) -> Tensor[]",
    )  # fmt: skip
    one.register_fake(lambda key, spec, tensors: [torch.empty_like(x) for x in region(key, spec, tensors)])
    other.register_fake(lambda key, spec, gradients, tensors: [torch.empty_like(x) for x in tensors])

    def kept(ctx: Any, inputs: Any, output: Any) -> None:
        ctx.key, ctx.spec, tensors = inputs
        ctx.save_for_backward(*tensors)

    def differentiated(ctx: Any, gradients: Any) -> Any:
        return None, None, other(ctx.key, ctx.spec, list(gradients), list(ctx.saved_tensors))

    one.register_autograd(differentiated, setup_context=kept)
    return one, other
