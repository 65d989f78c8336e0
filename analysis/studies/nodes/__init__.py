"""Placement of ranks on nodes, and traffic between nodes."""

SUMMARY = "placement of ranks on nodes, and traffic between nodes by region"
DETAIL = """\
Shows the ranks of each node, the bytes from each node to each other, their collective or exchange, and the rate on each
link. Bytes of planned messages and of sums by the suite's schedules are exact; for sums by the MPI library they are a
lower bound."""
EXAMPLES = """\
  python -m analysis nodes runs/a
  python -m analysis nodes runs/ --csv tables/"""
NEEDS = "the node of each rank"
FACT = "several nodes"
RECORDED = "ranks were on several nodes"
ANSWERS = "Communication between nodes, network, bandwidth, placement of ranks on hosts."
