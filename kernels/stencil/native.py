"""Block stencils in C++ (kernels/native/stencil.cpp): one thread per block, fixed order inside a block."""

import numpy as xp

from kernels._native import block_dots, cg_update, chebyshev_laplacian, copy_runs, poisson_residual

__all__ = ["block_dots", "cg_update", "chebyshev_laplacian", "copy_runs", "poisson_residual", "xp"]
