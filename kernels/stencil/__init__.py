"""Block stencils: both ways of a V-cycle for the Laplacian, vector updates, dot products and strided copies.

A field is a float64 array `(blocks, rows + 2 pad, columns + 2 pad)`. Every block is computed by the same
instructions in the same order whoever owns it, so its bits do not depend on the layout. Backends mirror
each other function by function: `reference` (plain NumPy, the oracle), `native` (C++ and OpenMP),
`cupy` (CUDA C++ through CuPy); `xp` in each is the array module whose fields it takes.
"""

from functools import partial

from kernels import backends

# backend(name): the module of that name
backend = partial(backends.backend, "kernels.stencil", "block stencils")
