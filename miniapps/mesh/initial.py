"""Initial weights of a model over a mesh: torch's usual distributions, drawn with the bits of any processor."""

from __future__ import annotations

from collections.abc import Callable
from math import prod, sqrt
from typing import Any

from kernels import draws
from miniapps.learning.seeds import INIT, generator


def drawn(make: Callable[[Any], Any], sizes: Any, seed: int) -> Any:
    """The module `make(sizes)` with initial weights that depend on the seed alone.

    Weights and biases of linear layers and convolutions are uniform up to 1 / sqrt(fan in), embeddings standard normal,
    and those of normalisations ones and zeros. torch draws the parameters of other modules (`undrawn`)."""
    import torch

    with torch.random.fork_rng(devices=[]), torch.no_grad():
        torch.manual_seed(seed)
        module = make(sizes)
        for number, own in enumerate(module.modules()):
            rng = generator(seed, INIT, number)
            if isinstance(own, torch.nn.Linear | torch.nn.Conv1d | torch.nn.Conv2d | torch.nn.Conv3d):
                bound = 1.0 / sqrt(prod(own.weight.shape[1:]))
                for parameter in own.parameters(recurse=False):
                    parameter.copy_(
                        torch.from_numpy(draws.uniform(rng, -bound, bound, tuple(parameter.shape)))
                    )
            elif isinstance(own, torch.nn.Embedding):
                own.weight.copy_(torch.from_numpy(draws.normal(rng, tuple(own.weight.shape))))
    return module


def undrawn(module: Any) -> list[str]:
    """The parameters that torch draws, by functions that it compiles for each processor."""
    import torch

    ours = (torch.nn.Linear, torch.nn.Conv1d, torch.nn.Conv2d, torch.nn.Conv3d, torch.nn.Embedding)
    constant = (torch.nn.LayerNorm, torch.nn.GroupNorm, torch.nn.modules.batchnorm._BatchNorm)
    return [
        f"{name}.{key}".lstrip(".")
        for name, own in module.named_modules()
        if not isinstance(own, (*ours, *constant))
        for key, _ in own.named_parameters(recurse=False)
    ]
