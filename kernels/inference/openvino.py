"""OpenVINO on the CPU, for models that torch.onnx exports."""

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
    "openvino",
    backend="openvino",
    guarantee="run",
    why="oneDNN makes kernels for the shapes and the number of threads that it meets; the same call repeats",
    available=missing("torch", "onnx", "onnxscript", "openvino"),
)
def compile(
    forward: Callable,
    weights: Mapping[str, np.ndarray],
    sample: tuple[int, ...],
    threads: int = 1,
    batched: bool = True,
) -> Callable[[np.ndarray], np.ndarray]:
    """A model compiled for latency, in float32; on processors with bfloat16, OpenVINO's default is bfloat16."""
    import openvino

    settings = {
        "INFERENCE_PRECISION_HINT": "f32",
        "INFERENCE_NUM_THREADS": checked(threads) or cores(),
        "PERFORMANCE_HINT": "LATENCY",
        "NUM_STREAMS": 1,
    }
    core = openvino.Core()
    model = core.read_model(exported(forward, weights, sample, batched))
    request = core.compile_model(model, "CPU", settings).create_infer_request()

    def network(x: np.ndarray) -> np.ndarray:
        x = batch_of(x, sample, batched)
        request.infer([aligned_copy(x if batched else x[0])], share_inputs=True)
        return np.array(request.get_output_tensor().data)

    return network
