"""Benchmarks of whole runs of the applications."""
