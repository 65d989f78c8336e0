"""Elementwise functions of torch whose bits do not depend on cuts of an array.

Many functions have a vector loop and a scalar tail whose last bits differ, so an element's bits depend on its place: in
the tail of an array, of a thread's part, or of a row of a strided view. `flat` avoids tails: one thread computes
contiguous elements in one dim, padded to a multiple of 64. This is measured, not promised by torch: see
`python -m kernels.contract certify`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from kernels.contract.torch import in_threads
from kernels.missing import missing
from kernels.registry import variant

if TYPE_CHECKING:
    import torch

FILL = 64  # elements; 16 are not enough: torch's loops take several vectors at a time


@variant(
    "pointwise",
    "own",
    backend="torch",
    guarantee="layout",
    why="torch's function on contiguous elements padded to a multiple of 64, by one thread: no element is in a tail",
    available=missing("torch"),
)
def flat(function: Callable, *arrays: torch.Tensor) -> Any:
    """`function(*arrays)` for an elementwise function of tensors on the CPU that can be broadcast.

    Returns a tensor of the broadcast shape, or a tuple of them if the function does. Raises TypeError for any other
    operand.
    """
    import torch

    for number, x in enumerate(arrays):
        if not isinstance(x, torch.Tensor) or x.device.type != "cpu":
            where = x.device if isinstance(x, torch.Tensor) else type(x).__name__
            raise TypeError(f"pointwise: operand {number} is {where}: tensors on cpu are expected")
    whole = torch.broadcast_tensors(*arrays) if len({x.shape for x in arrays}) > 1 else arrays
    shape, n = whole[0].shape, whole[0].numel()

    def cut(y: torch.Tensor) -> torch.Tensor:
        return y[:n].reshape(shape)

    with in_threads(1):
        results = function(*(_filled(x, n) for x in whole))
    return tuple(map(cut, results)) if isinstance(results, tuple) else cut(results)


def _filled(x: torch.Tensor, n: int) -> torch.Tensor:
    """The elements of x in row-major order, padded by ones to a multiple of FILL; a view of x if nothing is added."""
    if n % FILL == 0:
        return x.reshape(-1)
    filled = x.new_ones(n + -n % FILL)
    filled[:n].view(x.shape).copy_(x)
    return filled


@variant(
    "pointwise",
    "torch",
    backend="torch",
    guarantee="run",
    why="a library computes the last elements of an array, of a thread or of a strided row by other code than the rest",
    available=missing("torch"),
)
def library(function: Callable, *arrays: torch.Tensor) -> Any:
    """`function(*arrays)` without changes."""
    return function(*arrays)
