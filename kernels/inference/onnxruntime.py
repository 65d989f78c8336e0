"""ONNX Runtime on the CPU, for models that torch.onnx exports."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np

from kernels.inference.arrays import aligned_copy, batch_of
from kernels.inference.onnx import exported
from kernels.missing import missing
from kernels.registry import variant
from kernels.threads import checked, cores


@variant(
    "inference",
    "onnxruntime",
    backend="onnxruntime",
    guarantee="run",
    why="its thread pool cuts the work by batch size and number of threads, and kernels follow the cut",
    available=missing("torch", "onnx", "onnxscript", "onnxruntime"),
)
def compile(
    forward: Callable,
    weights: Mapping[str, np.ndarray],
    sample: tuple[int, ...],
    threads: int = 1,
    batched: bool = True,
) -> Callable[[np.ndarray], np.ndarray]:
    """A session with all optimisations, with `threads` threads within an operation.

    Its optimisations change bits, and the number of threads may change them.
    """
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = checked(threads) or cores()
    options.inter_op_num_threads = 1
    options.log_severity_level = 3  # errors
    session = onnxruntime.InferenceSession(
        exported(forward, weights, sample, batched), options, providers=["CPUExecutionProvider"]
    )
    (name,) = (value.name for value in session.get_inputs())

    def network(x: np.ndarray) -> np.ndarray:
        x = batch_of(x, sample, batched)
        return session.run(None, {name: aligned_copy(x if batched else x[0])})[0]

    return network
