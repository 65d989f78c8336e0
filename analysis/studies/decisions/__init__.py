"""Decisions: discrete outcomes of runs, and how many pairs of runs decide differently."""

SUMMARY = "what rounding decides: classes, clusters, iterations; how many pairs of runs differ there"
DETAIL = """\
Uses runs that recorded decisions: those of `solver`, `coupled`, `training`, `clusters`, and of programs that call
`decision`. Pairs of runs of one problem are compared, apart by what differs between the two."""
EXAMPLES = """\
  python -m analysis decisions runs/"""
NEEDS = "decisions, as `solver` and `clusters` do"
RECORDED = "discrete outcomes were recorded with their margins"
ANSWERS = (
    "Does rounding change a decision, a class, a cluster, a label, a discrete outcome? How often do two runs decide "
    "differently, and by which margin?"
)
UNUSUAL = ("other decisions",)
