"""Iterative methods for linear systems, written once for any system; `base` specifies a system.

    method = METHODS["cg"](system)
    end = solve(method, b, x, tolerance=1e-8, limit=1000)     # improves x; a Solve: iterations, reason, ...
    for iteration in method.iterate(b, x, 1e-8, 1000): ...    # the same, state by state

A method describes its options in its docstring; `METHODS` has the choices of the command line.
"""

from miniapps.linear.krylov.base import METHODS, REASONS, Iteration, Method, Solve, solve
from miniapps.linear.krylov.bicgstab import BiCGStab
from miniapps.linear.krylov.cg import ConjugateGradients
from miniapps.linear.krylov.chebyshev import Chebyshev
from miniapps.linear.krylov.chronopoulos_gear import ChronopoulosGear
from miniapps.linear.krylov.gmres import ClassicalGramSchmidt, ModifiedGramSchmidt
from miniapps.linear.krylov.jacobi import Jacobi
from miniapps.linear.krylov.pipelined import PipelinedConjugateGradients
from miniapps.linear.krylov.refinement import Refinement

__all__ = [
    "METHODS",
    "REASONS",
    "BiCGStab",
    "Chebyshev",
    "ChronopoulosGear",
    "ClassicalGramSchmidt",
    "ConjugateGradients",
    "Iteration",
    "Jacobi",
    "Method",
    "ModifiedGramSchmidt",
    "PipelinedConjugateGradients",
    "Refinement",
    "Solve",
    "solve",
]
