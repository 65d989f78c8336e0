"""Vector updates and dot products of an iteration, fused into one pass over memory.

    f = backend("native").fuse(
        dict(p=p, u=u, s=s, w=w, x=x, r=r),
        "p = u + beta*p; s = w + beta*s; x = x + alpha*p; r = r - alpha*s",
        dots="r.u w.u r.r",
        starts=starts,
    )
    f(partials, alpha=0.5, beta=0.1)

All backends have the same functions: `reference` (plain NumPy, the oracle of tests), `native` (C++ and OpenMP), `cupy`
(CUDA C++ generated from the steps). `xp` in each is the array module of its vectors. Steps are elementwise, and every
operation is rounded separately. A dot product is one partial sum per logical block, in the fixed order of
`kernels/native/lanes.hpp`. So no bit depends on the layout, the number of threads or the backend.
"""

from functools import partial

from kernels import backends

# backend(name): the module of that name
backend = partial(backends.backend, "kernels.vectors", "vector updates")
