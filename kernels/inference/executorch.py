"""ExecuTorch with its portable kernels, from what torch.export exports."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping

import numpy as np

from kernels.inference.by_shape import by_shape
from kernels.inference.capture import export
from kernels.missing import missing
from kernels.registry import variant
from kernels.threads import checked


@variant(
    "inference",
    "executorch",
    backend="executorch",
    guarantee="run",
    why="portable kernels add in loops of one thread, compiled for a wheel and not for this processor",
    available=missing("torch", "executorch"),
)
def compile(
    forward: Callable,
    weights: Mapping[str, np.ndarray],
    sample: tuple[int, ...],
    threads: int = 1,
    batched: bool = True,
) -> Callable[[np.ndarray], np.ndarray]:
    """A program for each size of batch, of portable kernels, in one thread, whatever `threads` is."""
    import torch

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from executorch.exir import to_edge
        from executorch.runtime import Runtime

    checked(threads)

    held = []  # methods read the memory of their programs, and these that of the buffers

    def program(batch: int):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            buffer = to_edge(export(forward, weights, sample, batched, batch)).to_executorch().buffer
            loaded = Runtime.get().load_program(buffer)
            method = loaded.load_method("forward")
        assert method is not None  # every program has one
        held.append((buffer, loaded))
        return lambda x: method.execute([torch.from_numpy(x)])[0].numpy().copy()

    return by_shape(program, sample, batched)
