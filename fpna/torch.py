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

FOLDER = "kernels.torchops.alternatives"
MODULES = {  # {module of the folder: its names here}
    "operators": ("gather", "index_add", "index_put", "index_select", "scatter_add"),
    "reductions": ("amax", "cumsum", "mean", "segment_sum", "sum"),
    "lookups": ("embedding", "embedding_bag"),
    "replacing": ("replaced",),
}
__all__ = [
    "amax",
    "cumsum",
    "embedding",
    "embedding_bag",
    "gather",
    "index_add",
    "index_put",
    "index_select",
    "mean",
    "replaced",
    "scatter_add",
    "segment_sum",
    "sum",
]

if TYPE_CHECKING:
    from kernels.torchops.alternatives.lookups import embedding as embedding
    from kernels.torchops.alternatives.lookups import embedding_bag as embedding_bag
    from kernels.torchops.alternatives.operators import gather as gather
    from kernels.torchops.alternatives.operators import index_add as index_add
    from kernels.torchops.alternatives.operators import index_put as index_put
    from kernels.torchops.alternatives.operators import index_select as index_select
    from kernels.torchops.alternatives.operators import scatter_add as scatter_add
    from kernels.torchops.alternatives.reductions import amax as amax
    from kernels.torchops.alternatives.reductions import cumsum as cumsum
    from kernels.torchops.alternatives.reductions import mean as mean
    from kernels.torchops.alternatives.reductions import segment_sum as segment_sum
    from kernels.torchops.alternatives.reductions import sum as sum
    from kernels.torchops.alternatives.replacing import Replaced as Replaced
    from kernels.torchops.alternatives.replacing import replaced as replaced
else:

    def __getattr__(name: str) -> Any:
        for module, names in MODULES.items():
            if name in names:
                return getattr(import_module(f"{FOLDER}.{module}"), name)
        raise AttributeError(f"fpna.torch has no {name!r}; it has {', '.join(__all__)}")


def __dir__() -> list[str]:
    return __all__
