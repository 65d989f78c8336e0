"""Benchmarks of reading, querying, comparing and reporting traces."""
