"""Functions of torch, element by element, whose bits do not depend on how an array is cut.

Many have a vector body and a scalar tail whose last bits differ, so that an element's bits depend on where it lies: in
the tail of an array, of a thread's part of it, or of a row of a strided view. `flat` leaves no tails: one thread gets
contiguous elements in one dim, filled up to a multiple of 64. Measured, not promised by torch: see
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
    why="torch's function on contiguous elements filled up to a multiple of 64, by one thread: no element is in a tail",
    available=missing("torch"),
)
def flat(function: Callable, *arrays: torch.Tensor) -> Any:
    """`function(*arrays)` of tensors on the CPU that can be broadcast; the function is elementwise.

    Returns a tensor of the broadcast shape, or a tuple of such where the function does. TypeError for what is no tensor
    on the CPU.
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
    """The elements of x in row-major order, and then ones up to a multiple of FILL: a view if nothing need be added."""
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
    why="a library computes the last elements of an array, of a thread or of a strided row in another way than others",
    available=missing("torch"),
)
def library(function: Callable, *arrays: torch.Tensor) -> Any:
    """`function(*arrays)` as it is."""
    return function(*arrays)
