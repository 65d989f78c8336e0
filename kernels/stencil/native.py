"""Block stencils in C++ (kernels/native/stencil.cpp): one thread per block, fixed order inside a block."""

from kernels._native import block_dots, cg_update, copy_runs, laplacian_dots

__all__ = ["block_dots", "cg_update", "copy_runs", "laplacian_dots"]
