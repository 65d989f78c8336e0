"""Where the ranks of a run were, and what passed between nodes."""

SUMMARY = "on which nodes the ranks were, what passed between nodes, and in which regions"
DETAIL = """\
Which ranks were on which node; the bytes that each node sent to each other, as far as the traces state them: messages
that were planned, and sums by a schedule of ours, exactly; of sums by the MPI library what must have crossed at least;
which collective or exchange they belong to; and the rate that was seen on a link."""
EXAMPLES = """\
  python -m analysis nodes runs/a
  python -m analysis nodes runs/ --csv tables/"""
NEEDS = "on which node it was"
FACT = "several nodes"
RECORDED = "ranks were on several nodes"
ANSWERS = "Communication between nodes, network, bandwidth, placement of ranks on hosts."
