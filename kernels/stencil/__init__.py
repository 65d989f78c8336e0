"""Block stencils: the way down and up of a V-cycle for the Laplacian, vector updates, dot products, strided copies.

A field is a float64 array `(blocks, rows + 2 pad, columns + 2 pad)`. The same instructions compute a block in the same
order on any rank, so its bits do not depend on the layout. All backends have the same functions: `reference`
(plain NumPy, the oracle of tests), `native` (C++ and OpenMP), `cupy` (CUDA C++ through CuPy). `xp` in each is the array
module of its fields.
"""

from functools import partial

from kernels import backends

# backend(name): the module of that name
backend = partial(backends.backend, "kernels.stencil", "block stencils")
