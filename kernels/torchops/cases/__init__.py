"""The operations under audit, a file per family; importing this package registers them."""

from kernels.guarantees import known
from kernels.torchops.cases import (  # noqa: F401 - registers them
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
from kernels.torchops.cases.operation import REGISTERED, Operation


def operations() -> list[Operation]:
    """All operations, in order of registration."""
    return list(REGISTERED.values())


def find(name: str) -> Operation:
    """The operation of that name; raises ChoiceError, which lists all names, for another."""
    known("operation", name, REGISTERED)
    return REGISTERED[name]
