"""Vector updates and dot products of an iteration, fused into one pass over memory.

    f = backend("native").fuse(
        dict(p=p, u=u, s=s, w=w, x=x, r=r),
        "p = u + beta*p; s = w + beta*s; x = x + alpha*p; r = r - alpha*s",
        dots="r.u w.u r.r",
        starts=starts,
    )
    f(partials, alpha=0.5, beta=0.1)

Backends mirror each other: `reference` (plain NumPy, the oracle), `native` (C++ and OpenMP), `cupy` (CUDA C++ made for
the steps); `xp` in each is the array module whose vectors it takes. Steps are element-wise with every operation rounded
by itself, and a dot product is one partial sum per logical block in the fixed order of `kernels/native/lanes.hpp`: no
bit depends on the layout, the number of threads or the backend.
"""

from functools import partial

from kernels import backends

# backend(name): the module of that name
backend = partial(backends.backend, "kernels.vectors", "vector updates")
