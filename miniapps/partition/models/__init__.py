"""The models, a module each with one contract; plain torch modules that know nothing of ranks.

    Deck                          dataclass of sizes, and into how many blocks each axis is cut
    refused(deck)                 why there is no such model, "" where there is
    module(deck)                  a torch.nn.Module; calling it on the inputs gives the loss, a scalar
    inputs(deck, seed)            the tuple of its inputs
    axes(deck)                    the logical axes of the problem
    annotations(deck)             {parameter or position of an input: an axis, or None, per dim}
    RECIPES                       {recipe: {axis that it annotates by: axis of the mesh that carries it}}
    TOGETHER                      groups of axes that never cut one tensor, so that one axis of a mesh may carry them

An axis that annotates a larger dim cuts it in its major factor: `heads` = 4 in a dim of 64 is `heads:4*16`. The axis
`stored` cuts the first dim of all parameters that nothing else cuts, between steps alone (`zero`).
"""

from importlib import import_module
from types import ModuleType

MODELS = ("mlp", "gpt", "bert", "unet", "moe")


def model(name: str) -> ModuleType:
    """The module of the model `name`, one of MODELS."""
    return import_module(f"miniapps.partition.models.{name}")
