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

from importlib import import_module

from kernels.guarantees import ChoiceError

BACKENDS = ("reference", "native", "cupy")


def backend(name: str):
    """The module that implements fused vector updates as `name`; it offers `fuse` and `xp`.

    Raises ChoiceError for an unknown name or a backend that cannot run here (its message says why).
    """
    if name not in BACKENDS:
        raise ChoiceError(f"unknown backend of vector updates {name!r}; there are: {', '.join(BACKENDS)}")
    try:
        return import_module(f"kernels.vectors.{name}")
    except ImportError as error:
        raise ChoiceError(f"backend {name!r} of vector updates cannot run here: {error}") from error
