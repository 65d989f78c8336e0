"""Solves, of runs that recorded a residual: histories, pairs, growth of a difference."""

SUMMARY = "the solves of `solver`: iterations, accuracy, and how a difference grows with the iteration"
DETAIL = """\
Only runs that recorded a residual are used: those of `solver`."""
EXAMPLES = """\
  python -m analysis solves runs/"""
NEEDS = "a residual by iteration, as `solver` does"
