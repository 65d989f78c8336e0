"""The operations under audit, a file per family; importing them registers them."""

from kernels.torchops.cases import (
    attention,
    convolutions,
    decompositions,
    elements,
    gathers,
    losses,
    pooling,
    products,
    recurrent,
    reductions,
    resampling,
    scatters,
    sorting,
    sparse,
    transforms,
)

__all__ = [
    "attention",
    "convolutions",
    "decompositions",
    "elements",
    "gathers",
    "losses",
    "pooling",
    "products",
    "recurrent",
    "reductions",
    "resampling",
    "scatters",
    "sorting",
    "sparse",
    "transforms",
]
