"""torch in eager mode, operation by operation: the baseline of the other backends."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np

from kernels.inference.arrays import aligned_copy, batch_of
from kernels.inference.capture import as_module
from kernels.missing import missing
from kernels.registry import variant
from kernels.threads import checked, cores


@variant(
    "inference",
    "eager",
    backend="torch",
    guarantee="run",
    why="torch and its libraries choose kernels by batch size and number of threads; the same call repeats",
    available=missing("torch"),
)
def compile(
    forward: Callable,
    weights: Mapping[str, np.ndarray],
    sample: tuple[int, ...],
    threads: int = 1,
    batched: bool = True,
) -> Callable[[np.ndarray], np.ndarray]:
    """`forward` under torch.inference_mode, with `threads` threads during a call.

    A sample's bits depend on its batch and on the number of threads. Input and weights are copied to addresses that are
    multiples of 64 bytes, since the bits of some kernels depend on addresses too.
    """
    import torch

    threads = checked(threads) or cores()
    module = as_module(forward, weights)

    def network(x: np.ndarray) -> np.ndarray:
        x = batch_of(x, sample, batched)
        before = torch.get_num_threads()
        torch.set_num_threads(threads)
        try:
            with torch.inference_mode():
                return module(torch.from_numpy(aligned_copy(x if batched else x[0]))).numpy()
        finally:
            torch.set_num_threads(before)

    return network
