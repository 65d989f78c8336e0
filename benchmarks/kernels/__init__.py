"""Benchmarks of the kernels of one process."""
