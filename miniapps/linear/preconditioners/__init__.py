"""Preconditioners of distributed matrices: z = M r, with M near the inverse of A.

    precondition = make("multigrid", matrix, box=box, stencil=of)
    precondition.apply(r, z)

They consist of distributed products and element-wise updates, so their bits depend on nothing but the problem, as long
as the products of `matrix` itself do not. `apply` is collective; r and z are vectors of the matrix' operand, of which
the own elements count; r is left as it is. `symmetric`: M is symmetric (and positive) where A is. `flops`,
`nbytes`: of this rank in one `apply`, the operations counted and the least that must move.
"""

from importlib import import_module

from kernels.guarantees import known
from miniapps.linear.preconditioners.errors import PreconditionerError

__all__ = ["NAMES", "OPTIONS", "PreconditionerError", "make"]

NAMES = ("none", "jacobi", "block-jacobi", "chebyshev", "multigrid")
OPTIONS = {  # of each, with defaults
    "none": {},
    "jacobi": {},
    "block-jacobi": {},
    "chebyshev": {"degree": 4, "ratio": 30.0},
    "multigrid": {"degree": 2, "ratio": 4.0},
}


def make(name: str, matrix, box=None, stencil=None, threads: int = 1, backend: str = "native", **options):
    """The preconditioner called `name` for a `miniapps.linear.matrix.Matrix`; None for `none`. Collective.

    | name | M | options |
    |---|---|---|
    | jacobi | the inverse of the diagonal | |
    | block-jacobi | incomplete factors of every logical block alone | |
    | chebyshev | a polynomial in A scaled by its diagonal | degree (products + 1), ratio of the interval's ends |
    | multigrid | a V-cycle; `box` and `stencil` of the matrix are needed | degree, ratio: of the smoother |

    Needs `matrix.local`. Raises ChoiceError for an unknown name, PreconditionerError for options that it does not
    have, for a matrix or backend that it cannot serve.
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
