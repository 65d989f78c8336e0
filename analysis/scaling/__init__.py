"""How runs scale: speedup and its fits, efficiencies, waiting, and the critical path across ranks."""
