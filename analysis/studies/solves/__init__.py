"""Solves of runs that recorded a residual: histories, pairs, growth of a difference."""

SUMMARY = "of `solver`: iterations, accuracy, and how a difference grows with the iteration"
DETAIL = """\
Uses runs that recorded a residual, such as those of `solver`."""
EXAMPLES = """\
  python -m analysis solves runs/"""
NEEDS = "a residual by iteration, as `solver` does"
UNUSUAL = ("not converged", "other iterations")
RECORDED = "residuals were recorded by iteration"
ANSWERS = (
    "The linear solver, conjugate gradient, GMRES does not converge, stagnates, needs other numbers of "
    "iterations; the residual."
)
