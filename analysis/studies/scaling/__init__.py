"""How runs scale: speedup and its fits, and where the time of ranks goes."""

SUMMARY = "speedup, efficiencies, waiting and the critical path, against the number of ranks"
DETAIL = """\
Speedups and efficiencies are of all complete runs with times, with fits (Amdahl, USL and others) chosen by AICc and
refused below four rank counts. The trace of the median run on each rank count is replayed for the POP
efficiencies, the waiting in each collective, the ranks that come late, and the critical path."""
EXAMPLES = """\
  python -m analysis scaling runs/
  python -m analysis scaling runs/coupled-p* --csv tables/"""
NEEDS = "times to its end"
