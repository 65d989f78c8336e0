"""Inference of networks on the CPU: one file per backend; importing this package registers them.

    network = get("inference", "static")(forward, weights, sample, threads=1)
    logits = network(images)

`forward(tensors, x)` is the network in torch: `tensors` in the order of `weights` (names to float32 arrays; index
arrays int64), x `(batch, *sample)` float32. The result is a NumPy array. A network of `static` loads other weights by
`network.load(weights)`. A guarantee here is about one sample. `layout`: the same bits in any batch, at any place in it,
with any number of threads. `run`: the same bits when the same call is repeated.
"""

from kernels.inference import eager, onnxruntime, openvino, static

__all__ = ["eager", "onnxruntime", "openvino", "static"]
