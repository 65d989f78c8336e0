"""Preconditioners of distributed matrices: z = M r, with M near the inverse of A.

    precondition = make("multigrid", matrix, box=box, stencil=of)
    precondition.apply(r, z)

They consist of distributed products and element-wise updates, so their bits depend only on the problem, if the products
of `matrix` do. `apply` is collective; r and z have the form of the matrix' operand, and only own elements are used; r
is unchanged. `symmetric`: M is symmetric (and positive) if A is. `flops`, `nbytes`: of this rank in one `apply`,
counted operations and the least number of moved bytes.
"""

from importlib import import_module

from kernels.guarantees import known
from miniapps.linear.preconditioners.errors import PreconditionerError

__all__ = ["NAMES", "OPTIONS", "PreconditionerError", "make"]

NAMES = ("none", "jacobi", "block-jacobi", "chebyshev", "multigrid")
OPTIONS = {  # of each preconditioner, with defaults
    "none": {},
    "jacobi": {},
    "block-jacobi": {},
    "chebyshev": {"degree": 4, "ratio": 30.0},
    "multigrid": {"degree": 2, "ratio": 4.0},
}


def make(name: str, matrix, box=None, stencil=None, threads: int = 1, backend: str = "native", **options):
    """Makes the preconditioner `name` for a `miniapps.linear.matrix.Matrix`; None for `none`. Collective.

    | name | M | options |
    |---|---|---|
    | jacobi | the inverse of the diagonal | |
    | block-jacobi | separate incomplete factors of every logical block | |
    | chebyshev | a polynomial in A scaled by its diagonal | degree (products + 1), ratio of the interval's ends |
    | multigrid | a V-cycle; `box` and `stencil` of the matrix are needed | degree, ratio: of the smoother |

    Needs `matrix.local`. Raises ChoiceError for an unknown name, PreconditionerError for an unknown option and for an
    unsuitable matrix or backend.
    """
    known("preconditioner", name, NAMES)
    for option in options:
        if option not in OPTIONS[name]:
            raise PreconditionerError(
                f"preconditioner {name} has no option {option!r}; it has: {', '.join(OPTIONS[name]) or 'none'}"
            )
    options = {**OPTIONS[name], **options}
    if name == "none":
        return None
    if name == "multigrid":
        options |= {"box": box, "stencil": stencil}
    module = import_module(f"miniapps.linear.preconditioners.{name.replace('-', '_')}")
    return module.Preconditioner(matrix, threads=threads, backend=backend, **options)
