"""Networks that answer requests: a registry of backends, one file each; importing this package registers them.

    network = get("inference", "static")(forward, weights, sample, threads=1)
    logits = network(images)

`forward(tensors, x)`: the network in torch, `tensors` in the order of `weights` (names to float32 arrays; index arrays
int64), x `(batch, *sample)` float32. The result is a NumPy array. A network of `static` takes other weights by
`network.load(weights)`. A guarantee here speaks of one sample: `layout` is
the same bits in any batch, at any place in it, with any number of threads; `run` when the same call is repeated.
"""

from kernels.inference import eager, onnxruntime, openvino, static

__all__ = ["eager", "onnxruntime", "openvino", "static"]
