"""Code that all benchmarks share: launching, calls in turn with ratios, results."""
