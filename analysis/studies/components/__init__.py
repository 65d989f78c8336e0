"""Variance components of the outcomes of runs: of chance, and apart from that of the algorithm."""

SUMMARY = "where the variance comes from: allocations, nodes, launches, repeats or the algorithm"
DETAIL = """\
Of the wall time and of the final value of every global quantity, over all complete runs of a problem: which part
of the variance each factor has, with bootstrap intervals. Factors that the design does not separate are named."""
EXAMPLES = """\
  python -m analysis components runs/"""
NEEDS = "an outcome to its end"
