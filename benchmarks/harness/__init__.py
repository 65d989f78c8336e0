"""What all benchmarks share: launching, turns with ratios, results."""
