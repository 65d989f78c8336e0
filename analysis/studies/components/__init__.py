"""Variance components of the outcomes of runs: run-to-run variance, and separately that of the algorithm."""

SUMMARY = "where the variance comes from: allocations, nodes, launches, repeats or the algorithm"
DETAIL = """\
Splits the variance of the wall time and of the final value of every global quantity, over all complete runs of a
problem, among factors, with bootstrap intervals. Names the factors that the design does not separate."""
EXAMPLES = """\
  python -m analysis components runs/"""
NEEDS = "an outcome of a complete run"
