"""Apache TVM on the CPU, untuned, from what torch.export exports."""

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
    "tvm",
    backend="tvm",
    guarantee="run",
    why="LLVM vectorises the loops of one shape, and may put their sums in another order; the same program repeats",
    available=missing("torch", "tvm"),
)
def compile(
    forward: Callable,
    weights: Mapping[str, np.ndarray],
    sample: tuple[int, ...],
    threads: int = 1,
    batched: bool = True,
) -> Callable[[np.ndarray], np.ndarray]:
    """A program for each size of batch, compiled for this processor without a schedule: loops as they are written, in
    one thread, whatever `threads` is."""
    import tvm
    from tvm.relax import VirtualMachine
    from tvm.relax.frontend.torch import from_exported_program

    checked(threads)

    def program(batch: int):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            exported = export(forward, weights, sample, batched, batch)
            module = from_exported_program(exported, unwrap_unit_return_tuple=True)
            target = tvm.target.Target({"kind": "llvm", "mcpu": tvm.target.codegen.llvm_get_system_cpu()})
            machine = VirtualMachine(tvm.compile(module, target=target), tvm.cpu())
        return lambda x: np.array(machine["main"](tvm.runtime.tensor(x)).numpy())

    return by_shape(program, sample, batched)
