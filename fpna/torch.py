"""Sums of PyTorch in a chosen order, forward and backward, in place of torch.index_add and kin: docs/how-to/torch.md.

    import fpna.torch

    out = fpna.torch.index_add(out, 0, index, messages)              # whatever the threads and the order of messages
    rows = fpna.torch.embedding(tokens, weight, order="exact")       # whose gradient is correctly rounded

    with fpna.torch.replaced() as mode:                              # torch's own calls inside of a model
        loss = model(x)

torch is imported when a name is used.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

HOME, MODE = "kernels.torchops.alternatives.operators", "kernels.torchops.alternatives.replacing"
__all__ = [
    "embedding",
    "gather",
    "index_add",
    "index_put",
    "index_select",
    "replaced",
    "scatter_add",
    "segment_sum",
    "sum",
]

if TYPE_CHECKING:
    from kernels.torchops.alternatives.operators import embedding as embedding
    from kernels.torchops.alternatives.operators import gather as gather
    from kernels.torchops.alternatives.operators import index_add as index_add
    from kernels.torchops.alternatives.operators import index_put as index_put
    from kernels.torchops.alternatives.operators import index_select as index_select
    from kernels.torchops.alternatives.operators import scatter_add as scatter_add
    from kernels.torchops.alternatives.operators import segment_sum as segment_sum
    from kernels.torchops.alternatives.operators import sum as sum
    from kernels.torchops.alternatives.replacing import Replaced as Replaced
    from kernels.torchops.alternatives.replacing import replaced as replaced
else:

    def __getattr__(name: str) -> Any:
        if name not in __all__:
            raise AttributeError(f"fpna.torch has no {name!r}; it has {', '.join(__all__)}")
        return getattr(import_module(MODE if name == "replaced" else HOME), name)


def __dir__() -> list[str]:
    return __all__
