"""Block stencils: the preconditioned Laplacian, vector updates, dot products and strided copies.

A field is a float64 array `(blocks, rows + 2 pad, columns + 2 pad)`. Every block is computed by the same
instructions in the same order whoever owns it, so its bits do not depend on the layout. Backends mirror
each other function by function: `reference` (plain NumPy, the oracle), `native` (C++ and OpenMP),
`cupy` (CUDA C++ through CuPy); `xp` in each is the array module whose fields it takes.
"""

from importlib import import_module

from kernels.guarantees import ChoiceError

BACKENDS = ("reference", "native", "cupy")


def backend(name: str):
    """The module that implements the block stencils as `name`.

    Raises ChoiceError for an unknown name or a backend that cannot run here (its message says why).
    """
    if name not in BACKENDS:
        raise ChoiceError(f"unknown stencil backend {name!r}; there are: {', '.join(BACKENDS)}")
    try:
        return import_module(f"kernels.stencil.{name}")
    except ImportError as error:
        raise ChoiceError(f"stencil backend {name!r} cannot run here: {error}") from error
