"""Scaling of runs: speedup and its fits, and the time of ranks."""

SUMMARY = "speedup, efficiencies, waiting and the critical path, against the number of ranks"
DETAIL = """\
Computes speedups and efficiencies of all complete runs with times. From four rank counts on, it fits laws (Amdahl, USL
and others) and chooses by AICc. It replays the trace of the median run on each rank count for the POP efficiencies, the
waiting in each collective, late ranks, and the critical path."""
EXAMPLES = """\
  python -m analysis scaling runs/
  python -m analysis scaling runs/coupled-p* --csv tables/"""
NEEDS = "times of a complete run"
