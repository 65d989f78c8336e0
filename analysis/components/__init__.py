"""Variance components: how much of the variability lies between allocations, nodes, launches and repeats."""
