"""IREE on the CPU, from StableHLO, which JAX writes from a graph of ours."""

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
    "iree",
    backend="iree",
    guarantee="run",
    why="the compiler chooses tiles, and the order of sums in them, for one shape; the same program repeats",
    available=missing("torch", "jax", "iree.compiler", "iree.runtime"),
)
def compile(
    forward: Callable,
    weights: Mapping[str, np.ndarray],
    sample: tuple[int, ...],
    threads: int = 1,
    batched: bool = True,
) -> Callable[[np.ndarray], np.ndarray]:
    """A program for each size of batch, compiled for this processor; it runs in the calling thread (`local-sync`), or
    on a pool of IREE's (`local-task`) where `threads` is not 1. IREE sizes that pool itself."""
    import jax
    from iree import compiler, runtime

    function = traced(capture(forward, weights, sample, batched))
    driver = "local-sync" if (checked(threads) or cores()) == 1 else "local-task"

    def program(batch: int):
        shape = (batch, *sample) if batched else tuple(sample)
        lowered = jax.jit(function).lower(jax.ShapeDtypeStruct(shape, np.float32))
        flatbuffer = compiler.compile_str(
            lowered.as_text(),
            target_backends=["llvm-cpu"],
            input_type="stablehlo",
            extra_args=["--iree-llvmcpu-target-cpu=host"],
        )
        context = runtime.SystemContext(config=runtime.Config(driver))
        module = runtime.VmModule.copy_buffer(context.instance, flatbuffer)
        context.add_vm_module(module)
        main = context.modules[module.name]["main"]
        return lambda x: np.array(main(x).to_host())

    return by_shape(program, sample, batched)
