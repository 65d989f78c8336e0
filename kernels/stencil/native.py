"""Block stencils in C++ (kernels/native/stencil.cpp): one thread per block, fixed order inside a block."""

import numpy as xp

from kernels._native import (
    block_dots,
    cg_update,
    copy_runs,
    poisson_residual,
    prolong_smooth,
    smooth_restrict,
)

__all__ = [
    "block_dots",
    "cg_update",
    "copy_runs",
    "poisson_residual",
    "prolong_smooth",
    "smooth_restrict",
    "xp",
]
