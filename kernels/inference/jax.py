"""JAX: XLA's compiler for CPUs, from a graph of ours as a function of jax.numpy."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np

from kernels.inference.by_shape import by_shape
from kernels.inference.capture import capture
from kernels.inference.traced import traced
from kernels.missing import missing
from kernels.registry import variant
from kernels.threads import checked, cores


@variant(
    "inference",
    "jax",
    backend="jax",
    guarantee="run",
    why="XLA makes kernels, and their sums, for the shapes that it meets; the same call repeats",
    available=missing("torch", "jax"),
)
def compile(
    forward: Callable,
    weights: Mapping[str, np.ndarray],
    sample: tuple[int, ...],
    threads: int = 1,
    batched: bool = True,
) -> Callable[[np.ndarray], np.ndarray]:
    """A program of XLA for each size of batch, on the CPU whatever other devices there are.

    XLA either shares a kernel among as many threads as there are cores or among none: `threads` is 1 or more.
    """
    import jax

    function = traced(capture(forward, weights, sample, batched))
    options = {"xla_cpu_multi_thread_eigen": (checked(threads) or cores()) > 1}
    cpu = jax.devices("cpu")[0]

    def program(batch: int):
        shape = (batch, *sample) if batched else tuple(sample)
        with jax.default_device(cpu):
            compiled = jax.jit(function).lower(np.zeros(shape, np.float32)).compile(compiler_options=options)
        return lambda x: np.array(compiled(jax.device_put(x, cpu)))

    return by_shape(program, sample, batched)
